package judge

import (
	"fmt"
	"maps"
	"slices"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
)

// checkCounters compares the counters of each block with one another, and the recorder's with the API server's.
func (c *checker) checkCounters(r *run.Run) {
	if !slices.ContainsFunc(r.Blocks, func(b run.Block) bool { return len(b.Attempts) > 0 }) {
		c.sound = "the counters agree; the API server has none of its own here, so that the recorder's stand alone"
	}
	byKind := slices.ContainsFunc(r.Blocks, func(b run.Block) bool { return len(b.Kinds) > 0 })
	for i := range r.Blocks {
		for _, text := range findContradictions(&r.Blocks[i], byKind) {
			c.wrongf("block %d%s", i, text)
		}
	}
}

// comparer collects the counters of a block that disagree.
type comparer struct{ list []string }

func (c *comparer) addf(format string, args ...any) {
	c.list = append(c.list, fmt.Sprintf(format, args...))
}

// compare records two counts of the same thing if they differ.
func (c *comparer) compare(what string, x, y int64) {
	if x != y {
		c.addf(": %s: %d and %d", what, x, y)
	}
}

// findContradictions returns which counters of a block contradict one another: sums, what is counted twice (by second,
// and by kind of request if the run has kinds), and what both the recorder and the API server count. Each text follows
// the number of the block.
func findContradictions(b *run.Block, byKind bool) []string {
	c := &comparer{}
	c.compareRequests(b)
	c.compareSeconds(b)
	c.compareLatencies(b, byKind)
	c.compareReviews(b)
	if isNegative(b) {
		c.addf(": a counter is negative")
	}
	for _, text := range b.Unreconciled {
		c.addf(": %s", text)
	}
	return c.list
}

func (c *comparer) compareRequests(b *run.Block) {
	if b.Planned != b.Sent+b.Dropped {
		c.addf(": %d planned, %d sent and %d dropped", b.Planned, b.Sent, b.Dropped)
	}
	if done := countAnswered(b); done > b.Sent || b.Latency.Count() > done || b.Late > b.Sent {
		c.addf(": %d sent, %d of them late, %d answered, %d latencies", b.Sent, b.Late, done, b.Latency.Count())
	}
	// An error may have no latency, but an answer has one.
	if without := countAnswered(b) - b.Latency.Count(); without > countErrors(b) {
		c.addf(": %d answers without a latency, and %d errors", without, countErrors(b))
	}
}

// compareSeconds compares the counts of the whole block with those of its seconds.
func (c *comparer) compareSeconds(b *run.Block) {
	if len(b.Timeline) == 0 {
		return
	}
	all := sumSeconds(b)
	c.compare("requests sent, in all and by second", b.Sent, all.Sent)
	c.compare("requests answered, in all and by second", countAnswered(b), all.Done)
	var wrong int64
	for _, n := range b.Wrong {
		wrong += n
	}
	c.compare("answers that were not expected, in all and by second", wrong, all.Errors)
	if all.Reviews > 0 { // where there is a webhook
		c.compare("reviews, by mode and by second", countReviews(b), all.Reviews)
	}
}

func sumSeconds(b *run.Block) (all run.Second) {
	for _, s := range b.Timeline {
		all.Sent, all.Done, all.Errors, all.Reviews = all.Sent+s.Sent, all.Done+s.Done, all.Errors+s.Errors, all.Reviews+s.Reviews
	}
	return all
}

func (c *comparer) compareLatencies(b *run.Block, byKind bool) {
	if byKind {
		var n int64
		for _, h := range b.Kinds {
			n += h.Count()
		}
		c.compare("latencies, of all requests and by kind", b.Latency.Count(), n)
	}
	c.compare("latencies from the planned and from the real time of sending", b.Latency.Count(), b.Service.Count())
	c.compare("requests sent, and how late they were", b.Sent, b.Lag.Count())
}

// compareReviews compares the reviews with the answers of the webhook, and with the checks that the API server counted.
func (c *comparer) compareReviews(b *run.Block) {
	n, latencies := countReviews(b), b.WebhookLatency.Count()
	unanswered := latencies == 0 && sumSeconds(b).Reviews > 0
	if latencies > n || unanswered {
		c.addf(": %d reviews, and %d latencies of the webhook", n, latencies)
	}
	unseen := slices.ContainsFunc(b.Reviews, func(r run.ReviewCount) bool { return r.Decision == run.Unseen })
	if len(b.Attempts) == 0 || b.FollowsServer || unseen {
		return // the API server was restarted, or sent fewer reviews than it made checks
	}
	for _, text := range b.CompareAttempts() {
		c.addf(": %s", text)
	}
}

func isNegative(b *run.Block) bool {
	counts := []int64{b.Planned, b.Sent, b.Late, b.Dropped, int64(b.Agents)}
	counts = slices.AppendSeq(slices.AppendSeq(counts, maps.Values(b.Answers)), maps.Values(b.Wrong))
	counts = append(counts, seq.Map(b.Reviews, func(n run.ReviewCount) int64 { return n.Count })...)
	return slices.Min(counts) < 0
}
