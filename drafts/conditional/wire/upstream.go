package wire

import (
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/internal/seq"
)

// Upstream is the API that kubernetes/kubernetes#137633 proposes, with its types of July 2026 (commit cce400c33ab0 of
// 20 July) and the rules of later commits. A client lists the types of decisions that it can handle. A status has one
// conditional decision, which may be a union of decisions with names. An AuthorizationConditionsReview has that
// decision and an AdmissionRequest.
//
// The API does not limit how deep unions may be nested: the limit is ours.
var Upstream = &Revision{
	Name: "upstream",
	Text: "kubernetes/kubernetes#137633 as of November 2026",
	CEL:  "authorizer.kubernetes.io/cel",
	Rules: vectors.Rules{
		Chain: "conditionalDecision", Sent: "decision", Condition: 10240, Conditions: vectors.MaxConditions, Depth: 16,
		Description: 1024, Qualified: true, Optional: true, Union: true,
	},
	marks: []string{"conditionalDecision"},
	spec:  shaped(toUpstreamSpec, fromUpstreamSpec),
	status: shaped(func(s vectors.SubjectAccessReviewStatus) (upstreamStatus, error) {
		d, err := toDecision(s.ConditionsChain)
		return upstreamStatus{plainStatusOf(s), d}, err
	}, func(w upstreamStatus) (vectors.SubjectAccessReviewStatus, error) {
		chain, err := w.ConditionalDecision.chain()
		return w.withConditions(chain), err
	}),
	request:  shaped(toUpstreamRequest, fromUpstreamRequest),
	response: shaped(toUpstreamResponse, fromUpstreamResponse),
}

// The types of conditional decisions.
const (
	typeMap   = "ConditionsMap"
	typeUnion = "Union"
)

// unconditional are the types that every client handles. conditional are the types that a client of conditions handles
// in addition.
var (
	unconditional = []string{string(vectors.Allow), string(vectors.Deny), string(vectors.NoOpinion)}
	conditional   = []string{typeMap, typeUnion}
)

type upstreamSpec struct {
	authorizationv1.SubjectAccessReviewSpec `json:",inline"`
	AuthorizationOptions                    *upstreamOptions `json:"authorizationOptions,omitempty"`
}

type upstreamOptions struct {
	HandledDecisionTypes []string `json:"handledDecisionTypes"`
}

// toUpstreamSpec writes a spec. In this revision a client cannot choose the form of conditions.
func toUpstreamSpec(s vectors.SubjectAccessReviewSpec) (upstreamSpec, error) {
	out := upstreamSpec{SubjectAccessReviewSpec: s.SubjectAccessReviewSpec}
	if s.Mode() != vectors.None {
		out.AuthorizationOptions = &upstreamOptions{slices.Concat(unconditional, conditional)}
	}
	return out, nil
}

// fromUpstreamSpec reads a spec. Unknown types of decisions are ignored.
func fromUpstreamSpec(w upstreamSpec) (vectors.SubjectAccessReviewSpec, error) {
	out := vectors.SubjectAccessReviewSpec{SubjectAccessReviewSpec: w.SubjectAccessReviewSpec}
	if w.AuthorizationOptions == nil {
		return out, nil
	}
	handles := func(all []string) bool {
		return !slices.ContainsFunc(all, func(one string) bool { return !slices.Contains(w.AuthorizationOptions.HandledDecisionTypes, one) })
	}
	if !handles(unconditional) {
		return out, errors.New("handledDecisionTypes must have Allow, Deny and NoOpinion")
	}
	if handles(conditional) {
		out.ConditionalAuthorization = &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.HumanReadable}
	}
	return out, nil
}

type upstreamStatus struct {
	plainStatus
	ConditionalDecision *decision `json:"conditionalDecision,omitempty"`
}

type upstreamRequest struct {
	Decision         *decision                     `json:"decision"`
	AdmissionRequest *admissionv1.AdmissionRequest `json:"admissionRequest,omitempty"`
}

func toUpstreamRequest(q vectors.AuthorizationConditionsRequest) (w upstreamRequest, err error) {
	if w.Decision, err = toDecision(q.ConditionSets); err != nil {
		return w, err
	}
	w.AdmissionRequest, err = toAdmission(q)
	return w, err
}

