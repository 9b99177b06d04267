package cases

import (
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// changed puts the change of permissions before the last request. A single request is sent again after it.
func (b *builder) changed(requests []scenarios.Request) []scenarios.Step {
	what := b.changeSteps()
	if len(what) > 0 && len(requests) == 1 {
		requests = append(requests, requests[0])
	}
	var steps []scenarios.Step
	for i := range requests {
		if i == len(requests)-1 {
			steps = append(steps, what...)
		}
		r := requests[i]
		steps = append(steps, scenarios.Step{Request: &r})
	}
	return steps
}

// changeSteps are none if what would be revoked is not granted.
func (b *builder) changeSteps() []scenarios.Step {
	has := func(id string) bool {
		return slices.ContainsFunc(b.s.Grants, func(g scenarios.Grant) bool { return g.ID == id })
	}
	revoke := func(id string) []scenarios.Step {
		if !has(id) {
			return nil
		}
		return []scenarios.Step{{Revoke: id}}
	}
	switch b.level(change) {
	case "revoke-action":
		return revoke(actionID)
	case "revoke-identity":
		return revoke(identityID)
	case "revoke-legacy":
		return revoke(legacyID)
	case "grant-action":
		if has(actionID) { // it comes later instead
			return []scenarios.Step{{Grant: actionID}}
		}
	case "grant-legacy":
		if has(legacyID) {
			return []scenarios.Step{{Grant: legacyID}}
		}
		b.add(scenarios.Grant{ID: legacyID, Verbs: []string{"impersonate"}, APIGroups: []string{"*"}, Resources: []string{"*"}})
		return []scenarios.Step{{Grant: legacyID}}
	}
	return nil
}
