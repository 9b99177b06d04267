// Package wire has the revisions of KEP-5681's wire: how a SubjectAccessReview carries conditions, and how an
// AuthorizationConditionsReview asks about them. A Revision is what one public text says. Each is a codec around
// the types of drafts/conditional/vectors, which can say all that any revision says, with rules of its own.
//
// Another revision is another codec with its row in Revisions, and fails at what it cannot say; Cannot tells of a vector.
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/internal/seq"
)

// What reviews call themselves. The KEP writes AuthorizationConditionsReview as authorization.k8s.io/v1alpha1.
const (
	AccessVersion     = "authorization.k8s.io/v1"
	AccessKind        = "SubjectAccessReview"
	ConditionsVersion = "authorization.k8s.io/v1alpha1"
	ConditionsKind    = "AuthorizationConditionsReview"
)

// Revision is the wire as one text of the KEP has it.
type Revision struct {
	// Name is what flags and reports call it, Text which text it is.
	Name, Text string
	Rules      vectors.Rules // those of answers
	// marks are fields of a status, or of what is in it, that no other revision has.
	marks []string

	status   form[vectors.SubjectAccessReviewStatus]
	request  form[vectors.AuthorizationConditionsRequest]
	response form[vectors.AuthorizationConditionsResponse]
}

// Revisions are all, the oldest first.
func Revisions() []*Revision { return []*Revision{Seed, Merged} }

// Named is a revision by its name.
func Named(name string) (*Revision, error) {
	var names []string
	for _, r := range Revisions() {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return nil, fmt.Errorf("%q is not a revision of the wire (expected one of %s)", name, strings.Join(names, ", "))
}

// Told are the revisions in whose form an answer to a SubjectAccessReview is: none of a concrete one, which is the
// same in all, and more than one of an answer that mixes them.
func Told(answer []byte) []*Revision {
	var in struct{ Status any }
	if json.Unmarshal(answer, &in) != nil {
		return nil
	}
	return seq.Filter(Revisions(), func(r *Revision) bool { return marked(in.Status, r.marks) })
}

func marked(value any, marks []string) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return marked(one, marks) })
	case map[string]any:
		for name, one := range v {
			if slices.Contains(marks, name) || marked(one, marks) {
				return true
			}
		}
	}
	return false
}

// Inexpressible says what a revision has no way to say.
type Inexpressible struct{ Revision, What string }

func (e *Inexpressible) Error() string {
	return fmt.Sprintf("the wire of revision %s cannot say it: %s", e.Revision, e.What)
}

// form is how one part of a review is written and read.
type form[T any] struct {
	write func(T) (any, error)
	read  func([]byte) (T, error)
}

// shaped is a form that goes by way of a Go type with the JSON of the revision.
func shaped[T, W any](write func(T) (W, error), read func(W) (T, error)) form[T] {
	return form[T]{
		write: func(t T) (any, error) { return write(t) },
		read: func(raw []byte) (t T, err error) {
			var w W
			if err := json.Unmarshal(raw, &w); err != nil {
				return t, errors.New("the body is not a review in JSON")
			}
			return read(w)
		},
	}
}

func same[T any](t T) (T, error) { return t, nil }

// spec is the same in every revision so far.
var spec = shaped(same[vectors.SubjectAccessReviewSpec], same[vectors.SubjectAccessReviewSpec])

func write[T any](version, kind, field string, f form[T], t T) ([]byte, error) {
	body, err := f.write(t)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"apiVersion": version, "kind": kind, field: body})
}

// read reads one part of a review; there is false if it has none.
func read[T any](body []byte, version, kind, field string, f form[T]) (t T, there bool, err error) {
	var in map[string]json.RawMessage
	var head struct{ APIVersion, Kind string }
	if json.Unmarshal(body, &in) != nil || json.Unmarshal(body, &head) != nil {
		return t, false, errors.New("the body is not a review in JSON")
	}
	if head.Kind != kind || head.APIVersion != version {
		return t, false, fmt.Errorf("it is not of kind %s of %s", kind, version)
	}
	if raw := in[field]; len(raw) > 0 && string(raw) != "null" {
		t, err = f.read(raw)
		return t, err == nil, err
	}
	return t, false, nil
}

// AskAccess is the review that asks.
func (*Revision) AskAccess(s vectors.SubjectAccessReviewSpec) ([]byte, error) {
	return write(AccessVersion, AccessKind, "spec", spec, s)
}

