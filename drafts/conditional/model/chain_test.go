package model

import (
	"slices"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// link is the answer of one authorizer, as far as it matters for the rest of the chain.
type link struct {
	from *vectors.Authorizer
	// decision is a concrete decision or Conditional.
	decision vectors.Decision
	err      bool
	// sets are the sets of a conditional decision, in order. A webhook can answer with several sets ("Supporting
	// webhooks through the AuthorizationConditionsReview API").
	sets []set
}

// set is a ConditionSet, or a concrete decision in the place of one.
type set struct {
	concrete vectors.Decision
	mode     vectors.FailureMode
	effects  []vectors.Decision
	types    []string
	// secondary are the conditions that ask for a check.
	secondary []bool
	// truths and builtin are the truths of the conditions for each object: truths by the authorizer, builtin by the API
	// server's own evaluator.
	truths, builtin [][]vectors.Truth
}

// canAllow reports whether a conditional decision can become Allow, so that it is a conditional allow (Glossary).
func (l *link) canAllow() bool {
	return slices.ContainsFunc(l.sets, func(s set) bool {
		return s.concrete == vectors.Allow || slices.Contains(s.effects, vectors.Allow)
	})
}

func (l *link) canDeny() bool {
	return slices.ContainsFunc(l.sets, func(s set) bool {
		return s.concrete == vectors.Deny || slices.Contains(s.effects, vectors.Deny)
	})
}

// ask returns how the API server understands the answer of an authorizer.
func (r *run) ask(a *vectors.Authorizer) link {
	if a.Status != nil {
		return r.askWebhook(a)
	}
	l := link{from: a, decision: a.Decision, err: a.Error}
	if a.Decision != vectors.Conditional {
		return l
	}
	conditions := make([]vectors.Condition, 0, len(a.Conditions))
	s := set{mode: a.FailureMode, truths: make([][]vectors.Truth, r.m.Objects), builtin: make([][]vectors.Truth, r.m.Objects)}
	for _, c := range a.Conditions {
		conditions = append(conditions, c.Condition)
		s.effects, s.types, s.secondary = append(s.effects, c.Effect), append(s.types, c.Type), append(s.secondary, c.Secondary)
		for o := range r.m.Objects {
			s.truths[o] = append(s.truths[o], c.PerObject[o])
			builtin := c.PerObject[o]
			if c.Builtin != "" {
				builtin = c.Builtin
			}
			s.builtin[o] = append(s.builtin[o], builtin)
		}
	}
	l.sets = []set{s}
	given := vectors.ConditionSet{AuthorizerName: a.Name, FailureMode: vectors.FailDeny, Conditions: conditions}
	broken := r.wire.Rules.Breaches(vectors.SubjectAccessReviewStatus{ConditionsChain: []vectors.ConditionSet{given}}, vectors.Optimized)
	switch {
	case !r.conditions():
		return folded(l)
	case slices.ContainsFunc(broken, func(b vectors.Breach) bool { return b.Reason != "too-many-conditions" }): // however many there are
		return link{from: a, decision: failedAs(a.FailureMode), err: true}
	}
	return l
}

// folded returns the answer that an authorizer is advised to give instead of conditions if nobody asked for conditions
// ("Authorizer requirements").
func folded(l link) link {
	if l.canDeny() {
		return link{from: l.from, decision: vectors.Deny}
	}
	return link{from: l.from, decision: vectors.NoOpinion}
}

// askWebhook reads the answer of a webhook.
func (r *run) askWebhook(a *vectors.Authorizer) link {
	status := *a.Status
	if r.m.Server.Version == "old" || r.m.Server.Gate != "on" {
		status.ConditionsChain = nil // the field is unknown, so it is dropped
	}
	mode := vectors.Optimized
	if !r.conditions() && status.ConditionsChain != nil {
		mode = vectors.None
	}
	switch {
	case r.wire.Rules.Validate(status, mode) != nil:
		return link{from: a, decision: failedAs(a.FailureMode), err: true}
	case status.Allowed:
		return link{from: a, decision: vectors.Allow}
	case status.Denied:
		return link{from: a, decision: vectors.Deny}
	case status.ConditionsChain == nil:
		return link{from: a, decision: vectors.NoOpinion}
	}
	l := link{from: a, decision: vectors.Conditional}
	for _, cs := range vectors.Leaves(status.ConditionsChain) {
		s := set{mode: cs.FailureMode}
		switch {
		case cs.Allowed:
			s.concrete = vectors.Allow
		case cs.Denied:
			s.concrete = vectors.Deny
		}
		var truths []vectors.Truth
		for _, c := range cs.Conditions {
			s.effects, s.types = append(s.effects, c.Effect), append(s.types, c.Type)
			truths = append(truths, a.Truths[c.ID])
		}
		for range r.m.Objects {
			s.truths, s.builtin = append(s.truths, truths), append(s.builtin, truths)
		}
		l.sets = append(l.sets, s)
	}
	return l
}
