// Package library compares k8s.io/apiserver's own conditional authorization with the API-server vectors of KEP-5681, and
// lists the differences.
//
// The library is the part of the KEP that exists in Kubernetes 1.37: the types and the union of
// k8s.io/apiserver/pkg/authorization. There is no feature gate, no field in SubjectAccessReview, no review of
// conditions and no admission plugin yet. Vectors that only those could show are listed as absent.
package library

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/union"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// Observe returns what k8s.io/apiserver answers to a vector. Proceeds, Admitted and Starts stay empty: the library does
// not take part in them.
func Observe(ctx context.Context, m *vectors.APIServer) (*vectors.Want, error) {
	return observeThrough(ctx, m, func(_ string, a authorizer.Authorizer) authorizer.Authorizer { return a })
}

// observeThrough is like Observe, with a wrapper around each authorizer of the chain.
func observeThrough(ctx context.Context, m *vectors.APIServer, wrap wrapper) (*vectors.Want, error) {
	run := &libraryRun{m: m, wrap: wrap, attributes: authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "someone"}, Verb: m.Request.Verb, APIGroup: m.Request.APIGroup, APIVersion: m.Request.APIVersion,
		Resource: m.Request.Resource, Subresource: m.Request.Subresource, ResourceRequest: true,
	}, want: &vectors.Want{Asked: []string{}, AskedLater: []string{}, EvaluatedBy: []string{}, ConditionsChain: []string{}}}
	chain, err := run.chain(m.Chain)
	if err != nil {
		return nil, err
	}
	if run.second, err = run.chain(m.Compound); err != nil {
		return nil, err
	}
	var decision authorizer.ConditionsAwareDecision
	if m.Request.Mode == "None" {
		decision = authorizer.ConditionsAwareDecisionFromParts(chain.Authorize(ctx, run.attributes))
	} else {
		decision = chain.ConditionsAwareAuthorize(ctx, run.attributes)
	}
	run.want.Authorized = kind(decision)
	run.asking = &run.want.AskedLater
	if !decision.IsUnconditional() {
		run.want.ConditionsChain = sets(decision, "")
	}
	failed := false
	for o := range m.Objects {
		d, reason, err := run.evaluate(ctx, chain, decision, o)
		if o == 0 {
			run.want.Reason = slices.DeleteFunc(m.Words(), func(word string) bool { return !strings.Contains(reason, word) })
		}
		run.want.Decisions = append(run.want.Decisions, d)
		failed = failed || err != nil
	}
	run.want.Decision, run.want.Error = run.want.Decisions[0], &failed
	return run.want, nil
}

// wrapper wraps an authorizer that has a name.
type wrapper func(name string, a authorizer.Authorizer) authorizer.Authorizer

// libraryRun runs one vector, and records which authorizers are asked.
type libraryRun struct {
	m          *vectors.APIServer
	wrap       wrapper // nil if the authorizers are not wrapped
	want       *vectors.Want
	asking     *[]string
	attributes authorizer.AttributesRecord
	second     authorizer.Authorizer // the chain that answers checks by the function authorizer
}

// chain is the library's union of authorizers.
func (r *libraryRun) chain(all []vectors.Authorizer) (authorizer.Authorizer, error) {
	authorizers := make([]union.NamedAuthorizer, 0, len(all))
	for i := range all {
		one, err := r.authorizer(&all[i])
		if err != nil {
			return nil, err
		}
		if r.wrap != nil {
			one = r.wrap(all[i].Name, one)
		}
		authorizers = append(authorizers, union.NamedAuthorizer{AuthorizerName: all[i].Name, Authorizer: one})
	}
	return union.New(authorizers...)
}

// evaluate runs the second phase for one object. The server evaluates first what it can evaluate itself. The
// authorizers evaluate the rest.
func (r *libraryRun) evaluate(
	ctx context.Context,
	chain authorizer.Authorizer,
	d authorizer.ConditionsAwareDecision,
	object int,
) (vectors.Decision, string, error) {
	data := record{object: object}
	if len(r.m.Server.BuiltinTypes) > 0 {
		d = authorizer.PartiallyEvaluateConditionsAwareDecision(ctx, d, data, r.builtin)
	}
	if d.IsUnconditional() {
		return kind(d), d.Reason(), d.Error()
	}
	if object > 0 { // calls of authorizers are recorded for the first object only
		defer func(first []string) { r.want.EvaluatedBy = first }(slices.Clip(r.want.EvaluatedBy))
	}
	concrete, reason, err := chain.EvaluateConditions(ctx, d, data)
	return vectors.Decision(concrete.String()), reason, err
}

// builtin is the server's own evaluator. What it fails at is left to the authorizer.
func (r *libraryRun) builtin(
	ctx context.Context,
	c authorizer.Condition,
	data authorizer.ConditionsData,
) authorizer.ConditionEvaluationResult {
	cond := c.(condition)
	truth := cond.PerObject[data.(record).object]
	if cond.Builtin != "" {
		truth = cond.Builtin
	}
	if truth == vectors.Error || !slices.Contains(r.m.Server.BuiltinTypes, c.GetType()) {
		return authorizer.ConditionsEvaluationResultUnevaluatable()
	}
	if cond.Secondary {
		d, _, _ := r.second.Authorize(ctx, r.attributes)
		return authorizer.ConditionEvaluationResultBoolean(d == authorizer.DecisionAllow)
	}
	return authorizer.ConditionEvaluationResultBoolean(truth == vectors.True)
}