// DecodeAccess reads what is asked. Fields that it does not know pass: a newer API server may send them. A mode that
// it does not know is None: who asks for what nobody knows cannot be relied on to evaluate it.
func (*Revision) DecodeAccess(body []byte) (vectors.SubjectAccessReviewSpec, error) {
	s, _, err := read(body, AccessVersion, AccessKind, "spec", spec)
	switch {
	case err != nil:
		return s, err
	case s.User == "" && len(s.Groups) == 0:
		return s, errors.New("the spec has neither user nor groups")
	case (s.ResourceAttributes == nil) == (s.NonResourceAttributes == nil):
		return s, errors.New("the spec must have one of resourceAttributes and nonResourceAttributes")
	}
	if m := s.Mode(); m != vectors.HumanReadable && m != vectors.Optimized {
		s.ConditionalAuthorization = nil
	}
	return s, nil
}

// AnswerAccess is the review that carries a status.
func (r *Revision) AnswerAccess(s vectors.SubjectAccessReviewStatus) ([]byte, error) {
	return write(AccessVersion, AccessKind, "status", r.status, s)
}

// ReadAccess reads the answer.
func (r *Revision) ReadAccess(body []byte) (*vectors.SubjectAccessReviewStatus, error) {
	s, _, err := read(body, AccessVersion, AccessKind, "status", r.status)
	return &s, err
}

// AskConditions is the review that sends conditions back.
func (r *Revision) AskConditions(q vectors.AuthorizationConditionsRequest) ([]byte, error) {
	return write(ConditionsVersion, ConditionsKind, "request", r.request, q)
}

// DecodeConditions reads the conditions that were sent back.
func (r *Revision) DecodeConditions(body []byte) (*vectors.AuthorizationConditionsRequest, error) {
	q, _, err := read(body, ConditionsVersion, ConditionsKind, "request", r.request)
	if err == nil && len(q.ConditionSets) == 0 {
		err = fmt.Errorf("the review has no %s", r.Rules.Sent)
	}
	return &q, err
}

// AnswerConditions is the review that carries a response.
func (r *Revision) AnswerConditions(a vectors.AuthorizationConditionsResponse) ([]byte, error) {
	return write(ConditionsVersion, ConditionsKind, "response", r.response, a)
}

// ReadConditions reads the response, nil if there is none.
func (r *Revision) ReadConditions(body []byte) (*vectors.AuthorizationConditionsResponse, error) {
	a, there, err := read(body, ConditionsVersion, ConditionsKind, "response", r.response)
	if !there {
		return nil, err
	}
	return &a, nil
}

// Cannot says why a vector is not applicable to the revision: what an authorizer answers in it, or is told, that the
// revision cannot say. It is empty for all others.
func (r *Revision) Cannot(v *vectors.Vector) string {
	var chain []vectors.Authorizer
	if v.APIServer != nil {
		chain = slices.Concat(v.APIServer.Chain, v.APIServer.Compound)
	}
	for i := range chain {
		var cannot *Inexpressible
		if _, err := r.status.write(chain[i].Answer()); errors.As(err, &cannot) {
			return cannot.What
		}
	}
	return ""
}

// Seed is the text of 4 February 2026, a week before it was merged: conditionsChain is a list of sets, and every
// condition has a type. The types of drafts/conditional/vectors have its JSON.
var Seed = &Revision{
	Name:  "seed",
	Text:  "KEP-5681 as of 4 February 2026",
	Rules: vectors.Rules{Chain: "conditionsChain", Sent: "conditionSets", Condition: 1024, Conditions: vectors.MaxConditions, Depth: 1},
	marks: []string{"conditionsChain", "type"},
	status: shaped(func(s vectors.SubjectAccessReviewStatus) (vectors.SubjectAccessReviewStatus, error) {
		return s, flat(s.ConditionsChain)
	}, same),
	request: shaped(func(q vectors.AuthorizationConditionsRequest) (vectors.AuthorizationConditionsRequest, error) {
		return q, flat(q.ConditionSets)
	}, same),
	response: shaped(func(a vectors.AuthorizationConditionsResponse) (vectors.AuthorizationConditionsResponse, error) {
		if a.ConditionsChain != nil {
			return a, &Inexpressible{"seed", "conditions that evaluate to conditions"}
		}
		return a, nil
	}, func(a vectors.AuthorizationConditionsResponse) (vectors.AuthorizationConditionsResponse, error) {
		a.ConditionsChain = nil // the response has no such field
		return a, nil
	}),
}

// flat is an error for a set of sets.
func flat(chain []vectors.ConditionSet) error {
	if slices.ContainsFunc(chain, func(s vectors.ConditionSet) bool { return s.ConditionsChain != nil }) {
		return &Inexpressible{"seed", "a set of sets"}
	}
	return nil
}

