package judge

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// VariantKey identifies a variant on a server.
type VariantKey struct{ Variant, Server string }

// KeyOf returns the variant and server of a block.
func KeyOf(b *run.Block) VariantKey { return VariantKey{b.Variant, b.Server} }

// String is the name by which reports know a variant on a server.
func (k VariantKey) String() string { return k.Variant + " on " + k.Server }

// Compare orders keys.
func (k VariantKey) Compare(other VariantKey) int {
	return cmp.Or(cmp.Compare(k.Variant, other.Variant), cmp.Compare(k.Server, other.Server))
}

// VariantBlocks are the blocks of a variant on a server.
type VariantBlocks struct {
	Key    VariantKey
	Name   string
	Blocks []*run.Block
}

// GroupVariants returns the blocks of each variant on each server, in order.
func GroupVariants(r *run.Run) (variants []VariantBlocks) {
	groups := map[VariantKey][]*run.Block{}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		groups[KeyOf(b)] = append(groups[KeyOf(b)], b)
	}
	for key, blocks := range groups {
		variants = append(variants, VariantBlocks{Key: key, Name: key.String(), Blocks: blocks})
	}
	slices.SortFunc(variants, func(x, y VariantBlocks) int { return x.Key.Compare(y.Key) })
	return variants
}

// level is the level of the intervals that are shown.
const level = 0.95

// MergeBlocks returns blocks as one, in the same way as shards of one block are added up.
func MergeBlocks(blocks []*run.Block) (all run.Block) {
	for _, b := range blocks {
		all.Merge(b)
	}
	return all
}

// MergeHistograms returns what the histograms of blocks have counted together.
func MergeHistograms(blocks []*run.Block, histogramOf func(*run.Block) *histogram.Histogram) (m histogram.Histogram) {
	for _, b := range blocks {
		m.Merge(histogramOf(b))
	}
	return m
}

// MeasureVariant returns what was measured of a variant on a server. steady means that blocks are as long as a steady
// state needs.
func MeasureVariant(g VariantBlocks, steady bool) Variant {
	all := MergeBlocks(g.Blocks)
	v := Variant{
		Variant: g.Key.Variant, Server: g.Key.Server, Agents: g.Blocks[0].Agents, Name: g.Name, Blocks: len(g.Blocks),
		Sent: all.Sent, Done: countAnswered(&all), Late: all.Late, Dropped: all.Dropped, Again: all.Again, Statuses: all.Answers,
	}
	webhook := MergeHistograms(g.Blocks, func(b *run.Block) *histogram.Histogram { return &b.WebhookLatency })
	var length time.Duration
	var reviews, webhookCalls int64
	for _, b := range g.Blocks {
		webhookCalls += b.WebhookCalls
		v.Errors += countErrors(b)
		v.FlowControl = run.Sum(v.FlowControl, b.FlowControl)
		length += time.Duration(b.Length)
		v.GeneratorRSS = max(v.GeneratorRSS, b.GeneratorRSS)
		reviews += countReviews(b)
		for _, second := range b.Timeline {
			v.MostReviews = max(v.MostReviews, second.Reviews)
		}
	}
	v.P50, v.P99 = BoundQuantile(&all.Latency, 0.5), BoundQuantile(&all.Latency, 0.99)
	v.P999, v.Max = milliseconds(all.Latency.Quantile(0.999)), milliseconds(all.Latency.Max())
	v.WebhookP99 = milliseconds(webhook.Quantile(0.99))
	if length > 0 {
		v.Rate = float64(v.Sent) / length.Seconds()
		v.ReviewsPerSecond = float64(reviews) / length.Seconds()
	}
	if v.Sent > 0 {
		v.WebhookCalls = float64(webhookCalls) / float64(v.Sent)
		v.GeneratorCPU = milliseconds(time.Duration(all.GeneratorCPU)) / float64(v.Sent)
	}
	v.Usage = measureUsage(g.Blocks)
	v.Reviews, v.FirstContact = splitPhases(g.Blocks, steady)
	return v
}

func measureUsage(blocks []*run.Block) (usage map[string]Usage) {
	var sent int64
	var length time.Duration
	for _, b := range blocks {
		sent, length = sent+b.Sent, length+time.Duration(b.Length)
		for name, c := range b.Cost {
			if usage == nil {
				usage = map[string]Usage{}
			}
			u := usage[name]
			u.PerRequest += milliseconds(time.Duration(c.CPU - c.Idle))
			u.Idle += time.Duration(c.Idle).Seconds()
			u.RSS, u.Allocated, u.GCs, u.PeakHeap = max(u.RSS, c.RSS), u.Allocated+float64(c.Allocated), u.GCs+c.GCs, max(u.PeakHeap, c.PeakHeap)
			usage[name] = u
		}
	}
	for name, u := range usage {
		u.PerRequest, u.Allocated, u.Idle = u.PerRequest/float64(max(sent, 1)), u.Allocated/float64(max(sent, 1)), u.Idle/length.Seconds()
		usage[name] = u
	}
	return usage
}

// BoundQuantile returns a quantile with bounds that hold whatever the distribution is, if there are enough samples.
func BoundQuantile(h *histogram.Histogram, q float64) QuantileBound {
	b := QuantileBound{Milliseconds: milliseconds(h.Quantile(q)), Samples: h.Count()}
	if low, high, ok := statistics.QuantileRanks(h.Count(), q, level); ok {
		b.Low, b.High, b.Bounded = milliseconds(h.Rank(low)), milliseconds(h.Rank(high)), true
	}
	return b
}

func countReviews(b *run.Block) int64 { return sumReviews(b.Reviews) }

func sumReviews(reviews []run.ReviewCount) int64 {
	return seq.Sum(reviews, func(r run.ReviewCount) int64 { return r.Count })
}

// countErrors counts requests without an answer, and answers that the variant does not expect. Answers of 429, and of
// 500 and above, are never expected, but an answer after which the agent asked again is not final.
func countErrors(b *run.Block) (errors int64) {
	wrong := map[string]int64{}
	for text, n := range b.Wrong {
		status, _, _ := strings.Cut(text, ":")
		wrong[strings.TrimSpace(status)] += n
	}
	for status, n := range b.Answers {
		n -= b.Again[status]
		if isError(status) {
			errors += max(n, wrong[status])
		} else {
			errors += wrong[status]
		}
		delete(wrong, status)
	}
	for _, n := range wrong {
		errors += n
	}
	return errors
}

// isError reports whether an answer, a status or a class of error, is an error whatever was asked.
func isError(answer string) bool {
	_, err := strconv.Atoi(answer)
	return err != nil || answer == "429" || answer >= "500"
}

// countAnswered counts the requests of a block that were answered or failed in it, each once.
func countAnswered(b *run.Block) int64 {
	var n int64
	for _, count := range b.Answers {
		n += count
	}
	return n - b.Retried
}
