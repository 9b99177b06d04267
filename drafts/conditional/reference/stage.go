package reference

import (
	"slices"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// isStage reports whether conditions are evaluated before everything is known: the impersonation filter knows the
// request that is impersonated, but not its object.
func isStage(d vectors.ConditionData) bool {
	return d.ImpersonatedRequest != nil && d.Operation == ""
}

// evaluateStage returns the conditions that are left when the impersonated request is known. It returns nil if what is
// known decides all of them, or if the set is not its own.
func (a *Authorizer) evaluateStage(req *vectors.AuthorizationConditionsRequest) []vectors.ConditionSet {
	isOwn := len(req.ConditionSets) == 1 && a.Wire.Rules.ValidateSet(req.ConditionSets[0]) == nil &&
		req.ConditionSets[0].AuthorizerName == a.setName()
	if !isOwn {
		return nil
	}
	set := req.ConditionSets[0]
	data := map[string]any{impersonated: req.ConditionData.Variables()[impersonated]}
	var left []vectors.Condition
	isOpen := false
	for _, c := range set.Conditions {
		if c.Type != a.Type {
			return nil
		}
		out := evaluatePartially(c.Condition, nil, data)
		isKnown := out.err == nil && out.residual == ""
		switch {
		case isKnown && !out.value:
			continue // it can never be true
		case isKnown:
			c.Condition = "true"
		case out.err == nil:
			c.Condition, isOpen = out.residual, true
		}
		left = append(left, c)
	}
	canMatter := slices.ContainsFunc(left, func(c vectors.Condition) bool { return c.Effect != vectors.NoOpinion })
	if !isOpen || !canMatter {
		return nil
	}
	set.Conditions = left
	return []vectors.ConditionSet{set}
}

// impersonated is the variable that a stage knows.
const impersonated = "impersonatedRequest"
