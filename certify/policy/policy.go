// Package policy is the neutral policy of certification, as data: every grant of the scenarios and those of the
// probes, under names that are made of a seed, so that no two scenarios share an identity and no table of answers
// that was written for one seed passes with another.
//
// It is pure. What it says about a SubjectAccessReview is what an authorizer that has loaded it must say.
package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Version is that of the exported form.
const Version = "authzconf.dev/v1alpha1"

// Policy is the grants that a certified authorizer is given; all names in it are made from a seed.
//
// What none of them covers gets no opinion: the authorizers behind have to be asked.
type Policy struct {
	Seed int64 // what the names and the order were made of
	// Grants are in an order that depends on the seed. Order means nothing.
	Grants []scenarios.Grant
	Probe  Probe // the names that the grants of the probes are about

	byUser, byGroup map[string][]*scenarios.Grant
}

// Bound are the scenarios under the names that belong to a seed.
func Bound(all []*scenarios.Scenario, seed int64) []*scenarios.Scenario {
	out := make([]*scenarios.Scenario, len(all))
	for i, s := range all {
		out[i], _ = s.Bind(scenarios.Suffix(seed, "certify", s.ID))
	}
	return out
}

// New makes the policy of scenarios that Bound has named. Grants to identities that every cluster has, such as
// system:anonymous, are left out: they would collide, with one another and with what a vendor's cluster has.
func New(bound []*scenarios.Scenario, seed int64) *Policy {
	p := &Policy{Seed: seed, Probe: newProbe(seed)}
	for _, s := range bound {
		objects := slices.Concat(s.Manifests, s.Objects)
		for _, g := range slices.Concat(s.Grants, scenarios.RulesFromManifests(objects)) {
			if strings.Contains(g.Subject.User+g.Subject.Group, s.Suffix) {
				g.ID = ""
				p.Grants = append(p.Grants, g)
			}
		}
	}
	p.Grants = append(p.Grants, p.Probe.grants()...)
	for _, c := range Cases(seed) {
		p.Grants = append(p.Grants, c.Grants...)
	}
	p.Grants = seq.UniqueBy(p.Grants, func(g scenarios.Grant) string {
		raw, _ := json.Marshal(g) // strings alone
		return string(raw)
	})
	Random(seed, "policy").Shuffle(len(p.Grants), func(i, j int) { p.Grants[i], p.Grants[j] = p.Grants[j], p.Grants[i] })
	return p.Index()
}

// Random is a source that the seed alone decides, another one for each purpose.
func Random(seed int64, purpose string) *rand.Rand {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], uint64(seed))
	copy(key[8:], "authzconf certify "+purpose)
	return rand.New(rand.NewChaCha8(key))
}

// Index makes Decide fast, and has to be called after Grants was changed. It returns the policy.
func (p *Policy) Index() *Policy {
	p.byUser, p.byGroup = map[string][]*scenarios.Grant{}, map[string][]*scenarios.Grant{}
	for i := range p.Grants {
		g := &p.Grants[i]
		if g.Subject.User != "" {
			p.byUser[g.Subject.User] = append(p.byUser[g.Subject.User], g)
		} else {
			p.byGroup[g.Subject.Group] = append(p.byGroup[g.Subject.Group], g)
		}
	}
	return p
}

// Decide is what the policy says to a review.
func (p *Policy) Decide(spec authorizationv1.SubjectAccessReviewSpec) scenarios.Decision {
	covers := func(g *scenarios.Grant) bool { return g.Covers(spec) }
	if slices.ContainsFunc(p.byUser[spec.User], covers) {
		return scenarios.Allow
	}
	for _, group := range spec.Groups {
		if slices.ContainsFunc(p.byGroup[group], covers) {
			return scenarios.Allow
		}
	}
	return scenarios.NoOpinion
}

// Nearest is a grant that covers most of what a review asks; who asks counts more than what.
func (p *Policy) Nearest(s authorizationv1.SubjectAccessReviewSpec) (nearest scenarios.Grant, ok bool) {
	best := 0
	for i := range p.Grants {
		if score := nearness(&p.Grants[i], s); score > best {
			nearest, best = p.Grants[i], score
		}
	}
	return nearest, best >= 4
}

// points are how much a likeness counts.
func points(n int, fits bool) int {
	if fits {
		return n
	}
	return 0
}

