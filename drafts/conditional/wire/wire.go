// Package wire has the revisions of KEP-5681's wire: how a SubjectAccessReview carries conditions, and how an
// AuthorizationConditionsReview asks about them. A Revision is what one public text says. Each revision is a codec for
// the types of drafts/conditional/vectors, which can express everything that any revision can, with rules of its own.
//
// To add a revision, write a codec and add it to Revisions. A codec returns an error for what it cannot express. Cannot
// reports whether that affects a vector.
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

// The kinds and versions of reviews. The KEP writes AuthorizationConditionsReview as authorization.k8s.io/v1alpha1.
const (
	AccessVersion     = "authorization.k8s.io/v1"
	AccessKind        = "SubjectAccessReview"
	ConditionsVersion = "authorization.k8s.io/v1alpha1"
	ConditionsKind    = "AuthorizationConditionsReview"
)

// Revision is the wire as one text of the KEP has it.
type Revision struct {
	// Name is the name of the revision in flags and reports. Text says which text it is.
	Name, Text string
	Rules      vectors.Rules // the rules for answers
	// CEL is the type of conditions in CEL that an API server evaluates itself.
	CEL string
	// marks are fields of a status, or of values inside it, that no other revision has.
	marks []string

	spec     form[vectors.SubjectAccessReviewSpec]
	status   form[vectors.SubjectAccessReviewStatus]
	request  form[vectors.AuthorizationConditionsRequest]
	response form[reply]
}

// reply is a response with the UID of its review, in revisions that have one.
type reply struct {
	vectors.AuthorizationConditionsResponse
	uid string
}

// Revisions returns all, the oldest first.
func Revisions() []*Revision { return []*Revision{Seed, Merged, Upstream} }

// Newest returns the revision that is used if none is named.
func Newest() *Revision { return Upstream }

// Names returns the names of all revisions for people.
func Names() string {
	return strings.Join(seq.Map(Revisions(), func(r *Revision) string { return r.Name }), ", ")
}

// Named returns a revision by its name.
func Named(name string) (*Revision, error) {
	for _, r := range Revisions() {
		if r.Name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%q is not a revision of the wire (expected one of %s)", name, Names())
}

// Fields returns the fields of a status in which conditions come, for people.
func Fields() string {
	return strings.Join(seq.Map(Revisions(), func(r *Revision) string { return "status." + r.Rules.Chain + " (" + r.Name + ")" }), ", ")
}

// concreteFields are the fields of a status that every revision and today's Kubernetes have.
var concreteFields = []string{"allowed", "denied", "reason", "evaluationError"}

// FindUnknown returns the fields of an answer's status that neither a concrete answer nor any revision has.
func FindUnknown(answer []byte) (fields []string) {
	var in struct{ Status map[string]any }
	if json.Unmarshal(answer, &in) != nil {
		return nil
	}
	expectedFields := slices.Clone(concreteFields)
	for _, r := range Revisions() {
		expectedFields = append(expectedFields, r.Rules.Chain)
	}
	for name := range in.Status {
		if !slices.Contains(expectedFields, name) {
			fields = append(fields, name)
		}
	}
	slices.Sort(fields)
	return fields
}

// Recognize returns the revisions whose form an answer to a SubjectAccessReview has. A concrete answer, which is the
// same in all revisions, has the form of none. An answer that mixes revisions has the form of more than one.
func Recognize(answer []byte) []*Revision {
	var in struct{ Status map[string]any }
	if json.Unmarshal(answer, &in) != nil {
		return nil
	}
	isThere := func(r *Revision) bool {
		_, is := in.Status[r.Rules.Chain]
		return is
	}
	if !slices.ContainsFunc(Revisions(), isThere) {
		return nil // without the field of a chain, other fields have no meaning
	}
	return seq.Filter(Revisions(), func(r *Revision) bool { return isMarked(any(in.Status), r.marks) })
}

// isMarked reports whether a value has a field with one of some names, at any depth. It does not look into a
// conditionalDecision, where the names of other revisions have another meaning.
func isMarked(value any, marks []string) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return isMarked(one, marks) })
	case map[string]any:
		for name, one := range v {
			isMark, isOwn := slices.Contains(marks, name), name != Upstream.Rules.Chain
			if isMark {
				return true
			}
			if isOwn && isMarked(one, marks) {
				return true
			}
		}
	}
	return false
}

// Inexpressible is the error for data that a revision cannot express.
type Inexpressible struct{ Revision, What string }

func (e *Inexpressible) Error() string {
	return fmt.Sprintf("the wire of revision %s cannot say it: %s", e.Revision, e.What)
}

// form is the codec of one part of a review.
type form[T any] struct {
	write func(T) (any, error)
	read  func([]byte) (T, error)
}

// shaped returns a form that converts to and from a Go type with the JSON of the revision.
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

// plainStatus has the fields of a status that every revision has: those without conditions.
type plainStatus struct {
	Allowed         bool   `json:"allowed"`
	Denied          bool   `json:"denied,omitempty"`
	Reason          string `json:"reason,omitempty"`
	EvaluationError string `json:"evaluationError,omitempty"`
}

// plainStatusOf returns a status without its conditions.
func plainStatusOf(s vectors.SubjectAccessReviewStatus) plainStatus {
	return plainStatus{Allowed: s.Allowed, Denied: s.Denied, Reason: s.Reason, EvaluationError: s.EvaluationError}
}

