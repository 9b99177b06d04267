package load

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/statistics"
)

// Judge says what a run shows. The outcome is, in this order:
//
//  1. inconclusive if a check of the measuring does not hold or could not be made:
//     where the ground is not firm, a failure may be the ground's;
//  2. failed if a limit is broken;
//  3. inconclusive if a limit cannot be judged, or if there was nothing to judge;
//  4. passed otherwise: at least one limit was judged, and all hold.
//
// That reviews per request are as predicted is a limit of its own, always.
func Judge(r run.Run, t Thresholds) Result {
	result := Result{
		APIVersion: APIVersion, Kind: Kind,
		Profile: r.Profile, Seed: r.Seed, Tool: r.Tool, Started: r.Started, Thresholds: t,
		Variants: []Variant{}, Comparisons: []Comparison{}, Limits: []LimitResult{},
	}
	variants, groups := groupVariants(&r), groupPairs(&r)
	for _, g := range variants {
		v := measureVariant(g)
		if r.OwnUnknown {
			v.Reviews.Of = impersonationAlone + ", " + v.Reviews.Of
		}
		result.Variants = append(result.Variants, v)
	}
	result.Comparisons = append(result.Comparisons, compareAll(groups, t)...)
	result.Checks = checks(&r, variants, groups, result.Comparisons, t)
	judgeVariants(&result, variants)
	judgeComparisons(&result)
	judgeMissing(&result, groups)
	result.Notes = append(result.Notes, r.Notes...)
	noteClocks(&result, r.Clocks)
	noteBlocks(&result, r.Blocks)
	result.conclude()
	return result
}

// noteBlocks shows what errors without a class of their own said, and how many reviews were given up.
func noteBlocks(r *Result, blocks []run.Block) {
	for i, b := range blocks {
		for _, text := range b.Odd {
			r.Notes = append(r.Notes, fmt.Sprintf("block %d (%s on %s): an error that has no class: %s", i, b.Variant, b.Server, text))
		}
		if b.GivenUp > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("block %d (%s on %s): the API server gave up %s of its authorizer: they may have been counted or not", i, b.Variant, b.Server, reports.Plural(int(b.GivenUp), "review")))
		}
	}
}

func (r *Result) limit(of, name string, state State, format string, args ...any) {
	r.Limits = append(r.Limits, LimitResult{Of: of, Name: name, State: state, Detail: fmt.Sprintf(format, args...)})
}

func judgeVariants(r *Result, groups []variantBlocks) {
	named := map[string]bool{}
	for i, a := range r.Variants {
		named[a.Variant] = true
		l := r.Thresholds.of(a.Variant)
		judgePrediction(r, a.Name, groups[i].blocks)
		judgeReviews(r, a.Name, a.Reviews, l.ReviewsPerRequest)
		if a.FirstContact != nil {
			judgeReviews(r, a.Name+", first contact", *a.FirstContact, l.ReviewsPerRequest)
		}
		if limit := time.Duration(l.P99); limit > 0 {
			state, detail := withinLimit(a.P99, limit)
			r.limit(a.Name, "p99", state, "%s", detail)
		}
		if l.ErrorRate != nil {
			judgeErrors(r, a, *l.ErrorRate)
		}
		if l.SLOHeld {
			judgeSLO(r, groups[i])
		}
	}
	for _, variant := range slices.Sorted(maps.Keys(r.Thresholds.Variants)) {
		if !named[variant] {
			r.limit(variant, "thresholds", Unknown, "there are thresholds for the variant, and it did not run")
		}
	}
}

func withinLimit(q QuantileBound, limit time.Duration) (State, string) {
	if !q.Bounded {
		return Unknown, fmt.Sprintf("%d answers; a p99 needs %d", q.Samples, statistics.SamplesNeeded(0.99, level))
	}
	return against(q.Low, q.High, milliseconds(limit)), fmt.Sprintf("%s, at most %s", worded("bound", q), limit)
}

func against(low, high, limit float64) State {
	switch {
	case high <= limit:
		return Held
	case low > limit:
		return Broken
	}
	return Unknown
}

func judgeErrors(r *Result, a Variant, limit float64) {
	if a.Done == 0 {
		r.limit(a.Name, "errorRate", Unknown, "nothing was answered")
		return
	}
	rate := float64(a.Errors) / float64(a.Done)
	r.limit(a.Name, "errorRate", against(rate, rate, limit), "%d of %d answers are errors (%.3g %%), at most %.3g %%", a.Errors, a.Done, 100*rate, 100*limit)
}

// objectives are those of Kubernetes for the p99 of a request kind, from
// https://github.com/kubernetes/community/blob/master/sig-scalability/slos/api_call_latency.md. A watch has none there.
// The server's own indicator leaves the network out, so that one measured by a client holds the more surely.
var objectives = map[string]time.Duration{
	"get": time.Second, "create": time.Second, "update": time.Second, "patch": time.Second, "delete": time.Second,
	"list": 30 * time.Second, "review": time.Second, // which is created
}

const sloName = "sloHeld"