// Merged is the text in kubernetes/enhancements: a conditionSetChain can be nested, a set has one conditionsType for
// all of its conditions, and conditions can evaluate to conditions. (Its Go sketch gives ConditionsType the JSON name
// of the authorizer; its examples have conditionsType. They also write spec and status where the sketch of
// AuthorizationConditionsReview has request and response, which are taken here.)
//
// How deep sets may be nested no text says: the limit is ours.
var Merged = &Revision{
	Name:   "merged",
	Text:   "KEP-5681 as merged into kubernetes/enhancements, commit a2589d2322b2",
	Rules:  vectors.Rules{Chain: "conditionSetChain", Sent: "conditionSetChain", Condition: 1024, Conditions: vectors.MaxConditions, Depth: 16},
	marks:  []string{"conditionSetChain", "conditionsType"},
	status: mergedAnswer, response: mergedAnswer,
	request: shaped(func(q vectors.AuthorizationConditionsRequest) (mergedRequest, error) {
		chain, err := toMerged(q.ConditionSets)
		return mergedRequest{chain, q.ConditionData}, err
	}, func(w mergedRequest) (vectors.AuthorizationConditionsRequest, error) {
		chain, err := fromMerged(w.ConditionSetChain)
		return vectors.AuthorizationConditionsRequest{ConditionSets: chain, ConditionData: w.ConditionData}, err
	}),
}

// mergedAnswer is the form of a status, and of a response, which have the same fields.
var mergedAnswer = shaped(func(s vectors.SubjectAccessReviewStatus) (mergedStatus, error) {
	chain, err := toMerged(s.ConditionsChain)
	return mergedStatus{s.Allowed, s.Denied, s.Reason, s.EvaluationError, chain}, err
}, func(w mergedStatus) (vectors.SubjectAccessReviewStatus, error) {
	chain, err := fromMerged(w.ConditionSetChain)
	return vectors.SubjectAccessReviewStatus{Allowed: w.Allowed, Denied: w.Denied, Reason: w.Reason, EvaluationError: w.EvaluationError, ConditionsChain: chain}, err
})

type mergedStatus struct {
	Allowed           bool        `json:"allowed"`
	Denied            bool        `json:"denied,omitempty"`
	Reason            string      `json:"reason,omitempty"`
	EvaluationError   string      `json:"evaluationError,omitempty"`
	ConditionSetChain []mergedSet `json:"conditionSetChain,omitempty"`
}

type mergedRequest struct {
	ConditionSetChain     []mergedSet `json:"conditionSetChain,omitempty"`
	vectors.ConditionData `json:",inline"`
}

type mergedSet struct {
	Allowed           bool                `json:"allowed,omitempty"`
	Denied            bool                `json:"denied,omitempty"`
	FailureMode       vectors.FailureMode `json:"failureMode,omitempty"`
	AuthorizerName    string              `json:"authorizerName"`
	ConditionsType    string              `json:"conditionsType,omitempty"`
	Conditions        []mergedCondition   `json:"conditions,omitempty"`
	ConditionSetChain []mergedSet         `json:"conditionSetChain,omitempty"`
}

type mergedCondition struct {
	ID          string           `json:"id"`
	Effect      vectors.Decision `json:"effect"`
	Condition   string           `json:"condition"`
	Description string           `json:"description,omitempty"`
}

func toMerged(chain []vectors.ConditionSet) (out []mergedSet, err error) {
	for _, s := range chain {
		w := mergedSet{Allowed: s.Allowed, Denied: s.Denied, FailureMode: s.FailureMode, AuthorizerName: s.AuthorizerName}
		for i, c := range s.Conditions {
			if i > 0 && c.Type != w.ConditionsType {
				return nil, &Inexpressible{"merged", "conditions of several types in one set"}
			}
			w.ConditionsType = c.Type
			w.Conditions = append(w.Conditions, mergedCondition{c.ID, c.Effect, c.Condition, c.Description})
		}
		if w.ConditionSetChain, err = toMerged(s.ConditionsChain); err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

func fromMerged(chain []mergedSet) (out []vectors.ConditionSet, err error) {
	if chain != nil {
		out = []vectors.ConditionSet{}
	}
	for _, w := range chain {
		if w.ConditionsType != "" && len(w.Conditions) == 0 {
			return nil, fmt.Errorf("the set of %.80q has a conditionsType and no conditions", w.AuthorizerName)
		}
		s := vectors.ConditionSet{Allowed: w.Allowed, Denied: w.Denied, FailureMode: w.FailureMode, AuthorizerName: w.AuthorizerName}
		for _, c := range w.Conditions {
			s.Conditions = append(s.Conditions, vectors.Condition{ID: c.ID, Effect: c.Effect, Type: w.ConditionsType, Condition: c.Condition, Description: c.Description})
		}
		if s.ConditionsChain, err = fromMerged(w.ConditionSetChain); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
