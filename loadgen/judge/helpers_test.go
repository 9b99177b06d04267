package judge

import (
	"fmt"
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

func allOf() Thresholds {
	return Thresholds{
		Limits: Limits{ReviewsPerRequest: 2.5, P99: run.Duration(time.Second), SLOHeld: true, ErrorRate: new(0.001)},
		Margin: 0.05, MarginP99: 0.10,
	}
}

func reasonsText(r Result) string { return fmt.Sprintf("%s %q", r.Outcome, r.Reasons) }

// fewAnswers leaves one answer in each block for each kind of request that has an objective.
func fewAnswers(r *run.Run) {
	for i := range r.Blocks {
		one, rest := histogram.Histogram{}, histogram.Histogram{}
		one.RecordN(time.Millisecond, 1)
		rest.RecordN(time.Millisecond, r.Blocks[i].Latency.Count()-1)
		r.Blocks[i].Kinds = map[string]histogram.Histogram{"get": one, "watch": rest}
	}
}
