package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
)

// Judge returns what a run shows. The outcome is, in this order:
//
//  1. inconclusive if a check of the measuring does not hold or could not be made:
//     where the ground is not firm, a failure may be the ground's;
//  2. failed if a limit is broken;
//  3. inconclusive if a limit cannot be judged, or if there was nothing to judge;
//  4. passed otherwise: at least one limit was judged, and all hold.
//
// That reviews per request are as predicted is a limit of its own, always.
func Judge(r run.Run, t Thresholds) Result {
	result := Result{Thresholds: t, Variants: []Variant{}, Comparisons: []Comparison{}, Limits: []LimitResult{}}
	variants, groups := GroupVariants(&r), groupPairs(&r)
	for _, g := range variants {
		v := MeasureVariant(g, r.Steady)
		if r.OwnUnknown {
			v.Reviews.Of = impersonationAlone + ", " + v.Reviews.Of
		}
		result.Variants = append(result.Variants, v)
	}
	result.Comparisons = append(result.Comparisons, compareAll(groups, t, r.Machine.CPUs)...)
	result.SeparateLevels()
	result.Checks = makeChecks(&r, variants, groups, result.Comparisons, t)
	result.judgeVariants(variants)
	result.judgeGrowth(r.Growth)
	result.judgeComparisons()
	result.judgeMissing(groups)
	result.markCertain(&r)
	result.Notes = append(result.Notes, r.Notes...)
	result.noteClocks(r.Clocks)
	result.noteBlocks(r.Blocks)
	result.conclude()
	return result
}

// markCertain marks the broken limits that nothing which disturbed the run can explain. An identity of somebody else is
// always certain. Other reviews than predicted are certain if the user ended the run only after they had been found.
func (r *Result) markCertain(source *run.Run) {
	isEndedAlone := source.EndedAfterFinding && len(source.Problems) == 0
	for i := range r.Limits {
		l := &r.Limits[i]
		switch l.Name {
		case IdentitiesWanted:
			l.Certain = l.State == Broken
		case PredictedReviews:
			l.Certain = l.State == Broken && isEndedAlone
		}
	}
}

// noteBlocks adds the texts of errors without a class of their own, and how many reviews were given up.
func (r *Result) noteBlocks(blocks []run.Block) {
	for i, b := range blocks {
		for _, text := range b.Odd {
			r.Notes = append(r.Notes, fmt.Sprintf("block %d (%s on %s): an error that has no class: %s", i, b.Variant, b.Server, text))
		}
		if b.GivenUp > 0 {
			r.Notes = append(r.Notes,
				fmt.Sprintf(
					"block %d (%s on %s): the API server gave up %s of its authorizer: they may have been counted or not",
					i,
					b.Variant,
					b.Server,
					reports.Plural(int(b.GivenUp), "review"),
				),
			)
		}
	}
}

// noteClocks adds how far the clocks of shards were apart. If that was too far, it is among the problems of the run.
func (r *Result) noteClocks(clocks []run.Clock) {
	if len(clocks) == 0 {
		return
	}
	most := slices.MaxFunc(clocks, func(x, y run.Clock) int {
		return cmp.Compare(time.Duration(x.Offset).Abs(), time.Duration(y.Offset).Abs())
	})
	r.Notes = append(r.Notes,
		fmt.Sprintf("the clocks of %d shards were compared with the coordinator's: the largest offset is %s ± %s (%s)",
			len(clocks), time.Duration(most.Offset), time.Duration(most.Uncertainty), most.Shard),
	)
}

func (r *Result) conclude() {
	var ground, broken, unknown []string
	for _, c := range r.Checks {
		if c.State != Holds {
			ground = append(ground, fmt.Sprintf("%s: %s", c.Name, c.Detail))
		}
	}
	for _, l := range r.Limits {
		reason := fmt.Sprintf("%s: %s: %s", l.Of, l.Name, l.Detail)
		switch l.State {
		case Holds:
		case Broken:
			broken = append(broken, reason)
		default:
			unknown = append(unknown, reason)
		}
	}
	if len(r.Limits) == 0 {
		unknown = append(unknown, NothingJudged)
	}
	if len(r.Checks) == 0 {
		ground = append(ground, "the measuring was not checked")
	}
	switch {
	case len(ground) > 0:
		r.Outcome = Inconclusive
	case len(broken) > 0:
		r.Outcome = Failed
	case len(unknown) > 0:
		r.Outcome = Inconclusive
	default:
		r.Outcome = Passed
	}
	r.Reasons = slices.Concat([]string{}, ground, broken, unknown)
	if r.Notes == nil {
		r.Notes = []string{}
	}
}

// NothingJudged says why a run without limits is inconclusive.
const NothingJudged = "nothing was judged: there is neither a threshold nor a prediction"
