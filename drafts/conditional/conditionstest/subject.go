package conditionstest

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// subject answers reviews by an authorizer written in Go. The conditions of the authorizer are Go values. subject keeps
// them under the form that a review shows, and evaluates them when a review sends that form back.
type subject struct {
	ctx            context.Context
	authorizer     authorizer.Authorizer
	givenDecisions sync.Map // of conditionalDecision
}

// conditionalDecision is a decision with the request that it was given for.
type conditionalDecision struct {
	decision   authorizer.ConditionsAwareDecision
	attributes authorizer.AttributesRecord
}

func (s *subject) Review(spec vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus {
	attributes := attributesOf(spec.SubjectAccessReviewSpec)
	if spec.Mode() == vectors.None {
		return concrete(s.authorizer.Authorize(s.ctx, attributes))
	}
	d := s.authorizer.ConditionsAwareAuthorize(s.ctx, attributes)
	if d.IsUnconditional() {
		return concrete(parts(d))
	}
	chain := []vectors.ConditionSet{toSet("", d)}
	if d.IsUnion() {
		chain = chain[0].ConditionsChain
	}
	s.givenDecisions.Store(key(chain), conditionalDecision{d, attributes})
	return vectors.SubjectAccessReviewStatus{ConditionsChain: chain}
}

func (s *subject) Evaluate(q *vectors.AuthorizationConditionsRequest) vectors.AuthorizationConditionsResponse {
	kept, isKnown := s.givenDecisions.Load(key(q.ConditionSets))
	if !isKnown {
		return concrete(authorizer.DecisionDeny, "", errors.New("the authorizer did not give these conditions"))
	}
	stored := kept.(conditionalDecision)
	return concrete(s.authorizer.EvaluateConditions(s.ctx, stored.decision, admission{stored.attributes, &q.ConditionData}))
}

func key(chain []vectors.ConditionSet) string {
	raw, _ := json.Marshal(chain) // it has only strings and booleans: marshalling cannot fail
	return string(raw)
}

// parts returns the parts of an unconditional decision.
func parts(d authorizer.ConditionsAwareDecision) (authorizer.Decision, string, error) {
	if d.IsAllow() {
		return authorizer.DecisionAllow, d.Reason(), d.Error()
	}
	return d.FailureDecision(), d.Reason(), d.Error()
}

func concrete(d authorizer.Decision, reason string, err error) vectors.SubjectAccessReviewStatus {
	out := vectors.SubjectAccessReviewStatus{Allowed: d == authorizer.DecisionAllow, Denied: d == authorizer.DecisionDeny, Reason: reason}
	if err != nil {
		out.EvaluationError = err.Error()
	}
	return out
}

// toSet returns the condition set that a review shows of a decision.
func toSet(name string, d authorizer.ConditionsAwareDecision) vectors.ConditionSet {
	set := vectors.ConditionSet{AuthorizerName: name, Allowed: d.IsAllow(), Denied: d.IsDeny()}
	switch {
	case d.IsUnion():
		for inner, one := range d.UnionedDecisions() {
			set.ConditionsChain = append(set.ConditionsChain, toSet(inner, one))
		}
	case d.IsConditionsMap():
		m := d.ConditionsMap()
		set.Conditions = slices.Concat(
			toConditions(vectors.Deny, m.DenyConditions()),
			toConditions(vectors.NoOpinion, m.NoOpinionConditions()),
			toConditions(vectors.Allow, m.AllowConditions()),
		)
	}
	return set
}

func toConditions(effect vectors.Decision, all iter.Seq[authorizer.Condition]) (out []vectors.Condition) {
	for c := range all {
		out = append(out,
			vectors.Condition{
				ID:          c.GetID(),
				Effect:      effect,
				Type:        c.GetType(),
				Condition:   c.GetCondition(),
				Description: c.GetDescription(),
			},
		)
	}
	return out
}

func attributesOf(s authorizationv1.SubjectAccessReviewSpec) authorizer.AttributesRecord {
	u := &user.DefaultInfo{Name: s.User, UID: s.UID, Groups: s.Groups, Extra: map[string][]string{}}
	for k, v := range s.Extra {
		u.Extra[k] = v
	}
	if n := s.NonResourceAttributes; n != nil {
		return authorizer.AttributesRecord{User: u, Verb: n.Verb, Path: n.Path}
	}
	r := s.ResourceAttributes
	return authorizer.AttributesRecord{
		User: u, Verb: r.Verb, Namespace: r.Namespace, APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource,
		Subresource: r.Subresource, Name: r.Name, ResourceRequest: true,
	}
}
