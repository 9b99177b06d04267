package mutants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Campaign is a run of the suite against mutants.
type Campaign struct {
	Sources *Sources
	// Program is the kube-apiserver with all mutants in it.
	Program string
	// Plan says which scenarios run in which cell.
	Plan []conformance.CellPlan
	// Seed makes names unique.
	Seed int64
	// Workers is the number of control planes side by side.
	Workers int
	// Limit is how many of the scenarios that reach a mutant are run, those first that are the likeliest to catch it; 0
	// is all.
	Limit int
	// Progress is called with a line for people, from one goroutine at a time.
	Progress func(line string)

	baseline []*cellBaseline
	killers  killers
	servers  atomic.Int64 // started so far
	mu       sync.Mutex
}

// Measure runs the suite against the unmutated program, which has to pass, and finds out which scenarios reach
// which mutants.
func (c *Campaign) Measure(ctx context.Context) error {
	begin := time.Now()
	cells := make([]*cellBaseline, len(c.Plan))
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(c.Workers)
	for i, plan := range c.Plan {
		if plan.Count(conformance.Run) == 0 {
			continue
		}
		group.Go(func() (err error) {
			if cells[i], err = c.measureCell(inGroup, plan); err != nil {
				return fmt.Errorf("%s: %w", plan.Target.Cell.Name, err)
			}
			c.say("%s: the unmutated program passes %d scenarios, which reach %d mutants",
				plan.Target.Cell.Name, len(cells[i].all), len(cells[i].reached))
			return nil
		})
	}
	if err := causeOr(ctx, group.Wait()); err != nil {
		return err
	}
	c.baseline = slices.DeleteFunc(cells, func(b *cellBaseline) bool { return b == nil })
	slices.SortStableFunc(c.baseline, func(a, b *cellBaseline) int { return len(b.all) - len(a.all) })
	c.say("measured in %.0f s", time.Since(begin).Seconds())
	return nil
}

// causeOr is why ctx has ended, if it has, and otherwise err.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// Reached says whether the suite reaches the place of a mutant.
func (c *Campaign) Reached(number int) bool {
	return slices.ContainsFunc(c.baseline, func(b *cellBaseline) bool { return len(b.reached[number]) > 0 || b.atStart[number] })
}

func (c *Campaign) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Progress(fmt.Sprintf(format, args...))
}

// Run runs the suite against each mutant and calls done with each result, from one goroutine at a time. An error
// means that the run is not complete. It goes from cell to cell, so that there are as many servers as workers; a mutant
// is done with when it is caught, and otherwise after the last cell.
func (c *Campaign) Run(ctx context.Context, mutants []Mutant, done func(Result)) error {
	results := make([]Result, len(mutants))
	for i, m := range mutants {
		results[i] = Result{Mutant: m, Status: NotCovered}
	}
	for n, base := range c.baseline {
		group, inGroup := errgroup.WithContext(ctx)
		var next atomic.Int64
		for range c.Workers {
			group.Go(func() (err error) {
				w := &worker{campaign: c, base: base}
				defer func() { err = errors.Join(err, w.drop()) }()
				for i := next.Add(1) - 1; int(i) < len(results) && inGroup.Err() == nil; i = next.Add(1) - 1 {
					r := &results[i]
					if r.Status.Caught() {
						continue
					}
					if err := w.mutant(inGroup, r); err != nil {
						return fmt.Errorf("mutant %s: %w", r.Key, err)
					}
					if r.Status.Caught() || n == len(c.baseline)-1 {
						c.mu.Lock()
						done(*r)
						c.mu.Unlock()
					}
				}
				return nil
			})
		}
		if err := causeOr(ctx, group.Wait()); err != nil {
			return err
		}
	}
	return nil
}

// furtherScenarios is how many more may kill a mutant that was detected: a difference says more than results that
// cannot be judged.
const furtherScenarios = 5

// quick runs scenarios that do not wait until one kills the mutant, or so many in a row cannot be set up.
func (c *Campaign) quick(ctx context.Context, s *mutantServer, quick []*scenarios.Scenario, patience int, result *Result) {
	left := len(quick)
	result.broken = 0
	for i, scenario := range quick {
		if ctx.Err() != nil || left == 0 || result.broken == patience {
			return
		}
		left--
		before := result.Status
		o := s.try(ctx, scenario)
		c.note(result, scenario, o)
		if o.setup && !o.unsteady {
			result.broken++
			slices.SortStableFunc(quick[i+1:], compareSetups)
		} else {
			result.broken = 0
		}
		if result.Status == Killed {
			return
		}
		if result.Status != before {
			left = furtherScenarios
		}
	}
}

