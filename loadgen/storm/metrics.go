package storm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
)

// counterFacts say what the counters of an API server can be compared with.
type counterFacts struct {
	// attempts means that the API server counts checks of impersonation.
	attempts bool
	// components means that others than the agents use it.
	components bool
	// restarted means that its last counts are lost, and that its counters began again: what priority and fairness did in
	// the block is not known then.
	restarted bool
}

// addMetrics adds what the API server counted to the block, and how that contradicts the recorder.
func addMetrics(b *run.Block, increased []sample, facts counterFacts) {
	evaluations := 0.0
	for _, s := range increased {
		switch {
		case s.ofRecorder():
			if s.labels["name"] == "recorder-front" {
				evaluations += s.value
			}
			if s.labels["result"] != "success" {
				b.GivenUp += int64(s.value)
			}
		case s.family == authorizationAttempts:
			b.Attempts = append(b.Attempts,
				run.AttemptCount{Mode: string(s.labels["mode"]), Decision: string(s.labels["decision"]), Count: s.value},
			)
		case strings.HasPrefix(s.family, flowControl) && !facts.restarted:
			addFlowControl(b, s)
		}
	}
	slices.SortFunc(b.Attempts, func(a, b run.AttemptCount) int {
		return cmp.Or(strings.Compare(a.Mode, b.Mode), strings.Compare(a.Decision, b.Decision))
	})
	b.Unreconciled = reconcile(b, int64(evaluations), facts)
}

// countWebhookCalls returns how many reviews the API server sent to authorization webhooks.
func countWebhookCalls(increased []sample) (calls int64) {
	for _, s := range increased {
		if s.family == webhookEvaluations {
			calls += int64(s.value)
		}
	}
	return calls
}

// ofRecorder reports whether a sample counts calls of the recorder.
func (s sample) ofRecorder() bool {
	return s.family == webhookEvaluations && strings.HasPrefix(string(s.labels["name"]), "recorder-")
}

func addFlowControl(b *run.Block, s sample) {
	counter, known := flowCounter(s)
	if !known {
		return
	}
	if b.FlowControl == nil {
		b.FlowControl = map[string]float64{}
	}
	b.FlowControl[counter.String()] += math.Round(s.value*1e6) / 1e6
}

// flowCounter identifies a series of priority and fairness: what was rejected and dispatched, and how long it waited.
func flowCounter(s sample) (c run.FlowCounter, known bool) {
	c.Level = string(s.labels["priority_level"])
	switch strings.TrimPrefix(s.family, flowControl) {
	case "rejected_requests_total":
		c.What, c.Further = "rejected", string(s.labels["reason"])
	case "dispatched_requests_total":
		c.What = "dispatched"
	case "request_wait_duration_seconds_sum":
		c.What, c.Further = "waited", "seconds"
	default:
		return c, false
	}
	return c, true
}

// reconcile compares the recorder with the server's metrics: all reviews with the calls of the webhook, and those of
// each mode with the attempts. If components ask too, whose reviews were left out, there may be more calls; if a server
// was restarted, there may be fewer. A review that the server gave up may have arrived at none, one or both ends.
func reconcile(b *run.Block, evaluations int64, facts counterFacts) (list []string) {
	total := seq.Sum(b.Reviews, func(r run.ReviewCount) int64 { return r.Count })
	given := ""
	if b.GivenUp > 0 {
		given = fmt.Sprintf(", and gave up %d", b.GivenUp)
	}
	tooMany := total > evaluations && !facts.restarted
	tooFew := total < evaluations-b.GivenUp && !facts.components
	if tooMany || tooFew {
		list = append(list, fmt.Sprintf("the recorder received %d reviews, the API server says it sent %d%s", total, evaluations, given))
	}
	if facts.attempts && !facts.restarted {
		list = append(list, b.CompareAttempts()...)
	}
	return list
}

// countChecks returns the checks that the API server counted, if nobody else counts: those of impersonation by mode,
// and all others that were allowed, without those of the background. fewer means that others asked less than that.
func countChecks(b *run.Block, increased []sample, background int64) (list []run.ReviewCount, fewer int64) {
	rest := -background
	for _, s := range increased {
		if s.family == decisions && s.labels["decision"] == "allowed" {
			rest += int64(s.value)
		}
	}
	for _, a := range b.Attempts {
		c := run.ReviewCount{ReviewKind: run.ReviewKind{Mode: a.Mode, Decision: "NoOpinion"}, Count: int64(a.Count)}
		if a.Decision == "allowed" {
			c.Decision = "Allow"
			rest -= c.Count
		}
		list = append(list, c)
	}
	b.Background = background
	return append(list, run.ReviewCount{ReviewKind: run.ReviewKind{Mode: run.RequestMode, Decision: "Allow"}, Count: max(0, rest)}), max(0, -rest)
}
