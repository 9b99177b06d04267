package scenarios

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/internal/seq"
)

// Set is a checked collection of scenarios with unique IDs.
type Set struct {
	all  []*Scenario // sorted by ID
	byID map[string]*Scenario
}

func (s *Set) add(sc *Scenario) {
	i, _ := slices.BinarySearchFunc(s.all, sc.ID, func(e *Scenario, id string) int { return strings.Compare(e.ID, id) })
	s.all = slices.Insert(s.all, i, sc)
	s.byID[sc.ID] = sc
}

// All returns the scenarios sorted by ID. The caller may change the slice, but not the scenarios (see Bind).
func (s *Set) All() []*Scenario { return slices.Clone(s.all) }

// Len returns the number of scenarios.
func (s *Set) Len() int { return len(s.all) }

// Get returns the scenario with an ID.
func (s *Set) Get(id string) (*Scenario, bool) {
	sc, ok := s.byID[id]
	return sc, ok
}

// Only returns the set of the scenarios for which keep returns true.
func (s *Set) Only(keep func(*Scenario) bool) *Set {
	out := &Set{byID: map[string]*Scenario{}}
	for _, sc := range s.all {
		if keep(sc) {
			out.add(sc)
		}
	}
	return out
}

// Setups returns the names of all setups, sorted.
func (s *Set) Setups() []string {
	names := sets.New(seq.Map(s.all, func(sc *Scenario) string { return sc.Setup })...)
	return sets.List(names.Delete(""))
}
