package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// Verdicts on reviews per request, and those that are in no phase.
const (
	AllBlocks    = "all blocks"
	AsPredicted  = "as predicted"
	NotPredicted = "not as predicted"

	impersonationAlone = "impersonation alone"
)

// splitPhases returns the reviews in the steady state of a variant, or all its blocks if it has none, and its first contact. A block in which
// some agents had asked before and some not is in neither, but is judged.
func splitPhases(blocks []*run.Block) (reviews ReviewRate, first *ReviewRate) {
	var firsts, steady []*run.Block
	for _, b := range blocks {
		switch p := b.Predicted; {
		case p == nil || p.Requests == 0:
		case p.First == p.Requests:
			firsts = append(firsts, b)
		case p.First == 0:
			steady = append(steady, b)
		}
	}
	if len(firsts) > 0 {
		rate := measureReviews("first contact", firsts)
		first = &rate
	}
	if len(steady) > 0 {
		return measureReviews("steady state", steady), first
	}
	return measureReviews(AllBlocks, blocks), first
}

func measureReviews(of string, blocks []*run.Block) ReviewRate {
	r := ReviewRate{Of: of, Blocks: len(blocks)}
	var rates []float64
	var requests int64
	for _, b := range blocks {
		if requests += b.Sent; b.Sent > 0 {
			rates = append(rates, float64(countReviews(b))/float64(b.Sent))
		}
	}
	if requests == 0 {
		r.Verdict = "nothing was sent"
		return r
	}
	r.PerRequest, r.Bounded = statistics.MeanInterval(rates, level)
	counts, predicted := CountChecks(blocks), sumPredictions(blocks)
	for kind := range predicted {
		counts[kind] += 0 // those of which there are none, too
	}
	var low, high float64
	for _, kind := range slices.SortedFunc(maps.Keys(counts), run.ReviewKind.Compare) {
		check := CheckRate{ReviewKind: kind, PerRequest: float64(counts[kind]) / float64(requests)}
		if predicted != nil {
			check.Predicted = &Range{float64(predicted[kind].Low) / float64(requests), float64(predicted[kind].High) / float64(requests)}
			low, high = low+check.Predicted.Low, high+check.Predicted.High
		}
		r.Checks = append(r.Checks, check)
	}
	if predicted != nil {
		r.Predicted = &Range{low, high}
	}
	r.Verdict, _ = comparePrediction(blocks)
	return r
}

// sumPredictions sums the predictions of blocks by mode, verb and decision; nil if one has none.
func sumPredictions(blocks []*run.Block) map[run.ReviewKind]run.CheckRange {
	sums := map[run.ReviewKind]run.CheckRange{}
	for _, b := range blocks {
		if b.Predicted == nil || b.Predicted.Requests == 0 {
			return nil
		}
		for _, c := range b.Predicted.Checks {
			sum := sums[c.ReviewKind]
			sums[c.ReviewKind] = run.CheckRange{Low: sum.Low + c.Low, High: sum.High + c.High}
		}
	}
	return sums
}

// comparePrediction is about every block on its own: reviews are counts, of which a mean that is near the prediction,
// or an interval that touches it, says nothing. finding is the first block that is not as predicted.
func comparePrediction(blocks []*run.Block) (verdict string, finding *run.Block) {
	unknown, reason := 0, ""
	for _, b := range blocks {
		list, why := b.ComparePrediction()
		if len(list) > 0 && finding == nil {
			finding = b
		}
		if why != "" {
			unknown++
			reason = cmp.Or(reason, why)
		}
	}
	switch {
	case finding != nil:
		return NotPredicted, finding
	case unknown == len(blocks):
		return "not judged: " + reason, nil
	case unknown > 0:
		return fmt.Sprintf("not judged: in %d of %d blocks %s", unknown, len(blocks), reason), nil
	}
	return AsPredicted, nil
}

// CountChecks returns the reviews of blocks by mode, verb and decision.
func CountChecks(blocks []*run.Block) map[run.ReviewKind]int64 {
	sums := map[run.ReviewKind]int64{}
	for _, b := range blocks {
		for _, c := range b.Reviews {
			sums[c.ReviewKind] += c.Count
		}
	}
	return sums
}
