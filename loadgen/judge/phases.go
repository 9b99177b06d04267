package judge

import (
	"github.com/authzconf/authzconf/loadgen/run"
)

// These are phases of agents that a server has met or not. Reviews per request are counted separately in them.
const (
	// FirstContact is the phase of blocks in which each request was the first of its agent.
	FirstContact = "first contact"
	// SteadyState is the phase of the settled parts of blocks, in whole cycles of their schedule.
	SteadyState = "steady state"
	// AskedBefore is the phase of blocks in which every agent had asked before. They begin with what the server
	// remembers then, which differs from what it remembers in the steady state.
	AskedBefore = "asked before"
	// AllBlocks is the phase of blocks that are in no other phase.
	AllBlocks = "all blocks"
)

// countedPart is the part of a block from which reviews per request are computed.
type countedPart struct {
	sent    int64
	reviews []run.ReviewCount
	checks  []run.CheckRange
}

// countWhole counts a block from its beginning.
func countWhole(b *run.Block) countedPart {
	c := countedPart{sent: b.Sent, reviews: b.Reviews}
	if isPredicted(b) {
		c.checks = b.Predicted.Checks
	}
	return c
}

// countSettled counts the settled part of a block.
func countSettled(b *run.Block) countedPart {
	return countedPart{b.Settled.Sent, b.Settled.Reviews, b.Settled.Checks}
}

func isPredicted(b *run.Block) bool { return b.Predicted != nil && b.Predicted.Requests > 0 }

// splitPhases returns the reviews of a variant in the steady state or, if there are none, where all agents had asked
// before or, if there are none either, of all its blocks. It also returns those at first contact. steady means that
// blocks are as long as a steady state needs: then a whole block in which all agents had asked before is steady, too. A
// block in which only some agents had asked before is in none of the phases, but is judged.
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
