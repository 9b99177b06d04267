// Package model models conditional authorization as KEP-5681 describes it. It is pure, written from the text, and
// shares no code with k8s.io/apiserver.
//
//   - Evaluate is what a set of conditions amounts to. The tests have the API server around it (the union of a
//     chain, the authorization filter, what a SubjectAccessReview shows, and evaluation during admission, in the
//     lazy reading that the KEP proposes and in the eager one) and compare it with every API-server vector.
//   - Explore generates policies, requests and objects, and compares an authorizer with the first technical requirement
//     of the KEP: two phases amount to the decision that one phase with everything known amounts to.
//
// Where the text is silent: an authorizer's malformed answer counts as its failure mode, with an error, which is
// what the text says of malformed conditions; and in the eager reading a chain of which only one outcome is
// possible is concrete, which the text says of a conditional deny followed by Deny.
//
// CEL's && and || give the same whichever side is an error: error && false is false. The KEP says that they do not
// commute, and so keeps <residual> && false as a Deny condition; in CEL that is false, and nothing is lost without it.
//
// Explore computes the one phase without CEL: the generated expressions are made of parts of which is known, from
// the data, whether they are true, false or an error. So is what the first phase must answer: with what is not
// known yet as a fourth value, an answer may be conditional only if no concrete one is certain.
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

// Exploration says what is tried. The same exploration has the same cases.
type Exploration struct {
	// Wire is the revision in which the authorizer is asked.
	Wire  *wire.Revision
	Cases int
	Seed  int64
	// One is set if there is one authorizer, which holds one set of policies at a time; its only failure mode is Deny.
	One bool
}

// MaxDisagreements is how many disagreements end an exploration.
const MaxDisagreements = 10

// Explored is what came of an exploration.
type Explored struct {
	Counts
	// Disagreements are in the order of their cases.
	Disagreements []Disagreement
	// Stopped is set if there were too many to go on, or if it was interrupted.
	Stopped bool
}

// Explore tries cases until there are too many disagreements or the context ends.
func Explore(ctx context.Context, subject Subject, o Exploration) (*Explored, error) {
	found := &Explored{Counts: NewCounts()}
	var mu sync.Mutex
	err := o.each(ctx, func(n int) (goOn bool, err error) {
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
		found.Counts.Add(judged.Counts)
		if judged.Disagreement != nil {
			found.Disagreements = append(found.Disagreements, *judged.Disagreement)
		}
		return len(found.Disagreements) < MaxDisagreements, nil
	})
	slices.SortFunc(found.Disagreements, func(a, b Disagreement) int { return a.Case - b.Case })
	found.Stopped = found.Cases < o.Cases
	return found, err
}

// each calls do with the numbers of all batches, several at once unless there is one authorizer, as long as it goes on.
func (o Exploration) each(ctx context.Context, do func(n int) (goOn bool, err error)) error {
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

// Counts count cases.
type Counts struct {
	Cases int
	// ByFailureMode counts them by what a Deny policy in error counted as.
	ByFailureMode map[vectors.FailureMode]int
	// ByAnswer counts the answers of the first phase, ByDecision the final ones.
	ByAnswer   map[vectors.Decision]int
	ByDecision map[vectors.Decision]int
}

// NewCounts returns counts of nothing.
func NewCounts() Counts {
	return Counts{ByFailureMode: map[vectors.FailureMode]int{}, ByAnswer: map[vectors.Decision]int{}, ByDecision: map[vectors.Decision]int{}}
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
