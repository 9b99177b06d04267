package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// These are verdicts on reviews per request.
const (
	AsPredicted  = "as predicted"
	NotPredicted = "not as predicted"

	impersonationAlone = "impersonation alone"
)

// measureReviews returns the reviews per request of the counted parts of blocks.
func measureReviews(subject string, blocks []*run.Block, count func(*run.Block) countedPart) ReviewRate {
	r := ReviewRate{Of: subject, Blocks: len(blocks)}
	var rates []float64
	var all countedPart
	unpredicted := false
	for _, b := range blocks {
		c := count(b)
		if c.sent > 0 {
			rates = append(rates, float64(sumReviews(c.reviews))/float64(c.sent))
		}
		all.sent += c.sent
		all.reviews, all.checks = append(all.reviews, c.reviews...), append(all.checks, c.checks...)
		unpredicted = unpredicted || !isPredicted(b)
	}
	if all.sent == 0 {
		r.Verdict = "nothing was sent"
		return r
	}
	if unpredicted {
		all.checks = nil
	} else {
		r.Predicted = new(PredictedRate(all.checks, all.sent))
	}
	r.PerRequest, r.Bounded = statistics.MeanInterval(rates, level)
	r.Checks = all.rates(!unpredicted)
	r.Verdict, _ = comparePrediction(blocks)
	return r
}

// rates returns the reviews per request by mode, verb and decision, including those that were only predicted.
func (c countedPart) rates(predicted bool) (rates []CheckRate) {
	sums, ranges := map[run.ReviewKind]int64{}, map[run.ReviewKind][]run.CheckRange{}
	for _, n := range c.reviews {
		sums[n.ReviewKind] += n.Count
	}
	for _, check := range c.checks {
		sums[check.ReviewKind] += 0
		ranges[check.ReviewKind] = append(ranges[check.ReviewKind], check)
	}
	for _, kind := range slices.SortedFunc(maps.Keys(sums), run.ReviewKind.Compare) {
		rate := CheckRate{ReviewKind: kind, PerRequest: float64(sums[kind]) / float64(c.sent)}
		if predicted {
			rate.Predicted = new(PredictedRate(ranges[kind], c.sent))
		}
		rates = append(rates, rate)
	}
	return rates
}

// comparePrediction compares every block by itself with its prediction. Reviews are counts, so a mean near the
// prediction, or an interval that touches it, says nothing. finding is the first block that is not as predicted.
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
