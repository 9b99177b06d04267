package judge

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/statistics"
)

// addLimit adds the judgement of a limit.
func (r *Result) addLimit(subject string, name LimitName, state State, format string, args ...any) {
	r.Limits = append(r.Limits, LimitResult{Of: subject, Name: name, State: state, Detail: fmt.Sprintf(format, args...)})
}

// noteUnjudged records a limit that cannot be judged, and why.
func (r *Result) noteUnjudged(subject string, name LimitName, what, why string) {
	r.NotJudged = append(r.NotJudged, LimitResult{Of: subject, Name: name, State: Unknown, Detail: why})
	r.Notes = append(r.Notes, fmt.Sprintf("%s: %s: %s", subject, what, why))
}

func (r *Result) judgeVariants(groups []VariantBlocks) {
	namedVariants := map[string]bool{}
	for i, v := range r.Variants {
		namedVariants[v.Variant] = true
		r.judgeVariant(v, groups[i])
	}
	for _, variant := range slices.Sorted(maps.Keys(r.Thresholds.Variants)) {
		if !namedVariants[variant] {
			r.addLimit(variant, ThresholdsUnused, Unknown, "there are thresholds for the variant, and it did not run")
		}
	}
}

func (r *Result) judgeVariant(v Variant, g VariantBlocks) {
	l := r.Thresholds.LimitsOf(v.Variant)
	r.judgeIdentities(v.Name, g.Blocks)
	r.judgePrediction(v.Name, g.Blocks)
	r.judgeReviews(v.Name, v.Reviews, l.ReviewsPerRequest)
	if v.FirstContact != nil {
		r.judgeReviews(v.Name+FirstContactSuffix, *v.FirstContact, l.ReviewsPerRequest)
	}
	if limit := time.Duration(l.P99); limit > 0 {
		state, detail := compareQuantile(v.P99, limit)
		r.addLimit(v.Name, P99, state, "%s", detail)
	}
	if l.ErrorRate != nil {
		r.judgeErrors(v, *l.ErrorRate)
	}
	if l.ChecksAtOnce > 0 {
		r.judgeChecksAtOnce(v.Name, g.Blocks, l.ChecksAtOnce)
	}
	if l.SLOHeld {
		r.judgeObjectives(g)
	}
}

// judgeChecksAtOnce judges whether the API server asks about impersonations at the same time or one after the other,
// and the same for the requests that follow them. Requests that are sent together wait for the authorizer together,
// however slow the machine is.
func (r *Result) judgeChecksAtOnce(name string, blocks []*run.Block, least int) {
	var checks, requests int64
	for _, b := range blocks {
		checks, requests = max(checks, b.ChecksAtOnce), max(requests, b.RequestsAtOnce)
	}
	areRequestsReviewed := requests > 0 // not if all are refused before
	switch {
	case checks == 0:
		r.noteUnjudged(name, ChecksAtOnce, "checks at once", "no check of an impersonation arrived at the recorder")
	case checks < int64(least):
		r.addLimit(
			name,
			ChecksAtOnce,
			Broken,
			"%s of impersonation under way at once, at most; expected %d at some moment",
			reports.Plural(int(checks), "check"),
			least,
		)
	case areRequestsReviewed && requests < int64(least):
		r.addLimit(
			name,
			ChecksAtOnce,
			Broken,
			"%s of requests themselves under way at once, at most, once they were impersonated; expected %d at some moment",
			reports.Plural(int(requests), "review"),
			least,
		)
	default:
		r.addLimit(
			name,
			ChecksAtOnce,
			Holds,
			"up to %s of impersonation and %s of requests were under way at once, at least %d wanted",
			reports.Plural(int(checks), "check"),
			reports.Plural(int(requests), "review"),
			least,
		)
	}
}

// FirstContactSuffix follows the name of a variant if its reviews at first contact are limited.
const FirstContactSuffix = ", first contact"

// compareQuantile returns whether a quantile is within a limit, and says it.
func compareQuantile(q QuantileBound, limit time.Duration) (State, string) {
	if !q.Bounded {
		return Unknown, fmt.Sprintf("%d answers; a p99 needs %d", q.Samples, statistics.SamplesNeeded(0.99, level))
	}
	return compareInterval(q.Low, q.High, milliseconds(limit)), fmt.Sprintf("%s, at most %s", q, limit)
}