// isLike reports whether what is asked is what is granted but for capitals and blanks.
func isLike(granted, asked string) bool {
	return granted != "" && strings.EqualFold(strings.TrimSpace(asked), granted)
}

// nearness returns how much of a review a grant covers, or nearly covers.
func nearness(g *scenarios.Grant, s authorizationv1.SubjectAccessReviewSpec) int {
	isCommon := strings.HasPrefix(g.Subject.Group, "system:") // nearly everybody is in it
	overlaps := strings.Contains(s.User, g.Subject.User) || strings.HasPrefix(g.Subject.User, s.User)
	score := points(8, !isCommon && g.Subject.Is(s.User, s.Groups)) + points(6, isLike(g.Subject.User, s.User)) + points(3, len(g.Subject.User) > 5 && overlaps)
	if a := s.ResourceAttributes; a != nil {
		full := scenarios.FullResource(a.Resource, a.Subresource)
		isVerb := slices.ContainsFunc(g.Verbs, func(v string) bool { return v == "*" || isLike(v, a.Verb) })
		isResource := slices.ContainsFunc(g.Resources, func(r string) bool { return r == "*" || isLike(r, full) })
		isGroup := slices.Contains(g.APIGroups, a.Group) || slices.Contains(g.APIGroups, "*")
		isNamespace := g.Namespace == a.Namespace || isLike(g.Namespace, a.Namespace)
		isName := slices.ContainsFunc(g.Names, func(n string) bool { return isLike(n, a.Name) })
		return score + points(2, isVerb) + points(2, isResource) + points(1, isGroup) + points(2, len(g.Resources) > 0 && isNamespace) + points(2, isName)
	}
	if a := s.NonResourceAttributes; a != nil {
		isPath := slices.ContainsFunc(g.NonResourceURLs, func(u string) bool { return isLike(u, a.Path) })
		score += points(2, isPath) + points(2, len(g.NonResourceURLs) > 0 && slices.Contains(g.Verbs, a.Verb))
	}
	return score
}

// Digest is the SHA-256, in hexadecimal, of the policy as JSON exports it.
func (p *Policy) Digest() string {
	raw, err := p.JSON()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

// Without is the policy without any grant to a user.
func (p *Policy) Without(users ...string) *Policy {
	out := *p
	out.Grants = slices.DeleteFunc(slices.Clone(p.Grants), func(g scenarios.Grant) bool {
		return slices.Contains(users, g.Subject.User)
	})
	return out.Index()
}

// Holder is a policy that can be replaced while it is asked.
type Holder struct{ atomic.Pointer[Policy] }

// NewHolder holds a policy.
func NewHolder(p *Policy) *Holder {
	h := &Holder{}
	h.Store(p)
	return h
}

// Decide is what the policy in force says.
func (h *Holder) Decide(spec authorizationv1.SubjectAccessReviewSpec) scenarios.Decision {
	return h.Load().Decide(spec)
}

// Formats are what Export knows.
func Formats() []string {
	return []string{"rbac", "json", "sar-table", "cedar", "cedar-k8s", "rego", "opa", "openfga"}
}

// folders are the files beside the policy, of the forms that are several files.
//
//go:embed folders
var folders embed.FS

// Export renders the policy. The same seed gives the same bytes. A form that is several files has them by their
// names; any other has one, without a name.
func (p *Policy) Export(format string) (map[string][]byte, error) {
	render := map[string]func() ([]byte, error){
		"rbac": p.RBAC, "json": p.JSON, "sar-table": p.Table, "cedar": p.Cedar, "rego": p.Rego, "opa": p.Rego, "openfga": p.OpenFGA,
	}[format]
	files := map[string][]byte{}
	var err error
	switch {
	case format == "cedar-k8s":
		files, err = p.CedarK8s()
	case render != nil:
		files[map[string]string{"opa": "policy.rego"}[format]], err = render()
	default:
		return nil, fmt.Errorf("%q is not a form of the policy (expected one of %s)", format, strings.Join(Formats(), ", "))
	}
	beside, _ := fs.Glob(folders, "folders/"+format+"/*") // fails for bad patterns only
	for _, name := range beside {
		raw, readErr := folders.ReadFile(name)
		files[path.Base(name)], err = append(raw, files[path.Base(name)]...), errors.Join(err, readErr)
	}
	return files, err
}

type document struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Seed       int64             `json:"seed"`
	Grants     []scenarios.Grant `json:"grants"`
}

