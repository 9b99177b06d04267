package campaign

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/scenarios"
)

// killers learns which scenarios kill, so that they run first.
type killers struct {
	mu         sync.Mutex
	byFunction map[[2]string]int // function, scenario
	all        map[string]int
}

func newKillers() *killers {
	return &killers{byFunction: map[[2]string]int{}, all: map[string]int{}}
}

func (k *killers) killed(m mutate.Mutant, scenario string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byFunction[[2]string{m.File + m.Function, scenario}]++
	k.all[scenario]++
}

// affinity counts the words of a scenario's ID that are in the name of the
// mutant's file or function: scenarios about caches belong to cache.go.
func affinity(id, place string) int {
	n := 0
	for _, word := range strings.FieldsFunc(id, func(r rune) bool { return r == '/' || r == '-' }) {
		if word = strings.TrimSuffix(word, "s"); len(word) >= 4 && strings.Contains(place, word) {
			n++
		}
	}
	return n
}

// order sorts candidates: those that killed mutants of the same function, then
// those about the same matter, then those that killed others, then those that take the shortest. Scenarios that
// wait come last, apart.
func (k *killers) order(m mutate.Mutant, base *CellBaseline, candidates []*scenarios.Scenario) (quick, waiting []*scenarios.Scenario) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range candidates {
		if s.Waits() > 0 {
			waiting = append(waiting, s)
		} else {
			quick = append(quick, s)
		}
	}
	place := strings.ToLower(m.File + " " + m.Function)
	slices.SortStableFunc(quick, func(a, b *scenarios.Scenario) int {
		in := func(s *scenarios.Scenario) int { return k.byFunction[[2]string{m.File + m.Function, s.ID}] }
		return cmp.Or(cmp.Compare(in(b), in(a)), cmp.Compare(affinity(b.ID, place), affinity(a.ID, place)),
			cmp.Compare(k.all[b.ID], k.all[a.ID]), cmp.Compare(base.Took[a.ID], base.Took[b.ID]))
	})
	return quick, waiting
}
