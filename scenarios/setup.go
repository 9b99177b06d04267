package scenarios

import (
	"maps"
	"reflect"
	"slices"
)

// Setups lists the names of all setups, sorted.
func (s *Set) Setups() []string {
	names := map[string]bool{}
	for _, sc := range s.all {
		if sc.Setup != "" {
			names[sc.Setup] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// checkSetup applies the rules about setups, once all scenarios are known: a scenario is compared with the first
// of its setup.
func checkSetup(f *loadedFile, set *Set, broken map[string]bool) {
	s, src := f.scenario, f.source
	if s.Setup == "" || !f.readable || src.failedAt(nil) {
		return
	}
	for i, st := range s.Steps {
		if st.Sent() == nil && st.Wait == 0 {
			src.failAt(at("steps", i), "the step changes what the setup %q keeps (expected requests and waits only)", s.Setup)
		}
	}
	mates := set.Only(func(o *Scenario) bool { return o.Setup == s.Setup }).all
	first := mates[0]
	if len(mates) == 1 {
		src.failAt(at("setup"), "no other scenario has the setup %q (expected two at least, for different versions or gates)", s.Setup)
	}
	if first == s || broken[first.ID] {
		return
	}
	for field, equal := range map[string]bool{
		"requestors": reflect.DeepEqual(s.Requestors, first.Requestors),
		"grants":     reflect.DeepEqual(s.Grants, first.Grants),
		"fixtures":   slices.Equal(s.Fixtures, first.Fixtures),
		"objects":    reflect.DeepEqual(s.Objects, first.Objects),
		"policy":     reflect.DeepEqual(s.Policy, first.Policy),
	} {
		if !equal {
			src.failAt(at(field), "%s are not those of %s, which has the same setup (expected the same)", field, first.ID)
		}
	}
}
