package load

import (
	"fmt"
	"math"
	"slices"

	"github.com/authzconf/authzconf/reports/load/run"
)

// contradictions are in what a block counts twice: by second, by kind of request, and by who counts it.
func contradictions(b *run.Block) (list []string) {
	same := func(what string, x, y int64) {
		if x != y {
			list = append(list, fmt.Sprintf("%s: %d and %d", what, x, y))
		}
	}
	var second run.Second
	for _, s := range b.Timeline {
		second.Sent, second.Done, second.Reviews = second.Sent+s.Sent, second.Done+s.Done, second.Reviews+s.Reviews
	}
	if len(b.Timeline) > 0 {
		same("requests sent, in all and by second", b.Sent, second.Sent)
		same("requests answered, in all and by second", answered(b), second.Done)
		if second.Reviews > 0 { // where there is a webhook
			same("reviews, by mode and by second", reviewsOf(b), second.Reviews)
		}
	}
	if len(b.Kinds) > 0 {
		var kinds int64
		for _, h := range b.Kinds {
			kinds += h.Count()
		}
		same("latencies, of all requests and by kind", b.Latency.Count(), kinds)
	}
	if n := reviewsOf(b); b.WebhookLatency.Count() > n {
		list = append(list, fmt.Sprintf("%d reviews, and %d latencies of the webhook", n, b.WebhookLatency.Count()))
	}
	if len(b.Attempts) == 0 || b.FollowsServer || slices.ContainsFunc(b.Reviews, func(r run.ReviewCount) bool { return r.Decision == run.Unseen }) {
		return list // the API server was restarted, or asked less often than it checked
	}
	var attempts, impersonation float64
	for _, a := range b.Attempts {
		attempts += a.Count
	}
	for _, r := range b.Reviews {
		if r.Mode != run.RequestMode {
			impersonation += float64(r.Count)
		}
	}
	same("checks of impersonation, by the recorder and by the API server", int64(impersonation), int64(math.Round(attempts)))
	return list
}
