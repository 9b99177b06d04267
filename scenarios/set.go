package scenarios

import (
	"regexp"
	"slices"
	"strings"
)

// Set is a checked collection of scenarios with unique IDs.
type Set struct {
	all  []*Scenario // sorted by ID
	byID map[string]*Scenario

	renamed, restated Errors
}

// Renamed lists the fields of the files that have their old name. It is read for
// one release.
func (s *Set) Renamed() Errors { return s.renamed }

// Restated lists the expectations of the files that say only what follows from
// others: they can be left out, and are judged all the same.
func (s *Set) Restated() Errors { return s.restated }

// add inserts a scenario whose ID is new.
func (s *Set) add(sc *Scenario) {
	i, _ := slices.BinarySearchFunc(s.all, sc.ID, func(e *Scenario, id string) int { return strings.Compare(e.ID, id) })
	s.all = slices.Insert(s.all, i, sc)
	s.byID[sc.ID] = sc
}

// All returns the scenarios sorted by ID. The slice is the caller's; the
// scenarios are shared and must not be changed (Bind gives a copy).
func (s *Set) All() []*Scenario { return slices.Clone(s.all) }

// Len is the number of scenarios.
func (s *Set) Len() int { return len(s.all) }

// Get returns the scenario of that ID.
func (s *Set) Get(id string) (*Scenario, bool) {
	sc, ok := s.byID[id]
	return sc, ok
}

// Predicate selects scenarios by what they are; by what they need of a target,
// see Scenario.Selected.
type Predicate func(*Scenario) bool

// Filter returns the scenarios that all predicates hold for, sorted by ID.
func (s *Set) Filter(keep ...Predicate) []*Scenario {
	var out []*Scenario
	for _, sc := range s.all {
		if !slices.ContainsFunc(keep, func(p Predicate) bool { return !p(sc) }) {
			out = append(out, sc)
		}
	}
	return out
}

// Focus keeps the scenarios whose ID matches.
func Focus(re *regexp.Regexp) Predicate {
	return func(s *Scenario) bool { return re.MatchString(s.ID) }
}

// Skip leaves out the scenarios whose ID matches.
func Skip(re *regexp.Regexp) Predicate {
	return func(s *Scenario) bool { return !re.MatchString(s.ID) }
}

// Levels keeps the scenarios of one of the levels; none given keeps all.
func Levels(levels ...Level) Predicate {
	return func(s *Scenario) bool { return len(levels) == 0 || slices.Contains(levels, s.Level) }
}

// Suite keeps the scenarios below a folder, for example "kep-5284".
func Suite(folder string) Predicate {
	prefix := strings.Trim(folder, "/") + "/"
	return func(s *Scenario) bool { return prefix == "/" || strings.HasPrefix(s.ID, prefix) }
}
