package cases

import (
	"slices"
	"strings"

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
	what, id, _ := strings.Cut(b.level(change), "-")
	granted := slices.ContainsFunc(b.s.Grants, func(g scenarios.Grant) bool { return g.ID == id })
	switch {
	case what == "revoke" && granted:
		return []scenarios.Step{{Revoke: id}}
	case what == "grant" && !granted && id == legacyID:
		b.add(scenarios.Grant{ID: legacyID, Verbs: []string{"impersonate"}, APIGroups: []string{"*"}, Resources: []string{"*"}})
	case what != "grant" || !granted:
		return nil
	}
	return []scenarios.Step{{Grant: id}} // it comes later instead
}
