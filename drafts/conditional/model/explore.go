// Package model models conditional authorization as KEP-5681 describes it. It is pure. It is written from the text, and
// shares no code with k8s.io/apiserver.
//
//   - Evaluate decides by a set of conditions. The tests add the API server around it: the union of a chain, the
//     authorization filter, the answer to a SubjectAccessReview, and evaluation during admission, in the lazy reading
//     that the KEP proposes and in the eager one. They compare the result with every API-server vector.
//   - Explore generates policies, requests and objects, and compares an authorizer with the first technical requirement
//     of the KEP: two phases must decide as one phase with everything known decides.
//
// Where the text is silent, the model decides as follows. An authorizer's malformed answer counts as its failure mode,
// with an error: the text says that of malformed conditions. In the eager reading, a chain with only one possible
// outcome is concrete: the text says that of a conditional deny followed by Deny.
//
// CEL's && and || have the same result whichever side is an error: error && false is false. The KEP says that they do not
// commute, and so keeps <residual> && false as a Deny condition. In CEL that condition is false, and nothing is lost
// without it.
//
// Explore computes the decision of one phase without CEL. The generated expressions consist of parts whose truth (true,
// false or an error) is known from the data. The right answers of the first phase are computed in the same way, with
// unknown as a fourth truth: an answer may be conditional only if no concrete decision is certain.
package model

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// Exploration says which cases are tried. Equal explorations have equal cases.
type Exploration struct {
	// Wire is the revision in which the authorizer is asked.
	Wire  *wire.Revision
	Cases int
	Seed  int64
	// One is set if there is one authorizer that has one set of policies at a time. Its only failure mode is Deny.
	One bool
}

// MaxDisagreements is the number of disagreements that ends an exploration.
const MaxDisagreements = 10

// ExplorationResult is the result of an exploration.
type ExplorationResult struct {
	Counts
	// Disagreements are the cases in which the authorizer is wrong, in the order of their numbers.
	Disagreements []Disagreement
	// Stopped is set if the exploration ended early, after too many disagreements or an interruption.
	Stopped bool
}

// Explore tries cases until there are too many disagreements or the context ends.
func Explore(ctx context.Context, subject Subject, o Exploration) (*ExplorationResult, error) {
	result := &ExplorationResult{Counts: NewCounts()}
	var mu sync.Mutex
	err := o.forEach(ctx, func(n int) (goOn bool, err error) {
		b, err := o.Observe(subject, n)
		if err != nil {
			return false, err
		}
		judged, err := o.Judge(n, b)
		if err != nil {
			return false, err
		}
		mu.Lock()
		defer mu.Unlock()
		result.Counts.Add(judged.Counts)
		if judged.Disagreement != nil {
			result.Disagreements = append(result.Disagreements, *judged.Disagreement)
		}
		return len(result.Disagreements) < MaxDisagreements, nil
	})
	slices.SortFunc(result.Disagreements, func(a, b Disagreement) int { return a.Case - b.Case })
	result.Stopped = result.Cases < o.Cases
	return result, err
}

// forEach calls do with the numbers of all batches until do returns false. It makes several calls at once unless there is
// one authorizer.
func (o Exploration) forEach(ctx context.Context, do func(n int) (goOn bool, err error)) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	var ended atomic.Bool
	work := func() error {
		for ctx.Err() == nil && !ended.Load() {
			n := int(next.Add(1) - 1)
			if n >= o.Batches() {
				return nil
			}
			goOn, err := do(n)
			if err != nil {
				return err
			}
			if !goOn {
				ended.Store(true)
			}
		}
		return nil
	}
	workers := runtime.GOMAXPROCS(0)
	if o.One {
		workers = 1
	}
	for range workers {
		group.Go(work)
	}
	return group.Wait()
}

// Counts are numbers of cases.
type Counts struct {
	Cases int
	// ByFailureMode has the numbers of cases by the failure mode of Deny policies in error.
	ByFailureMode map[vectors.FailureMode]int
	// ByAnswer counts the answers of the first phase, ByDecision the final ones.
	ByAnswer   map[vectors.Decision]int
	ByDecision map[vectors.Decision]int
}

// NewCounts returns counts of nothing.
func NewCounts() Counts {
	return Counts{
		ByFailureMode: map[vectors.FailureMode]int{},
		ByAnswer:      map[vectors.Decision]int{},
		ByDecision:    map[vectors.Decision]int{},
	}
}

// Add adds other counts.
func (c *Counts) Add(other Counts) {
	c.Cases += other.Cases
	addCounts(c.ByFailureMode, other.ByFailureMode)
	addCounts(c.ByAnswer, other.ByAnswer)
	addCounts(c.ByDecision, other.ByDecision)
}

func addCounts[K comparable](to, from map[K]int) {
	for key, n := range from {
		to[key] += n
	}
}