// authorizer returns one authorizer of a chain. A webhook that answers with several sets becomes a union of as many
// authorizers, and a set of sets becomes a union inside it.
func (r *libraryRun) authorizer(a *vectors.Authorizer) (authorizer.Authorizer, error) {
	if a.Status == nil || len(a.Status.ConditionsChain) == 0 {
		one := *a
		if a.Status != nil {
			one.Decision = a.Status.Decision()
		}
		return &link{run: r, a: &one}, nil
	}
	return r.union(a, a.Status.ConditionsChain)
}

func (r *libraryRun) union(a *vectors.Authorizer, sets []vectors.ConditionSet) (authorizer.Authorizer, error) {
	authorizers := make([]union.NamedAuthorizer, 0, len(sets))
	for i, s := range sets {
		var inner authorizer.Authorizer
		if s.ConditionsChain != nil {
			var err error
			if inner, err = r.union(a, s.ConditionsChain); err != nil {
				return nil, err
			}
		} else {
			one := vectors.Authorizer{Name: a.Name, Decision: vectors.Conditional, FailureMode: s.FailureMode, Cached: a.Cached}
			if len(s.Conditions) == 0 {
				one.Decision = (&vectors.SubjectAccessReviewStatus{Allowed: s.Allowed, Denied: s.Denied}).Decision()
			}
			for _, c := range s.Conditions {
				one.Conditions = append(one.Conditions,
					vectors.EvaluatedCondition{Condition: c, PerObject: slices.Repeat([]vectors.Truth{a.Truths[c.ID]}, r.m.Objects)},
				)
			}
			inner = &link{run: r, a: &one}
		}
		authorizers = append(authorizers, union.NamedAuthorizer{AuthorizerName: fmt.Sprintf("set-%d", i), Authorizer: inner})
	}
	return union.New(authorizers...)
}

// noteName adds who was asked, once for all of its sets.
func noteName(to *[]string, name string) {
	if n := len(*to); n == 0 || (*to)[n-1] != name {
		*to = append(*to, name)
	}
}

type link struct {
	run *libraryRun
	a   *vectors.Authorizer
}

// Authorize implements authorizer.Authorizer for callers that support no conditions.
func (l *link) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	d := l.ConditionsAwareAuthorize(ctx, a)
	if d.IsAllow() {
		return authorizer.DecisionAllow, d.Reason(), d.Error()
	}
	return d.FailureDecision(), d.Reason(), d.Error()
}

func (l *link) ConditionsAwareAuthorize(context.Context, authorizer.Attributes) authorizer.ConditionsAwareDecision {
	l.run.asking = cmp.Or(l.run.asking, &l.run.want.Asked)
	if !l.a.Cached {
		noteName(l.run.asking, l.a.Name)
	}
	var err error
	if l.a.Error {
		err = errors.New("the authorizer's error")
	}
	switch l.a.Decision {
	case vectors.Allow:
		return authorizer.ConditionsAwareDecisionAllow(l.a.Reason, err)
	case vectors.Deny:
		if l.a.Empty {
			return authorizer.ConditionsAwareDecision{}
		}
		return authorizer.ConditionsAwareDecisionDeny(l.a.Reason, err)
	case vectors.NoOpinion:
		return authorizer.ConditionsAwareDecisionNoOpinion(l.a.Reason, err)
	}
	byEffect := map[vectors.Decision][]authorizer.Condition{}
	for _, c := range l.a.Conditions {
		byEffect[c.Effect] = append(byEffect[c.Effect], condition{c})
	}
	return authorizer.ConditionsAwareDecisionConditionsMap(byEffect[vectors.Deny], byEffect[vectors.NoOpinion], byEffect[vectors.Allow])
}

func (l *link) EvaluateConditions(
	ctx context.Context,
	d authorizer.ConditionsAwareDecision,
	data authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	noteName(&l.run.want.EvaluatedBy, l.a.Name)
	if l.a.Cannot {
		return authorizer.AuthorizerFunc(nil).EvaluateConditions(ctx, d, data)
	}
	return d.ConditionsMap().
		Evaluate(ctx, data, func(_ context.Context, c authorizer.Condition, data authorizer.ConditionsData) (bool, error) {
			truth := c.(condition).PerObject[data.(record).object]
			if truth == vectors.Error {
				return false, errors.New("the condition's error")
			}
			return truth == vectors.True, nil
		})
}

type condition struct{ vectors.EvaluatedCondition }

func (c condition) GetID() string          { return c.ID }
func (c condition) GetType() string        { return c.Type }
func (c condition) GetCondition() string   { return c.Condition.Condition }
func (c condition) GetDescription() string { return c.Description }

// Evaluate leaves the condition to its authorizer, as the library does with a condition of a review.
func (c condition) Evaluate(context.Context, authorizer.ConditionsData) authorizer.ConditionEvaluationResult {
	return authorizer.ConditionsEvaluationResultUnevaluatable()
}

func kind(d authorizer.ConditionsAwareDecision) vectors.Decision {
	switch {
	case d.IsAllow():
		return vectors.Allow
	case d.IsDeny():
		return vectors.Deny
	case d.IsNoOpinion():
		return vectors.NoOpinion
	case d.PossibleDecisions().Has(authorizer.DecisionAllow):
		return vectors.ConditionalAllow
	}
	return vectors.ConditionalDeny
}

// sets returns the condition sets that a SubjectAccessReview would show of a decision.
func sets(d authorizer.ConditionsAwareDecision, name string) (out []string) {
	switch {
	case d.IsAllow():
		return []string{name + " allowed"}
	case d.IsDeny():
		return []string{name + " denied"}
	case d.IsConditionsMap():
		return []string{name + " conditions"}
	}
	for sub, inner := range d.UnionedDecisions() {
		out = append(out, sets(inner, cmp.Or(name, sub))...)
	}
	return out
}

// record is the data of one object. The conditions of vectors are evaluated by the number of the object, and need no
// other data.
type record struct {
	authorizer.ConditionsData
	object int
}