func compareInterval(low, high, limit float64) State {
	switch {
	case high <= limit:
		return Holds
	case low > limit:
		return Broken
	}
	return Unknown
}

func (r *Result) judgePrediction(name string, blocks []*run.Block) {
	switch verdict, finding := comparePrediction(blocks); verdict {
	case AsPredicted:
		r.addLimit(
			name,
			PredictedReviews,
			Holds,
			"in each of %s the reviews of every mode and decision are as many as its schedule leads to",
			reports.Plural(len(blocks), "block"),
		)
	case NotPredicted:
		r.addLimit(name, PredictedReviews, Broken, "%s", describeFinding(finding, blocks))
	default:
		r.noteUnjudged(name, PredictedReviews, "reviews per request against the prediction", verdict)
	}
}

// judgeIdentities judges as whom the server saw the agents, and whether it allowed exactly what was granted. A single
// wrong answer breaks the limit.
func (r *Result) judgeIdentities(name string, blocks []*run.Block) {
	var answers, reviews, refusals int64
	var wrong []string
	for i, b := range blocks {
		refusals += b.Answers[strconv.Itoa(http.StatusForbidden)]
		for _, text := range b.Ungranted {
			wrong = append(wrong, fmt.Sprintf("block %d of %d: %s", i+1, len(blocks), text))
		}
		if b.Identities == nil {
			continue
		}
		answers, reviews = answers+b.Identities.Answers, reviews+b.Identities.Reviews
		for _, text := range b.Identities.Wrong {
			wrong = append(wrong, fmt.Sprintf("block %d of %d: %s", i+1, len(blocks), text))
		}
		if more := b.Identities.WrongCount - int64(len(b.Identities.Wrong)); more > 0 {
			wrong = append(wrong, fmt.Sprintf("block %d of %d: %d more were for somebody else", i+1, len(blocks), more))
		}
	}
	text := fmt.Sprintf(
		"%s about who the agent is, %s of requests themselves, %s",
		reports.Plural(int(answers), "answer"),
		reports.Plural(int(reviews), "review"),
		reports.Plural(int(refusals), "refusal"),
	)
	switch {
	case len(wrong) > 0:
		r.addLimit(name, IdentitiesWanted, Broken, "%s; compared were %s", strings.Join(wrong[:min(len(wrong), mostShown)], "; "), text)
	case answers+reviews+refusals > 0:
		r.addLimit(name, IdentitiesWanted, Holds, "each is for the user that was wanted, and as granted: %s", text)
	default:
		r.noteUnjudged(name, IdentitiesWanted, "whom the server took the agents for", "no answer and no review shows it")
	}
}

// describeFinding says what is not as predicted in a block, and which fewer requests show it.
func describeFinding(finding *run.Block, blocks []*run.Block) string {
	list, _ := finding.ComparePrediction()
	text := fmt.Sprintf("block %d of %d: %s", slices.Index(blocks, finding)+1, len(blocks), strings.Join(list, "; "))
	for _, b := range blocks {
		if s := b.Smallest; s != nil {
			text += fmt.Sprintf(
				". The smallest schedule that shows it has %s (%s): %s",
				reports.Plural(s.Count, "request"),
				s.Text,
				strings.Join(s.Requests, "; "),
			)
		}
	}
	return text
}

func (r *Result) judgeReviews(name string, reviews ReviewRate, limit float64) {
	rate := reviews.PerRequest
	switch {
	case limit <= 0:
	case strings.HasPrefix(reviews.Of, impersonationAlone):
		r.addLimit(name, ReviewsPerRequest, Unknown, "the checks of the requests themselves are not counted")
	case rate.Estimate == 0:
		// Even without impersonation a request has a review of its own.
		r.addLimit(name, ReviewsPerRequest, Unknown, "the recorder received no review at all")
	default:
		r.addLimit(
			name,
			ReviewsPerRequest,
			compareInterval(rate.Low, rate.High, limit),
			"%s reviews per request, at most %g",
			reviews,
			limit,
		)
	}
}

