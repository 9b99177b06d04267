package judge

import (
	"github.com/authzconf/authzconf/loadgen/run"
)

// Phases of agents that a server has met or not, in which reviews per request are counted.
const (
	// FirstContact is of blocks in which each request was the first of its agent.
	FirstContact = "first contact"
	// SteadyState is of what is settled of blocks, in whole cycles of their schedule.
	SteadyState = "steady state"
	// AskedBefore is of blocks in which every agent had asked before. They begin with what the server remembers then, which is
	// not what it remembers in the steady state.
	AskedBefore = "asked before"
	// AllBlocks is of blocks that are in no other phase.
	AllBlocks = "all blocks"
)

// counted is what of a block reviews per request are computed from.
type counted struct {
	sent    int64
	reviews []run.ReviewCount
	checks  []run.CheckRange
}

// countWhole counts a block from its beginning.
func countWhole(b *run.Block) counted {
	c := counted{sent: b.Sent, reviews: b.Reviews}
	if isPredicted(b) {
		c.checks = b.Predicted.Checks
	}
	return c
}

// countSettled counts what is settled of a block.
func countSettled(b *run.Block) counted {
	return counted{b.Settled.Sent, b.Settled.Reviews, b.Settled.Checks}
}

func isPredicted(b *run.Block) bool { return b.Predicted != nil && b.Predicted.Requests > 0 }

// splitPhases returns the reviews of a variant in the steady state, or else where all had asked before, or else of all its
// blocks, and those at first contact. steady says that the length of blocks is that of a steady state. A block in which some
// agents had asked before and some had not is in none of the phases, but is judged.
func splitPhases(blocks []*run.Block, steady bool) (reviews ReviewRate, first *ReviewRate) {
	var firsts, before, settled []*run.Block
	for _, b := range blocks {
		switch {
		case !isPredicted(b):
		case b.Predicted.First == b.Predicted.Requests:
			firsts = append(firsts, b)
		case b.Settled != nil && b.Settled.First == 0:
			settled = append(settled, b)
		case b.Predicted.First == 0:
			before = append(before, b)
		}
	}
	if len(firsts) > 0 {
		rate := measureReviews(FirstContact, firsts, countWhole)
		first = &rate
	}
	switch {
	case steady && len(settled) > 0:
		return measureReviews(SteadyState, settled, countSettled), first
	case steady && len(before) > 0:
		return measureReviews(SteadyState, before, countWhole), first
	case len(before) > 0:
		return measureReviews(AskedBefore, before, countWhole), first
	}
	return measureReviews(AllBlocks, blocks, countWhole), first
}

// PredictedRate returns the range of predicted reviews per request.
func PredictedRate(checks []run.CheckRange, requests int64) Range {
	var low, high int64
	for _, c := range checks {
		low, high = low+c.Low, high+c.High
	}
	n := float64(max(1, requests))
	return Range{Low: float64(low) / n, High: float64(high) / n}
}
