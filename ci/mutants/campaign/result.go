// Package campaign runs the suite against each mutant of a kube-apiserver.
package campaign

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/scenarios"
)

// Status is what became of a mutant.
type Status string

const (
	// Killed: a scenario failed, every time it was run.
	Killed Status = "killed"
	// Detected: a scenario could not be judged, any time it was run: the recorder and the API server's own counts
	// disagree, an audit event is missing, an answer broke off.
	Detected Status = "detected (invalid)"
	// Refused: the API server did not start, or the witness found it to be another one than was asked for.
	Refused Status = "refused"
	// Survived: every scenario that reaches the change passed.
	Survived Status = "survived"
	// NotCovered: no scenario reaches the change.
	NotCovered Status = "not covered"
	// Equivalent: argued to be no change that a client can see.
	Equivalent Status = "equivalent"
)

// Caught says whether the suite told the mutant from the original.
func (s Status) Caught() bool { return s == Killed || s == Detected || s == Refused }

// Result is what became of one mutant.
type Result struct {
	mutate.Mutant
	Status Status `json:"status"`
	// Cell and Scenario are where it was caught.
	Cell     string `json:"cell,omitempty"`
	Scenario string `json:"scenario,omitempty"`
	// Difference is the first one that was seen, or what broke; Blame is the blame of the failure.
	Difference string `json:"difference,omitempty"`
	Blame      string `json:"blame,omitempty"`
	// Unsteady are scenarios that did not pass, and then did, or could not be set up. They do not count.
	Unsteady []string `json:"unsteady,omitempty"`
	// Tried is the number of scenarios that were run.
	Tried int `json:"tried"`
	// Took is the time in seconds, starting control planes included.
	Took float64 `json:"seconds"`
	// Reason is why the mutant is equivalent.
	Reason string `json:"reason,omitempty"`
}

// lineLimit is how much is kept of what was seen.
const lineLimit = 300

// firstLine is the first line of a text, cut if it is very long.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(line); len(runes) > lineLimit {
		return string(runes[:lineLimit]) + "…"
	}
	return line
}

// killers learns which scenarios kill, so that they run first.
type killers struct {
	mu   sync.Mutex
	kill map[[2]string]int // function, or "" for all; scenario
}

func (k *killers) killed(m mutate.Mutant, scenario string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kill == nil {
		k.kill = map[[2]string]int{}
	}
	k.kill[[2]string{m.File + m.Function, scenario}]++
	k.kill[[2]string{"", scenario}]++
}

// order sorts candidates: those that killed mutants of the same function, then those that killed others, then those
// that take the shortest. Scenarios that wait come last, apart.
func (k *killers) order(m mutate.Mutant, base *cellBaseline, candidates []*scenarios.Scenario) (quick, waiting []*scenarios.Scenario) {
	k.mu.Lock()
	defer k.mu.Unlock()
	quick, waiting = split(candidates)
	slices.SortStableFunc(quick, func(a, b *scenarios.Scenario) int {
		more := func(place string) int {
			return k.kill[[2]string{place, b.ID}] - k.kill[[2]string{place, a.ID}]
		}
		return cmp.Or(more(m.File+m.Function), more(""), cmp.Compare(base.took[a.ID], base.took[b.ID]))
	})
	return quick, waiting
}
