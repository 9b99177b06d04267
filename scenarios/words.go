package scenarios

import (
	"maps"
	"slices"
)

// fixedWords are what the API server's messages and paths are made of. A name like one of them could not be told
// from the text around it.
const fixedWords = `is forbidden User cannot resource in API group the namespace at cluster scope
	impersonating empty string key extra an invalid a non-lowercase values value not allowed requested
	&user.DefaultInfo{Name: UID: Groups: Extra:map []string nil} without user name attempting to grant
	RBAC permissions currently held {APIGroups Resources Verbs ResourceNames} system: masters nodes node
	serviceaccount serviceaccounts authenticated unauthenticated anonymous /api/v1 /apis/ namespaces`

// words lists the texts of a scenario that Bind must not change, although a name may look the same: verbs, API
// groups, resources and fixed wording.
func (s *Scenario) words() []string {
	set := map[string]bool{fixedWords: true}
	add := func(list ...string) {
		for _, w := range list {
			set[w] = true
		}
	}
	grant := func(g Grant) {
		add(g.Verbs...)
		add(g.APIGroups...)
		add(g.Resources...)
	}
	for _, g := range s.Grants {
		grant(g)
	}
	for _, r := range s.Policy {
		grant(r.For)
	}
	for _, list := range [][]map[string]any{s.Manifests, s.Objects} {
		for _, m := range list {
			for _, g := range RulesOf(m) {
				grant(g)
			}
		}
	}
	for _, st := range s.Steps {
		if r := st.Sent(); r != nil {
			add(r.Verb, r.APIGroup, r.Resource, r.Subresource)
		}
		for _, r := range st.expectedReviews() {
			for _, u := range append([]Review{r}, r.Unordered...) {
				add(u.Verb, u.Group, u.Resource, u.Subresource)
			}
		}
	}
	delete(set, "")
	return slices.Sorted(maps.Keys(set))
}

// ambiguous tells which of the names occur in the words, with one word each.
func ambiguous(names map[string]bool, words []string) map[string]string {
	all := make(map[string]string, len(names))
	for n := range names {
		all[n] = n + "-x" // any text that differs
	}
	together := newRenamer(all)
	out := map[string]string{}
	for _, w := range words {
		if together.rename(w) == w {
			continue // none of them: the usual case, decided in one pass
		}
		for n := range names {
			if _, known := out[n]; !known && Rename(w, map[string]string{n: n + "-x"}) != w {
				out[n] = w
			}
		}
	}
	return out
}