func (r *Result) judgeErrors(v Variant, limit float64) {
	if v.Done == 0 {
		r.addLimit(v.Name, ErrorRate, Unknown, "nothing was answered")
		return
	}
	rate := float64(v.Errors) / float64(v.Done)
	r.addLimit(
		v.Name,
		ErrorRate,
		compareInterval(rate, rate, limit),
		"%d of %d answers are errors (%.3g %%), at most %.3g %%",
		v.Errors,
		v.Done,
		100*rate,
		100*limit,
	)
}

// objectives are the objectives of Kubernetes for the p99 of a kind of request, from
// https://github.com/kubernetes/community/blob/master/sig-scalability/slos/api_call_latency.md. There is none for a
// watch. The server's own indicator leaves out the network, so one that a client measures is stricter.
var objectives = map[string]time.Duration{
	"get": time.Second, "create": time.Second, "update": time.Second, "patch": time.Second, "delete": time.Second,
	"list": 30 * time.Second, "review": time.Second, // which is created
}

// ObjectiveOf returns the objective of Kubernetes for the p99 of a kind of request. There is none for a watch.
func ObjectiveOf(kind string) (objective time.Duration, known bool) {
	objective, known = objectives[kind]
	return objective, known
}

// judgeObjectives judges the objectives. They are unjudged where a profile limits no latency and has too few answers.
func (r *Result) judgeObjectives(g VariantBlocks) {
	latencies := MergeBlocks(g.Blocks).Kinds
	for _, kind := range slices.Sorted(maps.Keys(latencies)) {
		if kind == profile.Whoami {
			continue // the storm's own question
		}
		if kind == "watch" {
			r.Notes = append(r.Notes, fmt.Sprintf("%s: Kubernetes has no latency objective for a watch", g.Name))
			continue
		}
		objective, known := ObjectiveOf(kind)
		if !known {
			r.addLimit(g.Name, Objective(kind), Unknown, "there is no objective for this kind of request")
			continue
		}
		p99 := BoundQuantile(new(latencies[kind]), 0.99)
		state, detail := compareQuantile(p99, objective)
		if !p99.Bounded && !r.Thresholds.limitLatency() {
			r.noteUnjudged(g.Name, Objective(kind), fmt.Sprintf("the objective of Kubernetes for a %s is not judged", kind), detail)
			continue
		}
		r.addLimit(g.Name, Objective(kind), state, "%s", detail)
	}
	if len(latencies) == 0 {
		r.addLimit(g.Name, ObjectivePrefix, Unknown, "no latencies by kind of request")
	}
}

// judgeGrowth judges whether the servers release the memory that a storm took.
func (r *Result) judgeGrowth(growth []run.Growth) {
	for _, g := range growth {
		if why := g.Exceeds(); why != "" {
			r.addLimit(g.Server, ServerGrowth, Broken, "%s", why)
		} else {
			r.addLimit(g.Server, ServerGrowth, Holds, "%s", g)
		}
	}
}

func (r *Result) judgeComparisons() {
	isJudged := false
	for _, c := range r.Comparisons {
		if c.AA {
			continue
		}
		isJudged = true
		for _, q := range c.quantities(Margins{}) {
			r.judgeEffect(c, q.limit, *q.effect)
		}
	}
	if !isJudged && r.Thresholds.declareMargins() {
		r.addLimit("the run", anyMargin, Unknown, "a margin was declared, and there is no comparison")
	}
}

func (r *Result) judgeEffect(c Comparison, name LimitName, e Effect) {
	state := Unknown
	switch e.Verdict {
	case "":
		return
	case statistics.Equivalent, statistics.Below:
		// A margin limits what something may cost, so less is not a failure.
		state = Holds
	case statistics.Above:
		state = Broken
	}
	r.addLimit(c.Name, name, state, "%s", e)
}

func (r *Result) judgeMissing(groups []comparisonPairs) {
	for _, name := range slices.Sorted(maps.Keys(r.Thresholds.Comparisons)) {
		if !slices.ContainsFunc(groups, func(g comparisonPairs) bool { return g.key.name == name }) {
			r.addLimit(name, ComparisonMissing, Unknown, "not judged: the profile has the comparison, and no block of it ran")
		}
	}
}