// compareSetups orders scenarios by how much has to work before their first request. Tokens of service accounts come first: if
// they are what is broken, no scenario that needs one gets to its requests. Then come grants, because it takes longest to find
// out that a grant does not come into force.
func compareSetups(a, b *scenarios.Scenario) int {
	return cmp.Or(cmp.Compare(countTokens(a), countTokens(b)), cmp.Compare(len(a.Grants), len(b.Grants)))
}

// countTokens returns how many tokens of service accounts the setup of a scenario asks the API server for.
func countTokens(s *scenarios.Scenario) (n int) {
	for _, r := range s.Requestors {
		if r.ServiceAccount != nil {
			n++
		}
	}
	return n
}

// waiting runs scenarios that wait, side by side, until one catches the mutant.
func (c *Campaign) waiting(ctx context.Context, s *mutantServer, waiting []*scenarios.Scenario, result *Result) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, scenario := range waiting {
		wg.Go(func() {
			o := s.try(ctx, scenario)
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() == nil && c.note(result, scenario, o) {
				cancel()
			}
		})
	}
	wg.Wait()
}

// note puts an outcome into the result, and says whether it catches the mutant.
func (c *Campaign) note(result *Result, scenario *scenarios.Scenario, o outcome) bool {
	result.Tried++
	switch {
	case o.Verdict == verdicts.Passed:
		return false
	case o.unsteady || o.setup:
		result.Unsteady = append(result.Unsteady, scenario.ID)
		return false
	case o.Verdict == verdicts.Failed:
		result.Status = Killed
	case result.Status == Detected:
		return true
	default:
		result.Status = Detected
	}
	result.Scenario, result.Blame = scenario.ID, string(o.Blame)
	result.Difference = firstLine(o.Reason)
	if len(o.Differences) > 0 {
		d := o.Differences[0]
		result.Difference = fmt.Sprintf("step %d: %s: want %s, got %s", d.Step, d.Field, d.Want, d.Got)
	}
	c.killers.killed(result.Mutant, scenario.ID)
	return true
}

// Status is what became of a mutant.
type Status string

const (
	// Killed is the status of a mutant on which some scenario failed three times in a row.
	Killed Status = "killed"
	// Detected is the status of a mutant whose run could not be judged, which is not a pass either.
	//
	// The recorder and the API server's own counts
	// disagree, an audit event is missing, an answer broke off.
	Detected Status = "detected (invalid)"
	// Refused: the API server did not start, or the witness found it to be another one than was asked for.
	Refused Status = "refused"
	// Survived: every scenario that reaches the change passed.
	Survived Status = "survived"
	// NotCovered is the status of a mutant whose changed place no scenario reaches.
	NotCovered Status = "not covered"
	// Equivalent is the status of a mutant that no client can tell from the original; each has an argument.
	Equivalent Status = "equivalent"
)

// Caught says whether the suite told the mutant from the original.
func (s Status) Caught() bool { return s == Killed || s == Detected || s == Refused }

// Result is what became of one mutant.
type Result struct {
	Mutant
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

	// broken is how many scenarios, the last ones that were run, could not be set up.
	broken int
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

func (k *killers) killed(m Mutant, scenario string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kill == nil {
		k.kill = map[[2]string]int{}
	}
	k.kill[[2]string{m.File + m.Function, scenario}]++
	k.kill[[2]string{"", scenario}]++
}

// order sorts candidates: those that killed mutants of the same function, then one of every kind, then another of
// every kind; among them those that killed others, then those that take the shortest. Of a kind are scenarios that
// reach the same places of the function. Those that run kubectl come last, and those that wait apart.
func (k *killers) order(m Mutant, base *cellBaseline, candidates []*scenarios.Scenario) (quick, waiting []*scenarios.Scenario) {
	k.mu.Lock()
	defer k.mu.Unlock()
	quick, waiting = split(candidates)
	more := func(place string, a, b *scenarios.Scenario) int {
		return k.kill[[2]string{place, b.ID}] - k.kill[[2]string{place, a.ID}]
	}
	slices.SortStableFunc(quick, func(a, b *scenarios.Scenario) int {
		return cmp.Or(more("", a, b), cmp.Compare(base.took[a.ID], base.took[b.ID]))
	})
	kinds, seen, round := base.kinds(m), map[string]int{}, map[string]int{}
	for _, s := range quick {
		round[s.ID] = seen[kinds[s.ID]]
		seen[kinds[s.ID]]++
		if s.RunsKubectl() { // it takes as long as several others
			round[s.ID] += len(quick)
		}
	}
	slices.SortStableFunc(quick, func(a, b *scenarios.Scenario) int {
		return cmp.Or(more(m.File+m.Function, a, b), cmp.Compare(round[a.ID], round[b.ID]))
	})
	return quick, waiting
}
