package conditionstest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// subject has an authorizer of Go answer reviews. Its conditions are values of Go: they are kept under what a review
// shows of them, and evaluated when that comes back.
type subject struct {
	ctx        context.Context
	authorizer authorizer.Authorizer
	given      sync.Map // of given
}

// given is a decision with the request that it was given for.
type given struct {
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
	chain := sets("authorizer", d)
	s.given.Store(key(chain), given{d, attributes})
	return vectors.SubjectAccessReviewStatus{ConditionsChain: chain}
}

func (s *subject) Evaluate(q *vectors.AuthorizationConditionsRequest) vectors.AuthorizationConditionsResponse {
	kept, isKnown := s.given.Load(key(q.ConditionSets))
	if !isKnown {
		return concrete(authorizer.DecisionDeny, "", errors.New("the authorizer did not give these conditions"))
	}
	of := kept.(given)
	return concrete(s.authorizer.EvaluateConditions(s.ctx, of.decision, admission{of.attributes, &q.ConditionData}))
}

func key(chain []vectors.ConditionSet) string {
	raw, _ := json.Marshal(chain) // of strings and booleans: it cannot fail
	return string(raw)
}

// parts are those of an unconditional decision.
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

// ownType stands for no type, and the ID of a condition for no text, which conditions of Go can do without.
const ownType = "conditionstest.authzconf.dev/own"

// sets is what a review shows of a decision: a union as its leaves.
func sets(name string, d authorizer.ConditionsAwareDecision) (out []vectors.ConditionSet) {
	switch {
	case d.IsAllow(), d.IsDeny():
		return []vectors.ConditionSet{{AuthorizerName: name, Allowed: d.IsAllow(), Denied: d.IsDeny()}}
	case d.IsUnion():
		for inner, one := range d.UnionedDecisions() {
			out = append(out, sets(inner, one)...)
		}
	case d.IsConditionsMap():
		set := vectors.ConditionSet{AuthorizerName: name, FailureMode: vectors.FailDeny}
		add := func(effect vectors.Decision, all iter.Seq[authorizer.Condition]) {
			for c := range all {
				set.Conditions = append(set.Conditions, vectors.Condition{
					ID: c.GetID(), Effect: effect, Type: cmp.Or(c.GetType(), ownType), Condition: cmp.Or(c.GetCondition(), c.GetID()), Description: c.GetDescription(),
				})
			}
		}
		m := d.ConditionsMap()
		add(vectors.Deny, m.DenyConditions())
		add(vectors.NoOpinion, m.NoOpinionConditions())
		add(vectors.Allow, m.AllowConditions())
		out = []vectors.ConditionSet{set}
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
