package load

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/statistics"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// ReviewRate is access reviews per request.
type ReviewRate struct {
	// Of says which blocks: first contact, steady state or all blocks, and where checks of requests themselves are not
	// counted "impersonation alone" before it; Blocks is how many.
	Of     string `json:"of"`
	Blocks int    `json:"blocks"`
	// PerRequest is the mean of blocks, with its 95 % interval if Bounded: one block has none.
	PerRequest statistics.Interval `json:"perRequest"`
	Bounded    bool                `json:"bounded"`
	Checks     []CheckRate         `json:"checks,omitempty"` // the means by mode, verb and decision
	// Predicted is the oracle's for the schedules of these blocks, nil if there is none.
	Predicted *Range `json:"predicted,omitempty"`
	Verdict   string `json:"verdict"` // "as predicted", "not as predicted", or why it is not judged
}

// Range is what is predicted per request: with requests that are under way at once, it is not one figure.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// String is "2.05", or "2.05 to 2.07".
func (r Range) String() string {
	low, high := fmt.Sprintf("%.3f", r.Low), fmt.Sprintf("%.3f", r.High)
	if low == high {
		return low
	}
	return low + " to " + high
}

// CheckRate is how many reviews of one kind a request costs in the mean.
type CheckRate struct {
	run.ReviewKind
	PerRequest float64 `json:"perRequest"`
	Predicted  *Range  `json:"predicted,omitempty"`
}

// Verdicts on reviews per request, and those that are in no phase.
const (
	allBlocks    = "all blocks"
	asPredicted  = "as predicted"
	notPredicted = "not as predicted"

	impersonationAlone = "impersonation alone"
)

// phases are the steady state of a variant, or all its blocks if it has none, and its first contact. A block in which
// some agents had asked before and some not is in neither, but is judged.
func phases(blocks []*run.Block) (reviews ReviewRate, first *ReviewRate) {
	var firsts, steady []*run.Block
	for _, b := range blocks {
		switch p := b.Predicted; {
		case p == nil || p.Requests == 0:
		case p.First == p.Requests:
			firsts = append(firsts, b)
		case p.First == 0:
			steady = append(steady, b)
		}
	}
	if len(firsts) > 0 {
		rate := reviewRate("first contact", firsts)
		first = &rate
	}
	if len(steady) > 0 {
		return reviewRate("steady state", steady), first
	}
	return reviewRate(allBlocks, blocks), first
}

func reviewRate(of string, blocks []*run.Block) ReviewRate {
	r := ReviewRate{Of: of, Blocks: len(blocks)}
	var rates []float64
	var requests int64
	for _, b := range blocks {
		if requests += b.Sent; b.Sent > 0 {
			rates = append(rates, float64(reviewsOf(b))/float64(b.Sent))
		}
	}
	if requests == 0 {
		r.Verdict = "nothing was sent"
		return r
	}
	r.PerRequest, r.Bounded = statistics.MeanInterval(rates, level)
	counts, predicted := checkCounts(blocks), predictedChecks(blocks)
	for kind := range predicted {
		counts[kind] += 0 // those of which there are none, too
	}
	var low, high float64
	for _, kind := range slices.SortedFunc(maps.Keys(counts), run.ReviewKind.Compare) {
		check := CheckRate{ReviewKind: kind, PerRequest: float64(counts[kind]) / float64(requests)}
		if predicted != nil {
			check.Predicted = &Range{float64(predicted[kind].Low) / float64(requests), float64(predicted[kind].High) / float64(requests)}
			low, high = low+check.Predicted.Low, high+check.Predicted.High
		}
		r.Checks = append(r.Checks, check)
	}
	if predicted != nil {
		r.Predicted = &Range{low, high}
	}
	r.Verdict, _ = predictionVerdict(blocks)
	return r
}

// predictedChecks sums the predictions of blocks by mode, verb and decision; nil if one has none.
func predictedChecks(blocks []*run.Block) map[run.ReviewKind]run.CheckRange {
	sums := map[run.ReviewKind]run.CheckRange{}
	for _, b := range blocks {
		if b.Predicted == nil || b.Predicted.Requests == 0 {
			return nil
		}
		for _, c := range b.Predicted.Checks {
			sum := sums[c.ReviewKind]
			sums[c.ReviewKind] = run.CheckRange{Low: sum.Low + c.Low, High: sum.High + c.High}
		}
	}
	return sums
}

