package session

import "github.com/authzconf/authzconf/scenarios"

// onExisting decides for a cluster that somebody else made.
func onExisting(s *scenarios.Scenario, facts scenarios.Facts) Item {
	ok, unsupported, why := s.SelectedThere(facts)
	switch {
	case ok:
		return Item{Scenario: s, Fate: Run}
	case unsupported:
		return Item{Scenario: s, Fate: Unsupported, Why: why}
	}
	return Item{Scenario: s, Fate: NotSelected, Why: why}
}

// Makes counts what the scenarios of a plan make on a cluster that somebody else made.
type Makes struct{ Namespaces, Accounts, Roles, ClusterRoles int }

// Makes counts them; a scenario's own objects are in its namespaces.
func (p CellPlan) Makes() (m Makes) {
	for _, item := range p.Items {
		if item.Fate != Run {
			continue
		}
		bound, _ := item.Scenario.Bind(scenarios.Suffix(0, "existing", item.Scenario.ID))
		accounts, why := bound.Substitute()
		if why != "" {
			continue
		}
		spaces := map[string]bool{}
		for _, r := range accounts.Requestors {
			if sa := r.ServiceAccount; sa != nil {
				m.Accounts++
				spaces[sa.Namespace] = true
			}
		}
		for _, o := range scenarios.RenderRBAC(accounts) {
			if o.ClusterRole != nil {
				m.ClusterRoles++
			} else {
				m.Roles++
			}
		}
		for _, g := range accounts.Grants {
			spaces[g.Namespace] = true
		}
		for _, st := range accounts.Steps {
			if r := st.Sent(); r != nil {
				spaces[r.Namespace] = true
			}
		}
		delete(spaces, "")
		m.Namespaces += len(spaces)
	}
	return m
}
