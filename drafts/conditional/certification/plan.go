// Package certification certifies webhooks for KEP-5681 (Conditional Authorization): it asks the questions of every
// vector and judges the answers.
package certification

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/internal/seq"
)

// The levels.
const (
	// Phases: both phases decide as the policies say, and answers have the right form.
	Phases certify.CertificationLevel = "phases"
	// Atomic: a request is decided by one state of the policies. This level needs a loader that changes the policies
	// between the phases.
	Atomic certify.CertificationLevel = "atomic"
)

// Levels returns all of them.
func Levels() []certify.CertificationLevel { return []certify.CertificationLevel{Phases, Atomic} }

// Plan is what is asked under a seed. Each vector gets a group of its own, derived from the seed, and each of its
// policies is about members of that group only. So all policies can be loaded at once, and no answer can be known
// before the seed is.
type Plan struct {
	Seed int64

	entries []entry
	byID    map[string]*entry
	// replica is set if a second replica is asked, too.
	replica bool
	// language is the language of the authorizer's policies. It is empty if the language can express all policies.
	language string
}

// entry is a vector with the names that it has under the seed.
type entry struct {
	id    string
	level certify.CertificationLevel
	// should is set if the text only recommends what the vector wants.
	should bool
	// inexpressible says which of the vector's policies the authorizer's language cannot express. It is empty if it can
	// express all.
	inexpressible string
	vector        *vectors.Vector
	*vectors.Webhook
}

// inapplicable returns why a vector is not asked in a revision of the wire. It is empty if the vector is asked.
func (e *entry) inapplicable(w *wire.Revision) string {
	if what := w.Cannot(e.vector); what != "" {
		return fmt.Sprintf("the revision %s of the wire cannot say it: %s", w.Name, what)
	}
	return e.inexpressible
}

// caseID returns the ID of the vector's case in a report.
func (e *entry) caseID() string { return string(e.level) + "/" + e.id }

// NewPlan makes a plan of the webhook vectors under a seed.
func NewPlan(all []*vectors.Vector, seed int64) (*Plan, error) {
	b := &Plan{Seed: seed, byID: map[string]*entry{}}
	for _, v := range all {
		if v.Webhook == nil {
			continue
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "authzconf conditional %d %s", seed, v.ID))
		w, err := bind(v.Webhook, hex.EncodeToString(sum[:4]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.File, err)
		}
		e := entry{id: v.ID, level: Phases, should: v.Level == vectors.Should, vector: v, Webhook: w}
		if slices.ContainsFunc(w.Steps, func(s vectors.Step) bool { return s.SetPolicies != nil }) {
			e.level = Atomic
		}
		b.entries = append(b.entries, e)
	}
	r := rand.New(rand.NewPCG(uint64(seed), 0x76656374))
	r.Shuffle(len(b.entries), func(i, j int) { b.entries[i], b.entries[j] = b.entries[j], b.entries[i] })
	for i := range b.entries {
		b.byID[b.entries[i].id] = &b.entries[i]
	}
	return b, nil
}

// bind copies a vector, with a suffix for the IDs of policies and the group.
func bind(in *vectors.Webhook, suffix string) (*vectors.Webhook, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	out := &vectors.Webhook{}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, err
	}
	group := groupOf(suffix)
	guard := func(all []vectors.Policy) {
		for i := range all {
			all[i].ID = qualify(all[i].ID) + "-" + suffix
			all[i].Expression = fmt.Sprintf("%q in request.userInfo.groups && (%s)", group, all[i].Expression)
		}
	}
	guard(out.Policies)
	for i := range out.Steps {
		if s := &out.Steps[i]; s.Authorize != nil {
			s.Authorize.Spec.Groups = append(s.Authorize.Spec.Groups, group)
		} else {
			guard(s.SetPolicies)
		}
	}
	return out, nil
}

// domain begins the IDs of policies, so that they can be IDs of conditions in revisions whose IDs need a domain.
const domain = "vector.authzconf.dev/"

// qualify returns an ID with a domain in front, unless it has one.
func qualify(id string) string {
	if strings.Contains(id, "/") {
		return id
	}
	return domain + id
}

// groupOf returns the group whose members a vector's policies are about.
func groupOf(suffix string) string { return "vector:" + suffix }

// InLanguage returns the plan for an authorizer whose policies are in a language that Export knows. Vectors with
// policies that the language cannot express are not asked, and none of their policies is loaded.
func (b *Plan) InLanguage(form string) (*Plan, error) {
	out := &Plan{Seed: b.Seed, entries: slices.Clone(b.entries), byID: map[string]*entry{}, replica: b.replica, language: form}
	for i := range out.entries {
		e := &out.entries[i]
		all := slices.Clone(e.Policies)
		for _, s := range e.Steps {
			all = append(all, s.SetPolicies...)
		}
		for _, p := range all {
			what, err := FindInexpressible(form, p)
			if err != nil {
				return nil, err
			}
			if what != "" && e.inexpressible == "" {
				e.inexpressible = fmt.Sprintf("the policy %s cannot be said in %s: %s", p.ID, form, what)
			}
		}
		out.byID[e.id] = e
	}
	return out, nil
}

// Suite returns the digest of all vectors, as they are asked.
func (b *Plan) Suite() string {
	h := sha256.New()
	for _, e := range b.entries {
		raw, _ := json.Marshal(e.Webhook) // bind has marshalled it before
		_, _ = fmt.Fprintf(h, "%s %s %t %s %s\n", e.id, e.level, e.should, e.inexpressible, raw)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// withReplica returns the plan for an authorizer with a second replica that is asked, too.
func (b *Plan) withReplica() *Plan {
	out := *b
	out.replica = true
	return &out
}

// Policies returns the policies that a webhook must have when certification begins.
func (b *Plan) Policies() []vectors.Policy { return b.policiesFor(nil, nil) }

// policiesFor returns all policies, with the policies of one vector replaced.
func (b *Plan) policiesFor(changed *entry, replacement []vectors.Policy) []vectors.Policy {
	out := []vectors.Policy{}
	for i := range b.entries {
		switch e := &b.entries[i]; {
		case e.inexpressible != "":
		case e == changed:
			out = append(out, replacement...)
		default:
			out = append(out, e.Policies...)
		}
	}
	return out
}

// PoliciesJSON is the form in which policies are handed over.
func PoliciesJSON(all []vectors.Policy) ([]byte, error) {
	return json.MarshalIndent(struct {
		Policies []vectors.Policy `json:"policies"`
	}{all}, "", "  ")
}

// Bound returns a vector with the names that it has under the seed.
func (b *Plan) Bound(id string) *vectors.Webhook { return b.byID[id].Webhook }

// Len returns the number of vectors that a level has in a revision of the wire.
func (b *Plan) Len(l certify.CertificationLevel, w *wire.Revision) (n int) {
	return seq.Count(b.entries, func(e entry) bool { return e.level == l && e.inapplicable(w) == "" })
}

// uid returns the UID of the review of a question. It is derived from the plan, so that a judge knows it too.
func (b *Plan) uid(x Exchange) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "authzconf review %d %s %d %s", b.Seed, x.Vector, x.Step, x.Variant))
	text := hex.EncodeToString(sum[:16])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

// reason returns the name of a finding about the vector.
func (e *entry) reason() string { return path.Base(e.id) }
