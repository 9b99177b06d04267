package model

import (
	"encoding/json"
	"fmt"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

const (
	requests  = 8 // of a batch: its cases have the same policies
	objects   = 8 // of a request
	batchSize = requests * objects
)

// Batches returns how many batches of cases there are. The cases of a batch have the same policies.
func (o Exploration) Batches() int { return (o.Cases + batchSize - 1) / batchSize }

// Range returns the numbers of the first and the last case of batches. end is the batch after the last one.
func (o Exploration) Range(first, end int) (from, to int) {
	return first * batchSize, min(end*batchSize, o.Cases) - 1
}

// generate returns the cases of a batch.
func (o Exploration) generate(n int) (cases []*generatedCase) {
	g := newGenerator(o.Seed, n)
	t := &generatedCase{policies: g.policies(), mode: pick(g, vectors.FailDeny, vectors.FailNoOpinion), facts: &facts{}}
	if o.One || o.Wire.Rules.Union { // they have no failure mode but Deny
		t.mode = vectors.FailDeny
	}
	for i := range min(batchSize, o.Cases-n*batchSize) {
		if i%objects == 0 {
			g.request(t.facts)
		}
		g.late(t.facts)
		cases = append(cases, t.clone())
	}
	return cases
}

// Batch has the answers of an authorizer to the cases of a batch.
type Batch struct {
	// Reviews are the answers to the requests, in order.
	Reviews []Review `json:"reviews"`
	// Smaller is the smallest case that disagrees, made from a case of the batch. It is nil if no case disagrees.
	Smaller *Smaller `json:"smaller,omitempty"`
}

// Review is the answer of an authorizer to one request.
type Review struct {
	// Answer is the SubjectAccessReview as it was answered.
	Answer json.RawMessage `json:"answer"`
	// Evaluations are the answers about the conditions, for each object of the request. The list is empty if there are
	// no conditions.
	Evaluations []Evaluation `json:"evaluations,omitempty"`
}

// Evaluation is the answer of an authorizer about conditions and one object.
type Evaluation struct {
	// Answer is the AuthorizationConditionsReview as it was answered.
	Answer json.RawMessage `json:"answer,omitempty"`
	// Error is the reason why no answer can be judged.
	Error string `json:"error,omitempty"`
}

// Smaller is a case that was made small.
type Smaller struct {
	// Case is the number of the case that it was made of.
	Case   int    `json:"case"`
	Reason string `json:"reason"`
	// Vector is the case as a vector file, with the right decisions.
	Vector string `json:"vector"`
}

// Observe asks an authorizer about the cases of a batch. If a case disagrees, Observe asks more questions to find a
// smaller case.
func (o Exploration) Observe(subject Subject, n int) (*Batch, error) {
	cases, b := o.generate(n), &Batch{}
	loaded, err := subject(cases[0].words(), cases[0].mode)
	if err != nil {
		return nil, fmt.Errorf("case %d: the policies are not loaded: %w", n*batchSize, err)
	}
	var statuses []*vectors.SubjectAccessReviewStatus
	for i := 0; i < len(cases); i += objects {
		r, status, err := o.ask(loaded, cases[i:min(i+objects, len(cases))])
		if err != nil {
			return nil, fmt.Errorf("case %d: %w", n*batchSize+i, err)
		}
		b.Reviews, statuses = append(b.Reviews, *r), append(statuses, status)
	}
	if at, reason := o.firstDisagreement(cases, statuses, b); reason != "" {
		b.Smaller = o.shrink(subject, cases[at], reason)
		b.Smaller.Case = n*batchSize + at
	}
	return b, nil
}

// ask asks about cases that have the same request and differ in the data of the second phase.
func (o Exploration) ask(loaded LoadedAuthorizer, cases []*generatedCase) (*Review, *vectors.SubjectAccessReviewStatus, error) {
	answer, status, err := o.askAccess(loaded, *cases[0].facts.spec())
	if err != nil {
		return nil, nil, err
	}
	r := &Review{Answer: answer}
	if status.Decision() != vectors.Conditional {
		return r, status, nil
	}
	for _, t := range cases {
		q := vectors.AuthorizationConditionsRequest{
			Authorized: t.facts.spec().SubjectAccessReviewSpec, ConditionSets: status.ConditionsChain, ConditionData: *t.facts.data(),
		}
		e := Evaluation{}
		if e.Answer, err = o.askConditions(loaded, q); err != nil {
			e.Error = err.Error()
		}
		r.Evaluations = append(r.Evaluations, e)
	}
	return r, status, nil
}

// Subject makes the authorizer that is asked, with policies and a failure mode for Deny policies in error.
type Subject func(policies []vectors.Policy, mode vectors.FailureMode) (LoadedAuthorizer, error)

// LoadedAuthorizer is an authorizer with policies. What it is asked has gone through JSON.
type LoadedAuthorizer interface {
	Review(vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus
	Evaluate(*vectors.AuthorizationConditionsRequest) vectors.AuthorizationConditionsResponse
}

// askAccess asks the first phase as a webhook is asked: only JSON is exchanged.
func (o Exploration) askAccess(
	loaded LoadedAuthorizer,
	spec vectors.SubjectAccessReviewSpec,
) (json.RawMessage, *vectors.SubjectAccessReviewStatus, error) {
	question, err := o.Wire.AskAccess(spec)
	if err != nil {
		return nil, nil, err
	}
	decoded, err := o.Wire.DecodeAccess(question)
	if err != nil {
		return nil, nil, err
	}
	answer, err := o.Wire.AnswerAccess(loaded.Review(decoded))
	if err != nil {
		return nil, nil, err
	}
	status, err := o.Wire.ReadAccess(answer)
	return answer, status, err
}

// askConditions asks the second phase, again by JSON only.
func (o Exploration) askConditions(loaded LoadedAuthorizer, q vectors.AuthorizationConditionsRequest) (json.RawMessage, error) {
	q.UID = "generated"
	question, err := o.Wire.AskConditions(q)
	if err != nil {
		return nil, err
	}
	decoded, err := o.Wire.DecodeConditions(question)
	if err != nil {
		return nil, err
	}
	return o.Wire.AnswerConditions(q.UID, loaded.Evaluate(decoded))
}
