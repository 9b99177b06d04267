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

// Revisions returns all, the oldest first.
func Revisions() []*Revision { return []*Revision{Seed, Merged} }

// Named returns a revision by its name.
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

// Told returns the revisions in whose form an answer to a SubjectAccessReview is: none of a concrete one, which is the
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

// AskAccess returns the review that asks.
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

// AnswerAccess returns the review that carries a status.
func (r *Revision) AnswerAccess(s vectors.SubjectAccessReviewStatus) ([]byte, error) {
	return write(AccessVersion, AccessKind, "status", r.status, s)
}

// ReadAccess reads the answer.
func (r *Revision) ReadAccess(body []byte) (*vectors.SubjectAccessReviewStatus, error) {
	s, _, err := read(body, AccessVersion, AccessKind, "status", r.status)
	return &s, err
}

// AskConditions returns the review that sends conditions back.
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

// AnswerConditions returns the review that carries a response.
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

// Cannot returns why a vector is not applicable to the revision: what an authorizer answers in it, or is told, that the
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