// predictionVerdict is about every block on its own: reviews are counts, of which a mean that is near the prediction,
// or an interval that touches it, says nothing. finding is the first block that is not as predicted.
func predictionVerdict(blocks []*run.Block) (verdict string, finding *run.Block) {
	unknown, reason := 0, ""
	for _, b := range blocks {
		list, why := b.Unpredicted()
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
		return notPredicted, finding
	case unknown == len(blocks):
		return "not judged: " + reason, nil
	case unknown > 0:
		return fmt.Sprintf("not judged: in %d of %d blocks %s", unknown, len(blocks), reason), nil
	}
	return asPredicted, nil
}

func judgePrediction(r *Result, name string, blocks []*run.Block) {
	const limit = "predicted reviews"
	switch verdict, finding := predictionVerdict(blocks); verdict {
	case asPredicted:
		r.limit(name, limit, Held, "in each of %s the reviews of every mode and decision are as many as its schedule leads to", reports.Plural(len(blocks), "block"))
	case notPredicted:
		list, _ := finding.Unpredicted()
		text := fmt.Sprintf("block %d of %d: %s", slices.Index(blocks, finding)+1, len(blocks), strings.Join(list, "; "))
		for _, b := range blocks {
			if s := b.Smallest; s != nil {
				text += fmt.Sprintf(". The smallest schedule that shows it has %s (%s): %s", reports.Plural(s.Count, "request"), s.Text, strings.Join(s.Requests, "; "))
			}
		}
		r.limit(name, limit, Broken, "%s", text)
	default:
		r.Notes = append(r.Notes, fmt.Sprintf("%s: reviews per request against the prediction: %s", name, verdict))
	}
}

func judgeReviews(r *Result, name string, reviews ReviewRate, limit float64) {
	if limit <= 0 {
		return
	}
	rate := reviews.PerRequest
	if strings.HasPrefix(reviews.Of, impersonationAlone) {
		r.limit(name, "reviewsPerRequest", Unknown, "the checks of the requests themselves are not counted")
		return
	}
	if rate.Estimate == 0 {
		// Even without impersonation a request has its own review.
		r.limit(name, "reviewsPerRequest", Unknown, "the recorder received no review at all")
		return
	}
	r.limit(name, "reviewsPerRequest", against(rate.Low, rate.High, limit), "%s reviews per request, at most %g", worded("reviews", reviews), limit)
}

func checkCounts(blocks []*run.Block) map[run.ReviewKind]int64 {
	sums := map[run.ReviewKind]int64{}
	for _, b := range blocks {
		for _, c := range b.Reviews {
			sums[c.ReviewKind] += c.Count
		}
	}
	return sums
}

type variantKey struct{ variant, server string }

func keyOf(b *run.Block) variantKey { return variantKey{b.Variant, b.Server} }

func (k variantKey) String() string { return k.variant + " on " + k.server }

func (k variantKey) compare(other variantKey) int {
	return cmp.Or(cmp.Compare(k.variant, other.variant), cmp.Compare(k.server, other.server))
}

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
	slices.SortFunc(variants, func(x, y variantBlocks) int { return x.key.compare(y.key) })
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
		for _, second := range b.Timeline {
			a.MostReviews = max(a.MostReviews, second.Reviews)
		}
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

// quantileBound is a quantile with bounds that hold whatever the distribution, if there are samples enough.
func quantileBound(h *histogram.Histogram, q float64) QuantileBound {
	b := QuantileBound{Milliseconds: milliseconds(h.Quantile(q)), Samples: h.Count()}
	if low, high, ok := statistics.QuantileRanks(h.Count(), q, level); ok {
		b.Low, b.High, b.Bounded = milliseconds(h.Rank(low)), milliseconds(h.Rank(high)), true
	}
	return b
}

func reviewsOf(b *run.Block) int64 {
	return seq.Sum(b.Reviews, func(r run.ReviewCount) int64 { return r.Count })
}

// errorsOf counts requests without an answer, and answers that the variant does not expect. Answers of 429 and of 500 and
// above are never what a variant is about, but one after which the agent asked again is not the last word.
func errorsOf(b *run.Block) (errors int64) {
	wrong := map[string]int64{}
	for text, n := range b.Wrong {
		status, _, _ := strings.Cut(text, ":")
		wrong[strings.TrimSpace(status)] += n
	}
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
