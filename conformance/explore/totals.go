package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// counts are metrics with what they have to be.
type counts map[string]int

// addCase adds what a case brings about in the metrics.
func (c counts) addCase(p *preparedCase, e *verdicts.Evidence) {
	if p.counts() {
		for i := range e.Steps {
			c.addChecks(&e.Steps[i])
		}
	}
	for _, prediction := range p.predicted {
		for _, d := range prediction.Prediction.Attempts {
			c[metricKey(verdicts.AttemptsMetric, d.Mode, d.Decision)] += d.Count
		}
	}
}

// addChecks counts the impersonation checks that were seen.
func (c counts) addChecks(o *verdicts.Observation) {
	decisions, _ := verdicts.DeriveDecisions(o.Reviews)
	for _, d := range decisions {
		if mode, ok := scenarios.ImpersonationMode(verdicts.Describe(d).Verb); ok {
			c[metricKey(verdicts.AuthorizationsMetric, mode, scenarios.DecisionLabel(d.Decision))]++
		}
	}
}

func metricKey(metric, mode, decision string) string {
	return fmt.Sprintf("%s{mode=%q,decision=%q}", metric, mode, decision)
}

const inHistogram = " in its histogram"

// compareTotals returns in what way a batch as a whole is not what its requests add up to, or nothing: reviews that belong
// to no request, and metrics, each with its histogram. arrivals is how many
// reviews arrived, and reviews how many of them belong to a request.
func compareTotals(arrivals, reviews int, metrics []verdicts.MetricSample, want counts) string {
	if arrivals != reviews {
		return fmt.Sprintf("%d reviews arrived, %d belong to a request", arrivals, reviews)
	}
	if metrics == nil {
		return ""
	}
	got, all := countMetrics(metrics), maps.Clone(want)
	for k, n := range want {
		all[k+inHistogram] = n
	}
	keys := maps.Clone(all)
	maps.Copy(keys, got)
	var wrong []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if all[k] != got[k] {
			wrong = append(wrong, fmt.Sprintf("%s: want +%d, got +%d", k, all[k], got[k]))
		}
	}
	return strings.Join(wrong, "; ")
}

// countMetrics adds up the increases of metrics.
func countMetrics(metrics []verdicts.MetricSample) counts {
	got := counts{}
	for _, m := range metrics {
		if base, isHistogram := strings.CutSuffix(m.Name, "_duration_seconds_count"); isHistogram {
			got[metricKey(base+"_total", m.Mode, m.Decision)+inHistogram] += m.Delta
			continue
		}
		got[metricKey(m.Name, m.Mode, m.Decision)] += m.Delta
	}
	return got
}