func fromUpstreamRequest(w upstreamRequest) (q vectors.AuthorizationConditionsRequest, err error) {
	if q.ConditionSets, err = w.Decision.chain(); err != nil || len(q.ConditionSets) == 0 {
		return q, err
	}
	if w.AdmissionRequest == nil || w.AdmissionRequest.UID == "" {
		return q, errors.New("the review has no admissionRequest with a uid")
	}
	q.UID = string(w.AdmissionRequest.UID)
	q.ConditionData, err = fromAdmission(w.AdmissionRequest)
	return q, err
}

type upstreamResponse struct {
	UID      string    `json:"uid"`
	Decision *decision `json:"decision"`
}

// toUpstreamResponse writes a response. Its decision is concrete.
func toUpstreamResponse(a reply) (w upstreamResponse, err error) {
	if a.ConditionsChain != nil {
		return w, &Inexpressible{"upstream", "conditions that evaluate to conditions"}
	}
	set := vectors.ConditionSet{Allowed: a.Allowed, Denied: a.Denied}
	if w.Decision, err = newDecision(set); err != nil {
		return w, err
	}
	w.UID = a.uid
	w.Decision.explain(unconditionalDecision{a.Reason, a.EvaluationError})
	return w, nil
}

// fromUpstreamResponse reads a response. A response that is still conditional is read as conditional: the caller has to
// refuse it.
func fromUpstreamResponse(w upstreamResponse) (a reply, err error) {
	a.uid = w.UID
	if w.Decision == nil {
		return a, errors.New("the response has no decision")
	}
	chain, err := w.Decision.chain()
	if err != nil {
		return a, err
	}
	if isConditional := slices.Contains(conditional, w.Decision.Type); isConditional {
		a.ConditionsChain = chain
		return a, nil
	}
	a.Allowed, a.Denied = chain[0].Allowed, chain[0].Denied
	if member := w.Decision.member(); member != nil {
		a.Reason, a.EvaluationError = member.Reason, member.EvaluationError
	}
	return a, nil
}

// decision is the decision of one authorizer. Exactly the member that Type names is set.
type decision struct {
	Type          string                 `json:"type"`
	Deny          *unconditionalDecision `json:"deny,omitempty"`
	NoOpinion     *unconditionalDecision `json:"noOpinion,omitempty"`
	Allow         *unconditionalDecision `json:"allow,omitempty"`
	ConditionsMap *conditionsMap         `json:"conditionsMap,omitempty"`
	Union         []namedDecision        `json:"union,omitempty"`
}

type unconditionalDecision struct {
	Reason          string `json:"reason,omitempty"`
	EvaluationError string `json:"evaluationError,omitempty"`
}

type namedDecision struct {
	AuthorizerName string    `json:"authorizerName"`
	Decision       *decision `json:"decision"`
}

// conditionsMap has the conditions by their effect.
type conditionsMap struct {
	DenyConditions      []upstreamCondition `json:"denyConditions,omitempty"`
	NoOpinionConditions []upstreamCondition `json:"noOpinionConditions,omitempty"`
	AllowConditions     []upstreamCondition `json:"allowConditions,omitempty"`
}

type upstreamCondition struct {
	ID          string `json:"id"`
	Condition   string `json:"condition,omitempty"`
	Type        string `json:"type,omitempty"`
	Description string `json:"description,omitempty"`
}

// toDecision writes a chain. One set without a name becomes a decision by itself, and every other chain becomes a
// union.
func toDecision(chain []vectors.ConditionSet) (*decision, error) {
	switch {
	case chain == nil:
		return nil, nil
	case len(chain) == 1 && chain[0].AuthorizerName == "":
		return newDecision(chain[0])
	}
	d := &decision{Type: typeUnion}
	for _, set := range chain {
		inner, err := newDecision(set)
		if err != nil {
			return nil, err
		}
		d.Union = append(d.Union, namedDecision{set.AuthorizerName, inner})
	}
	return d, nil
}

// newDecision writes the decision of a set.
func newDecision(s vectors.ConditionSet) (*decision, error) {
	if s.FailureMode == vectors.FailNoOpinion {
		return nil, &Inexpressible{"upstream", "a failure mode"}
	}
	kinds := seq.Count([]bool{s.Allowed, s.Denied, s.Conditions != nil, s.ConditionsChain != nil}, func(is bool) bool { return is })
	if kinds > 1 {
		return nil, &Inexpressible{"upstream", "a set that is of two kinds"}
	}
	switch {
	case s.ConditionsChain != nil:
		return toDecision(s.ConditionsChain)
	case s.Conditions != nil:
		conditions, err := newConditionsMap(s.Conditions)
		return &decision{Type: typeMap, ConditionsMap: conditions}, err
	case s.Denied:
		return &decision{Type: string(vectors.Deny), Deny: &unconditionalDecision{}}, nil
	case s.Allowed:
		return &decision{Type: string(vectors.Allow), Allow: &unconditionalDecision{}}, nil
	}
	return &decision{Type: string(vectors.NoOpinion), NoOpinion: &unconditionalDecision{}}, nil
}

