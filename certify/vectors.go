// Package certify judges an authorizer's webhook without a cluster: it asks what API servers would ask, and more
// that no right authorizer allows, and compares every answer with what the neutral policy says.
package certify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// CertificationLevel is what an authorizer can reach.
type CertificationLevel string

// The levels that direct mode grants. Each is granted by itself.
const (
	// Core is about the decisions that API servers ask for today.
	Core CertificationLevel = "core"
	// NoOvergrant is about what must never be allowed by mistake.
	NoOvergrant CertificationLevel = "no-overgrant"
	// Robust is about faults, size, concurrency and time.
	Robust CertificationLevel = "robust"
)

// Levels are all levels of direct mode, in order.
func Levels() []CertificationLevel { return []CertificationLevel{Core, NoOvergrant, Robust} }

type spec = authorizationv1.SubjectAccessReviewSpec

// Form is how a review is written.
type Form string

// The forms. Without one a review is v1, as client-go writes it.
const (
	v1beta1       Form = "v1beta1"
	unknownFields Form = "unknown-fields"
	reversed      Form = "extras-reversed"
	literal       Form = "literal" // a body that is sent as it stands
)

// Question is one review with the decision that the policy gives.
type Question struct {
	// ID names the vector within a seed.
	ID     string
	Level  CertificationLevel
	Form   Form
	Spec   spec
	Body   []byte // sent in form literal, with Method if that is not POST
	Method string
	Expect scenarios.Decision // the decision of the policy; empty if the request must be refused
	// Reason is what a wrong decision is called; Blame what a failure is called that might have another cause.
	Reason, Blame string
	// Base is the vector that this one repeats in other circumstances. If that is answered wrongly, this says nothing new.
	Base string
}

// Plan is all that is asked under one seed, and the policy it is judged by.
type Plan struct {
	Policy *policy.Policy
	// Scenario are the reviews of the scenarios, Probes those of the probes: both are parts of all, of which there is one
	// copy, because they are tens of thousands.
	Scenario, Probes []Question
	Digest           string // that of all vectors

	// atOnce and after are concurrent and drifting, or less in tests.
	atOnce, after int
	all           []Question
	byID          map[string]int        // where in all
	scenarios     []*scenarios.Scenario // those that the plan was made of, under their own names
	// cell is the API server that checks in a cluster are for, checks those checks.
	cell   verdicts.Cell
	checks map[string]clusterCheck
}

// Sample is a plan with every nth question about decisions, and less that is asked again, for what is wrong with every
// answer, or right in all. What has one of the reasons is in it as well.
func (b *Plan) Sample(n int, reasons ...string) *Plan {
	out := *b
	out.atOnce, out.after = 200, 500
	few := func(all []Question) (kept []Question) {
		for i, v := range all {
			if i%n == 0 || v.Level == Robust || slices.Contains(reasons, v.Reason) || slices.Contains(reasons, v.Blame) {
				kept = append(kept, v)
			}
		}
		return kept
	}
	out.hold(few(b.Scenario), few(b.Probes))
	return &out
}

// NewPlan makes the plan of a seed.
func NewPlan(set *scenarios.Set, seed int64) (*Plan, error) { return newPlan(set.All(), seed) }

func newPlan(all []*scenarios.Scenario, seed int64) (*Plan, error) {
	bound := policy.Bound(all, seed)
	b := &Plan{Policy: policy.New(bound, seed), atOnce: concurrent, after: drifting, scenarios: all}
	specs, from, err := reviews(bound)
	if err != nil {
		return nil, err
	}
	var seen []Question
	for i, s := range specs {
		v := Question{ID: fmt.Sprintf("scenario/%s#%d", from[i], i), Level: Core, Spec: s, Expect: b.Policy.Decide(s), Reason: "does-not-allow-what-is-granted"}
		if v.Expect != scenarios.Allow {
			v.Reason = "allows-what-is-not-granted"
		}
		seen = append(seen, v)
	}
	related := b.relations()
	b.Scenario = seen
	b.hold(seen, related, b.special(), b.incomplete(), b.derived(), b.alike(), b.repeated(related), b.robust())
	return b, b.seal()
}

// reviews are those that webhooks get in the scenarios, each once, and the scenario that sends it first.
func reviews(bound []*scenarios.Scenario) (specs []spec, from []string, err error) {
	seen := map[string]bool{}
	for _, s := range bound {
		for _, version := range oracle.Versions() {
			for _, gate := range []scenarios.Gate{scenarios.GateOff, scenarios.GateOn} {
				f := scenarios.Facts{Kubernetes: version, Binary: version, Gate: gate, Chain: s.Requires.Chain, Capabilities: scenarios.AllCapabilities()}
				if ok, _, _ := s.Selected(f); !ok || gate == scenarios.GateOn && version < "1.35" {
					continue
				}
				played, err := oracle.Play(s, f, fixtures.FS)
				if err != nil {
					return nil, nil, fmt.Errorf("%s: %w", s.ID, err)
				}
				for _, r := range asked(played) {
					raw, err := json.Marshal(r)
					if err != nil {
						return nil, nil, fmt.Errorf("%s: %w", s.ID, err)
					}
					if !seen[string(raw)] {
						seen[string(raw)] = true
						// As it arrives: JSON has no bytes that are not UTF-8.
						var arrives spec
						if err := json.Unmarshal(raw, &arrives); err != nil {
							return nil, nil, fmt.Errorf("%s: %w", s.ID, err)
						}
						specs, from = append(specs, arrives), append(from, s.ID)
					}
				}
			}
		}
	}
	return specs, from, nil
}