// withConditions returns the status with conditions.
func (s plainStatus) withConditions(chain []vectors.ConditionSet) vectors.SubjectAccessReviewStatus {
	return vectors.SubjectAccessReviewStatus{
		Allowed:         s.Allowed,
		Denied:          s.Denied,
		Reason:          s.Reason,
		EvaluationError: s.EvaluationError,
		ConditionsChain: chain,
	}
}

// modeSpec is the form of a spec in which a client asks for conditions by a mode.
var modeSpec = shaped(same[vectors.SubjectAccessReviewSpec], same[vectors.SubjectAccessReviewSpec])

// withoutUID returns the form of a reply in which it has no UID.
func withoutUID(f form[vectors.AuthorizationConditionsResponse]) form[reply] {
	return form[reply]{
		write: func(r reply) (any, error) { return f.write(r.AuthorizationConditionsResponse) },
		read: func(raw []byte) (r reply, err error) {
			r.AuthorizationConditionsResponse, err = f.read(raw)
			return r, err
		},
	}
}

func write[T any](version, kind, field string, f form[T], t T) ([]byte, error) {
	body, err := f.write(t)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"apiVersion": version, "kind": kind, field: body})
}

// read reads one part of a review. isThere reports whether the review has that part.
func read[T any](body []byte, version, kind, field string, f form[T]) (t T, isThere bool, err error) {
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
func (r *Revision) AskAccess(s vectors.SubjectAccessReviewSpec) ([]byte, error) {
	return write(AccessVersion, AccessKind, "spec", r.spec, s)
}

// DecodeAccess reads the spec of a review. It ignores unknown fields, because a newer API server may send them. It
// treats an unknown mode as None, because a client that asks for an unknown mode may not be able to evaluate the
// conditions.
func (r *Revision) DecodeAccess(body []byte) (vectors.SubjectAccessReviewSpec, error) {
	s, _, err := read(body, AccessVersion, AccessKind, "spec", r.spec)
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

// AnswerConditions returns the review with a response. The UID must be the UID of the review that asked.
func (r *Revision) AnswerConditions(uid string, a vectors.AuthorizationConditionsResponse) ([]byte, error) {
	return write(ConditionsVersion, ConditionsKind, "response", r.response, reply{a, uid})
}

// ReadConditions reads the response. It returns nil if there is none.
func (r *Revision) ReadConditions(body []byte) (*vectors.AuthorizationConditionsResponse, error) {
	a, isThere, err := read(body, ConditionsVersion, ConditionsKind, "response", r.response)
	if !isThere {
		return nil, err
	}
	return &a.AuthorizationConditionsResponse, nil
}

// IsReplyTo reports whether a response repeats the UID of the review that asked, in revisions that demand it.
func (r *Revision) IsReplyTo(uid string, body []byte) bool {
	a, isThere, err := read(body, ConditionsVersion, ConditionsKind, "response", r.response)
	isRead := isThere && err == nil
	return !r.Rules.Union || !isRead || a.uid == uid
}

// Cannot returns why a vector is not applicable to the revision: the revision cannot express an answer or a request of
// the vector, or it has a rule that the text of the vectors does not have, or lacks one. It is empty for all other
// vectors.
func (r *Revision) Cannot(v *vectors.Vector) string {
	if v.Webhook != nil {
		return r.cannotSend(v.Webhook)
	}
	var chain []vectors.Authorizer
	if v.APIServer != nil {
		chain = slices.Concat(v.APIServer.Chain, v.APIServer.Compound)
	}
	for i := range chain {
		if why := r.cannotAnswer(&chain[i]); why != "" {
			return why
		}
	}
	return ""
}

// cannotSend returns the part of a request to a webhook that the revision cannot express.
func (r *Revision) cannotSend(w *vectors.Webhook) string {
	if r.Rules.Union && w.FailureMode == vectors.FailNoOpinion {
		return "a failure mode"
	}
	for _, s := range w.Steps {
		if s.Evaluate == nil {
			continue
		}
		isStage := slices.Contains(s.Evaluate.Want.OneOf, vectors.Conditional)
		if isStage && !r.Rules.Staged {
			return "conditions that evaluate to conditions"
		}
		var cannot *Inexpressible
		if _, err := r.request.write(vectors.AuthorizationConditionsRequest{ConditionData: s.Evaluate.Data}); errors.As(err, &cannot) {
			return cannot.What
		}
	}
	return ""
}

// cannotAnswer returns why an authorizer's answer is not one of the revision.
func (r *Revision) cannotAnswer(a *vectors.Authorizer) string {
	answer := a.Answer()
	var cannot *Inexpressible
	if _, err := r.status.write(answer); errors.As(err, &cannot) {
		return cannot.What
	}
	if !r.Rules.Union {
		return ""
	}
	// The vectors follow the text of Seed, with the exception of sets of sets.
	text := Seed.Rules
	text.Depth = Merged.Rules.Depth
	ownErr, textErr := r.Rules.Validate(answer, vectors.Optimized), text.Validate(answer, vectors.Optimized)
	switch {
	case textErr == nil && ownErr != nil:
		return "an answer that breaks a rule of it: " + ownErr.Error()
	case textErr != nil && ownErr == nil:
		return "an answer that breaks a rule that it does not have: " + textErr.Error()
	case textErr != nil && a.FailureMode == vectors.FailNoOpinion:
		return "a failure mode"
	}
	return ""
}