func newConditionsMap(all []vectors.Condition) (*conditionsMap, error) {
	m := &conditionsMap{}
	into := map[vectors.Decision]*[]upstreamCondition{
		vectors.Deny: &m.DenyConditions, vectors.NoOpinion: &m.NoOpinionConditions, vectors.Allow: &m.AllowConditions,
	}
	for _, c := range all {
		list := into[c.Effect]
		if list == nil {
			return nil, &Inexpressible{"upstream", "an effect of its own"}
		}
		*list = append(*list, upstreamCondition{c.ID, c.Condition, c.Type, c.Description})
	}
	return m, nil
}

// member returns the member of an unconditional decision. It is nil if the decision is conditional or the member is
// missing.
func (d *decision) member() *unconditionalDecision {
	switch vectors.Decision(d.Type) {
	case vectors.Deny:
		return d.Deny
	case vectors.NoOpinion:
		return d.NoOpinion
	case vectors.Allow:
		return d.Allow
	}
	return nil
}

// explain adds reason and error to an unconditional decision.
func (d *decision) explain(why unconditionalDecision) {
	if member := d.member(); member != nil {
		*member = why
	}
}

// validate checks that the member of the type is there, and no other.
func (d *decision) validate() error {
	members := map[string]bool{
		string(vectors.Deny): d.Deny != nil, string(vectors.NoOpinion): d.NoOpinion != nil, string(vectors.Allow): d.Allow != nil,
		typeMap: d.ConditionsMap != nil, typeUnion: len(d.Union) > 0,
	}
	isThere, isKnown := members[d.Type]
	if !isKnown {
		return fmt.Errorf("the type %.80q is none of Deny, NoOpinion, Allow, ConditionsMap and Union", d.Type)
	}
	if !isThere {
		return fmt.Errorf("a decision of the type %s has no member of that name", d.Type)
	}
	for _, other := range slices.Concat(unconditional, conditional) {
		if other != d.Type && members[other] {
			return fmt.Errorf("a decision of the type %s has a member of the type %s", d.Type, other)
		}
	}
	return nil
}

// chain reads a decision. A union becomes its sets, and any other decision becomes one set without a name.
func (d *decision) chain() ([]vectors.ConditionSet, error) {
	if d == nil {
		return nil, nil
	}
	set, err := d.set("")
	if err != nil {
		return nil, err
	}
	if set.ConditionsChain != nil {
		return set.ConditionsChain, nil
	}
	return []vectors.ConditionSet{set}, nil
}

// set reads the decision of an authorizer.
func (d *decision) set(name string) (s vectors.ConditionSet, err error) {
	if d == nil {
		return s, errors.New("a union has an authorizer without a decision")
	}
	if err := d.validate(); err != nil {
		return s, err
	}
	s.AuthorizerName, s.Allowed, s.Denied = name, d.Allow != nil, d.Deny != nil
	if d.ConditionsMap != nil {
		s.Conditions = d.ConditionsMap.all()
	}
	for _, one := range d.Union {
		if one.AuthorizerName == "" {
			return s, errors.New("a union has a decision without an authorizerName")
		}
		inner, err := one.Decision.set(one.AuthorizerName)
		if err != nil {
			return s, err
		}
		s.ConditionsChain = append(s.ConditionsChain, inner)
	}
	return s, nil
}

// all returns the conditions with their effects, the strongest first.
func (m *conditionsMap) all() []vectors.Condition {
	out := []vectors.Condition{}
	add := func(effect vectors.Decision, list []upstreamCondition) {
		for _, c := range list {
			out = append(out, vectors.Condition{ID: c.ID, Effect: effect, Type: c.Type, Condition: c.Condition, Description: c.Description})
		}
	}
	add(vectors.Deny, m.DenyConditions)
	add(vectors.NoOpinion, m.NoOpinionConditions)
	add(vectors.Allow, m.AllowConditions)
	return out
}