// judgeSLO judges the objectives. They are unjudged where a profile limits no latency and has too few answers.
func judgeSLO(r *Result, g variantBlocks) {
	const name = sloName
	judged, latencies := false, together(g.blocks).Kinds
	for _, kind := range slices.Sorted(maps.Keys(latencies)) {
		if kind == "watch" {
			r.Notes = append(r.Notes, fmt.Sprintf("%s: Kubernetes has no latency objective for a watch", g.name))
			continue
		}
		objective, ok := objectives[kind]
		judged = true
		if !ok {
			r.limit(g.name, name+" ("+kind+")", Unknown, "there is no objective for this kind of request")
			continue
		}
		p99 := quantileBound(new(latencies[kind]), 0.99)
		state, detail := withinLimit(p99, objective)
		if !p99.Bounded && !r.Thresholds.aboutLatency() {
			r.Notes = append(r.Notes, fmt.Sprintf("%s: the objective of Kubernetes for a %s is not judged: %s", g.name, kind, detail))
			continue
		}
		r.limit(g.name, name+" ("+kind+")", state, "%s", detail)
	}
	if !judged {
		r.limit(g.name, name, Unknown, "no latencies by kind of request")
	}
}

func judgeComparisons(r *Result) {
	judged := false
	for _, c := range r.Comparisons {
		if c.AA {
			continue
		}
		judged = true
		judgeEffect(r, c, "p50 margin", c.P50)
		judgeEffect(r, c, "p99 margin", c.P99)
	}
	if !judged && r.Thresholds.declareMargins() {
		r.limit("the run", "margin", Unknown, "a margin was declared, and there is no comparison")
	}
}

// noteClocks says how far the clocks of shards were apart. If that was too far, the run has it among its problems.
func noteClocks(r *Result, clocks []run.Clock) {
	if len(clocks) == 0 {
		return
	}
	most := slices.MaxFunc(clocks, func(x, y run.Clock) int {
		return cmp.Compare(time.Duration(x.Offset).Abs(), time.Duration(y.Offset).Abs())
	})
	r.Notes = append(r.Notes, fmt.Sprintf("the clocks of %d shards were compared with the coordinator's: the largest offset is %s ± %s (%s)",
		len(clocks), time.Duration(most.Offset), time.Duration(most.Uncertainty), most.Shard))
}

func judgeMissing(r *Result, groups []comparisonPairs) {
	for _, name := range slices.Sorted(maps.Keys(r.Thresholds.Comparisons)) {
		if !slices.ContainsFunc(groups, func(g comparisonPairs) bool { return g.key.name == name }) {
			r.limit(name, "comparison", Unknown, "not judged: the profile has the comparison, and no block of it ran")
		}
	}
}

func judgeEffect(r *Result, c Comparison, name string, e Effect) {
	state := Unknown
	switch e.Verdict {
	case "":
		return
	case statistics.Equivalent, statistics.Below:
		// A margin limits what something may cost: less is not a failure.
		state = Held
	case statistics.Above:
		state = Broken
	}
	r.limit(c.Name, name, state, "%s", e)
}

func (r *Result) conclude() {
	var ground, broken, unknown []string
	for _, c := range r.Checks {
		if c.State != Held {
			ground = append(ground, c.Name+": "+c.Detail)
		}
	}
	held := 0
	for _, l := range r.Limits {
		reason := fmt.Sprintf("%s: %s: %s", l.Of, l.Name, l.Detail)
		switch l.State {
		case Held:
			held++
		case Broken:
			broken = append(broken, reason)
		default:
			unknown = append(unknown, reason)
		}
	}
	if held+len(broken)+len(unknown) == 0 {
		unknown = append(unknown, "nothing was judged: there is neither a threshold nor a prediction")
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

// contradictions are in what a block counts twice: by second, by kind of request, if its run has kinds, and by who counts it.
func contradictions(b *run.Block, kinds bool) (list []string) {
	same := func(what string, x, y int64) {
		if x != y {
			list = append(list, fmt.Sprintf("%s: %d and %d", what, x, y))
		}
	}
	var second run.Second
	for _, s := range b.Timeline {
		second.Sent, second.Done, second.Errors, second.Reviews = second.Sent+s.Sent, second.Done+s.Done, second.Errors+s.Errors, second.Reviews+s.Reviews
	}
	if len(b.Timeline) > 0 {
		same("requests sent, in all and by second", b.Sent, second.Sent)
		same("requests answered, in all and by second", answered(b), second.Done)
		var wrong int64
		for _, n := range b.Wrong {
			wrong += n
		}
		same("answers that were not expected, in all and by second", wrong, second.Errors)
		if second.Reviews > 0 { // where there is a webhook
			same("reviews, by mode and by second", reviewsOf(b), second.Reviews)
		}
	}
	if kinds {
		var kinds int64
		for _, h := range b.Kinds {
			kinds += h.Count()
		}
		same("latencies, of all requests and by kind", b.Latency.Count(), kinds)
	}
	same("latencies from the planned and from the real time of sending", b.Latency.Count(), b.Service.Count())
	same("requests sent, and how late they were", b.Sent, b.Lag.Count())
	if n := reviewsOf(b); b.WebhookLatency.Count() > n || second.Reviews > 0 && b.WebhookLatency.Count() == 0 {
		list = append(list, fmt.Sprintf("%d reviews, and %d latencies of the webhook", n, b.WebhookLatency.Count()))
	}
	if len(b.Attempts) == 0 || b.FollowsServer || slices.ContainsFunc(b.Reviews, func(r run.ReviewCount) bool { return r.Decision == run.Unseen }) {
		return list // the API server was restarted, or asked less often than it checked
	}
	return append(list, b.Contradicted()...)
}