// asked are the reviews of a scenario that webhooks see.
func asked(played []oracle.Played) (out []spec) {
	for _, p := range played {
		for _, segment := range p.Prediction.Segments {
			for _, run := range segment.Runs {
				for _, r := range run {
					if !r.Hidden {
						out = append(out, r.Spec)
					}
				}
			}
		}
	}
	return out
}

// Suite is the digest of all that is asked.
func (b *Plan) Suite() string { return b.Digest }

// All are the vectors of the plan.
func (b *Plan) All() []Question { return b.all }

// hold takes the reviews of the scenarios, and the probes.
func (b *Plan) hold(seen []Question, probes ...[]Question) {
	b.all, b.byID = slices.Concat(append([][]Question{seen}, probes...)...), map[string]int{}
	b.Scenario, b.Probes = b.all[:len(seen):len(seen)], b.all[len(seen):]
	for i := range b.all {
		b.byID[b.all[i].ID] = i
	}
}

func (b *Plan) vector(id string) (v Question, known bool) {
	i, known := b.byID[id]
	if known {
		v = b.all[i]
	}
	return v, known
}

// seal computes the digest and checks that each vector agrees with the policy, or it would be an alarm about everybody.
func (b *Plan) seal() error {
	h := sha256.New()
	for i, v := range b.all {
		if b.byID[v.ID] != i {
			return fmt.Errorf("there are two vectors %s", v.ID)
		}
		if d := b.Policy.Decide(v.Spec); v.Expect != "" && d != v.Expect {
			return fmt.Errorf("vector %s expects %s, and the policy says %s", v.ID, v.Expect, d)
		}
		body, err := v.body()
		if err != nil {
			return fmt.Errorf("vector %s: %w", v.ID, err)
		}
		_, _ = fmt.Fprintf(h, "%s %s %s %s %s %d\n", v.ID, v.Level, v.Expect, v.Reason, v.Blame, len(body))
		_, _ = h.Write(body)
	}
	b.Digest = hex.EncodeToString(h.Sum(nil))
	return nil
}

func (v Question) apiVersion() string {
	if v.Form == v1beta1 {
		return reference.V1beta1
	}
	return reference.V1
}

func (v Question) body() ([]byte, error) {
	if v.Form == literal {
		return v.Body, nil
	}
	types := metav1.TypeMeta{APIVersion: v.apiVersion(), Kind: reference.Kind}
	raw, err := json.Marshal(authorizationv1.SubjectAccessReview{TypeMeta: types, Spec: v.Spec})
	switch {
	case err != nil:
		return nil, err
	case v.Form == v1beta1:
		// The only difference, and the metadata as older servers write it. Within a string the quotes would be escaped.
		raw = bytes.Replace(raw, []byte(`"metadata":{}`), []byte(`"metadata":{"creationTimestamp":null}`), 1)
		return bytes.Replace(raw, []byte(`"groups":[`), []byte(`"group":[`), 1), nil
	case v.Form == reversed:
		return reverseExtra(raw, v.Spec.Extra)
	case v.Form == unknownFields:
		// What a server with KEP-5681 or a later one might add.
		raw = bytes.Replace(raw, []byte(`"spec":{`), []byte(`"spec":{"aFieldOfTomorrow":{"deep":[1,null,"x"]},`), 1)
		raw = bytes.Replace(raw, []byte(`esourceAttributes":{`), []byte(`esourceAttributes":{"anAttributeOfTomorrow":["y"],`), 1)
		return bytes.Replace(raw, []byte(`{`), []byte(`{"anotherField":true,`), 1), nil
	}
	return raw, nil
}

// reverseExtra writes the keys of extra in the reverse order. encoding/json sorts them.
func reverseExtra(raw []byte, extra map[string]authorizationv1.ExtraValue) ([]byte, error) {
	sorted, err := json.Marshal(extra)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, k := range slices.Backward(slices.Sorted(maps.Keys(extra))) {
		values, err := json.Marshal(extra[k])
		if err != nil {
			return nil, err
		}
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		_, _ = fmt.Fprintf(&out, "%q:%s", k, values)
	}
	return bytes.Replace(raw, sorted, []byte("{"+out.String()+"}"), 1), nil
}