const documentKind = "CertificationPolicy"

// JSON is the policy as grants.
func (p *Policy) JSON() ([]byte, error) {
	out, err := json.MarshalIndent(document{Version, documentKind, p.Seed, p.Grants}, "", "  ")
	return append(out, '\n'), err
}

// Parse reads a policy that JSON has written.
func Parse(raw []byte) (*Policy, error) {
	var read document
	lines := json.NewDecoder(bytes.NewReader(raw))
	lines.DisallowUnknownFields()
	switch err := lines.Decode(&read); {
	case err != nil:
		return nil, fmt.Errorf("it is not a policy in JSON: %w", err)
	case read.APIVersion != Version || read.Kind != documentKind:
		return nil, fmt.Errorf("it is not a %s of %s", documentKind, Version)
	}
	p := &Policy{Seed: read.Seed, Grants: read.Grants, Probe: newProbe(read.Seed)}
	return p.Index(), nil
}

// RBAC is the policy as roles and bindings, one of each for a grant, with the namespaces that they need.
func (p *Policy) RBAC() ([]byte, error) {
	var out bytes.Buffer
	namespaces := map[string]bool{"": true, "default": true, "kube-system": true, "kube-public": true} // which every cluster has
	for i, g := range p.Grants {
		var all []any
		if !namespaces[g.Namespace] {
			namespaces[g.Namespace] = true
			all = append(all, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": g.Namespace}})
		}
		s := &scenarios.Scenario{ID: "certify", Suffix: fmt.Sprintf("certify-%d-%d", p.Seed, i), Grants: []scenarios.Grant{g}}
		for _, o := range scenarios.RenderRBAC(s)[0].Objects() {
			all = append(all, o)
		}
		for _, o := range all {
			raw, err := yaml.Marshal(o)
			if err != nil {
				return nil, err
			}
			_, _ = fmt.Fprintf(&out, "---\n%s", raw)
		}
	}
	return out.Bytes(), nil
}

// plainWord is what a table can have as it is.
var plainWord = regexp.MustCompile(`^[!-&(-~]+$`)

// Table has one line for each thing that is granted, all combinations written out; "-" stands for what is empty, and
// what has blanks or other than ASCII characters is in quotes, as Go writes them. What is on no line gets no opinion.
func (p *Policy) Table() ([]byte, error) {
	var out bytes.Buffer
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(fields ...string) {
		for i := range fields {
			if fields[i] = cmp.Or(fields[i], "-"); !plainWord.MatchString(fields[i]) {
				fields[i] = strconv.QuoteToASCII(fields[i])
			}
		}
		_, _ = fmt.Fprintln(t, strings.Join(fields, "\t"))
	}
	row("USER", "GROUP", "VERB", "APIGROUP", "RESOURCE", "NAME", "NAMESPACE", "PATH")
	for _, g := range p.Grants {
		for _, part := range g.Parts() {
			var group, resource, name, namespace string
			if len(part.Resources) > 0 {
				group, resource, name, namespace = part.APIGroups[0], part.Resources[0], "(any)", cmp.Or(g.Namespace, "(any)")
			}
			if len(part.Names) > 0 {
				name = part.Names[0]
			}
			row(g.Subject.User, g.Subject.Group, part.Verbs[0], group, resource, name, namespace, strings.Join(part.NonResourceURLs, ""))
		}
	}
	err := t.Flush() // before out is looked at
	return out.Bytes(), err
}

//go:embed rules.rego
var regoRules string

// Rego is the policy as a module for Open Policy Agent 1.0 and later. Its input is the spec of a v1
// SubjectAccessReview; where data.authzconf.certification.allow is false there is no opinion.
func (p *Policy) Rego() ([]byte, error) {
	raw, err := json.MarshalIndent(map[string]any{"by_user": p.byUser, "by_group": p.byGroup}, "", "\t")
	// Rego takes no byte-order mark, not even within a string.
	return fmt.Appendf(nil, "# The policy of certification, seed %d.\n%s\ngrants := %s\n", p.Seed, regoRules, asciiJSON(raw)), err
}

func asciiJSON(raw []byte) string {
	var out strings.Builder
	for _, r := range string(raw) {
		if r < utf8.RuneSelf {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			_, _ = fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}
