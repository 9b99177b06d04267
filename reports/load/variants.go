package load

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports/load/histogram"
	"github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// variantKey is what blocks of one variant have in common.
type variantKey struct{ variant, server string }

func keyOf(b *run.Block) variantKey { return variantKey{b.Variant, b.Server} }

// String is the variant with its server.
func (k variantKey) String() string { return k.variant + " on " + k.server }

// variantBlocks are the blocks of a variant, in the order in which they ran.
type variantBlocks struct {
	key    variantKey
	name   string
	blocks []*run.Block
}

func groupVariants(r *run.Run) (variants []variantBlocks) {
	groups := map[variantKey][]*run.Block{}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		groups[keyOf(b)] = append(groups[keyOf(b)], b)
	}
	for key, blocks := range groups {
		variants = append(variants, variantBlocks{key: key, name: key.String(), blocks: blocks})
	}
	slices.SortFunc(variants, func(x, y variantBlocks) int {
		return cmp.Or(cmp.Compare(x.key.variant, y.key.variant), cmp.Compare(x.key.server, y.key.server))
	})
	return variants
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// level is that of the intervals that are shown.
const level = 0.95

// together are blocks as one, in what shards of one block add up to.
func together(blocks []*run.Block) (all run.Block) {
	for _, b := range blocks {
		all.Merge(b)
	}
	return all
}

func measureVariant(g variantBlocks) Variant {
	all := together(g.blocks)
	a := Variant{
		Variant: g.key.variant, Server: g.key.server, Agents: g.blocks[0].Agents, Name: g.name, Blocks: len(g.blocks),
		Sent: all.Sent, Done: answered(&all), Late: all.Late, Dropped: all.Dropped, Again: all.Again, Statuses: all.Answers,
	}
	latency, webhook := &all.Latency, merged(g.blocks, webhookOf)
	var length time.Duration
	var reviews int64
	for _, b := range g.blocks {
		a.Errors += errorsOf(b)
		a.FlowControl = run.Sum(a.FlowControl, b.FlowControl)
		length += time.Duration(b.Length)
		a.GeneratorRSS = max(a.GeneratorRSS, b.GeneratorRSS)
		reviews += reviewsOf(b)
	}
	a.P50, a.P99 = quantileBound(latency, 0.5), quantileBound(latency, 0.99)
	a.P999, a.Max = milliseconds(latency.Quantile(0.999)), milliseconds(latency.Max())
	a.WebhookP99 = milliseconds(webhook.Quantile(0.99))
	if length > 0 {
		a.Rate = float64(a.Sent) / length.Seconds()
		a.ReviewsPerSecond = float64(reviews) / length.Seconds()
	}
	if a.Sent > 0 {
		a.GeneratorCPU = milliseconds(time.Duration(all.GeneratorCPU)) / float64(a.Sent)
	}
	a.Usage = usageOf(g.blocks)
	a.Reviews, a.FirstContact = phases(g.blocks)
	return a
}

// quantileBound is a quantile with the bounds that hold whatever the distribution, if there are enough samples for
// them.
func quantileBound(h *histogram.Histogram, q float64) QuantileBound {
	b := QuantileBound{Milliseconds: milliseconds(h.Quantile(q)), Samples: h.Count()}
	if low, high, ok := statistics.QuantileRanks(h.Count(), q, level); ok {
		b.Low, b.High, b.Bounded = milliseconds(h.Rank(low)), milliseconds(h.Rank(high)), true
	}
	return b
}

func reviewsOf(b *run.Block) int64 {
	var n int64
	for _, r := range b.Reviews {
		n += r.Count
	}
	return n
}

// errorsOf counts requests without an answer, and answers that the variant does not expect. Answers of 429 and of 500 and
// above are never what a variant is about, but one after which the agent asked again is not the last word.
func errorsOf(b *run.Block) int64 {
	wrong := map[string]int64{}
	for text, n := range b.Wrong {
		status, _, _ := strings.Cut(text, ":")
		wrong[strings.TrimSpace(status)] += n
	}
	var errors int64
	for status, n := range b.Answers {
		n -= b.Again[status]
		if _, err := strconv.Atoi(status); err != nil || status == "429" || status >= "500" {
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

// answered counts the requests of a block that were answered or failed in it, each once.
func answered(b *run.Block) int64 {
	var n int64
	for _, count := range b.Answers {
		n += count
	}
	return n - b.Retried
}
