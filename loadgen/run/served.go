package run

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// ServedRequests is how long requests of one kind took according to the API server: by its own indicator for the objectives of
// Kubernetes (apiserver_request_sli_duration_seconds), without the waits for admission webhooks and in the queues of
// priority and fairness.
type ServedRequests struct {
	// Verb and Scope are labels of the indicator: LIST, and resource, namespace or cluster.
	Verb  string `json:"verb"`
	Scope string `json:"scope"`
	Count int64  `json:"count"`
	// Within is how many requests took no longer than an upper bound in seconds, by the bound as the server writes it.
	Within map[string]int64 `json:"within"`
}

// Objective returns what Kubernetes promises for 99 % of such requests: 1 s, or 30 s for a list of a namespace or of
// everything (https://github.com/kubernetes/community/blob/master/sig-scalability/slos/api_call_latency.md).
func (s ServedRequests) Objective() time.Duration {
	if s.Verb == "LIST" && s.Scope != "resource" {
		return 30 * time.Second
	}
	return time.Second
}

// WithinObjective returns the part of the requests that took no longer than promised.
func (s ServedRequests) WithinObjective() float64 {
	for bound, n := range s.Within {
		if seconds, err := strconv.ParseFloat(bound, 64); err == nil && seconds == s.Objective().Seconds() {
			return float64(n) / float64(max(1, s.Count))
		}
	}
	return 0
}

// Bound returns the smallest bound in seconds within which a part of the requests was answered, or +Inf if there is
// none.
func (s ServedRequests) Bound(part float64) float64 {
	least := math.Inf(1)
	for text, n := range s.Within {
		seconds, err := strconv.ParseFloat(text, 64)
		if err == nil && float64(n) >= part*float64(s.Count) {
			least = min(least, seconds)
		}
	}
	return least
}

// MergeServed adds up the counts of blocks for each kind, in order.
func MergeServed(blocks []*Block) []ServedRequests {
	type kind struct{ verb, scope string }
	all := map[kind]ServedRequests{}
	for _, b := range blocks {
		for _, s := range b.Served {
			k := kind{s.Verb, s.Scope}
			sum := all[k]
			sum.Verb, sum.Scope, sum.Count, sum.Within = s.Verb, s.Scope, sum.Count+s.Count, Sum(sum.Within, s.Within)
			all[k] = sum
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b ServedRequests) int {
		return cmp.Or(cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Scope, b.Scope))
	})
}
