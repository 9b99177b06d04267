package loadgen

import (
	"fmt"
	"slices"
	"time"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// measuringGroup has the checks of the measuring. Every other verdict depends on them, so they are of level core and
// cannot be left out; what a storm claims is of level extended. If one of them does not hold, nothing is certain (exit
// code 3), whatever else was seen.
const measuringGroup = "the measuring"

// plannedCase is a case of a storm, with how its result follows from the judgement of the whole run.
type plannedCase struct {
	product.Case
	// comparisons are the names of the comparisons without which there is nothing to judge. It is empty for checks of
	// the measuring.
	comparisons []string
	result      func(r *judge.Result) reports.Result
	// limits are the limits of the judge that the case is about.
	limits []limitKey
}

// limitKey identifies a limit of a variant on a server, or of a comparison.
type limitKey struct {
	subject string
	name    judge.LimitName
}

// planCases returns the cases of a profile: the checks of the measuring, and then for each comparison what is claimed
// about its sides, unless an earlier comparison has these, and about their difference.
func planCases(p *profile.Profile, t judge.Thresholds) (cases []plannedCase) {
	for _, name := range judge.CheckNames() {
		if name != judge.SameServers || t.MayClaim(p.Pairs, p.Starts, seq.Count(p.Comparisons, isNotAA)) {
			cases = append(cases, checkCase(name))
		}
	}
	var planned []profile.Side
	var servers []profile.Server
	for _, c := range p.Comparisons {
		for _, side := range []profile.Side{c.A, c.B} {
			if !slices.Contains(planned, side) {
				planned = append(planned, side)
				cases = append(cases, sideCases(p, t, c.Name, side)...)
			}
			if !slices.Contains(servers, side.Server) {
				servers = append(servers, side.Server)
				cases = append(cases, growthCase(p, c.Name, side.Server))
			}
		}
		cases = append(cases, comparisonCases(t, c)...)
	}
	return cases
}

func isNotAA(c profile.Comparison) bool { return !c.AA() }

// checkTitles say what a check ensures.
var checkTitles = map[judge.CheckName]string{
	judge.ThresholdsValid: "the thresholds can be judged",
	judge.Executed:        "every block was executed",
	judge.Undisturbed:     "nothing disturbed the run",
	judge.Servers:         "the servers are what was asked for",
	judge.Counters:        "recorder, API server and agents count the same",
	judge.GeneratorKeptUp: "the generator kept up",
	judge.Arrivals:        "both sides of each pair had the same arrivals",
	judge.Starts:          "the servers were started anew between starts",
	judge.EnoughPairs:     "each comparison has enough pairs and starts",
	judge.NoTrend:         "no p50 rises or falls over the run",
	judge.SameServers:     "two servers that are the same do not differ (A/A)",
}

func checkCase(name judge.CheckName) plannedCase {
	return plannedCase{
		Case: product.NewCase(measuringGroup, checkTitles[name], scenarios.Core, "measuring"),
		result: func(r *judge.Result) reports.Result {
			i := slices.IndexFunc(r.Checks, func(c judge.Check) bool { return c.Name == name })
			if i < 0 {
				return reports.Result{Verdict: verdicts.Skipped, Reason: "nothing is said of a difference between servers"}
			}
			c := r.Checks[i]
			if c.State == judge.Holds {
				return reports.Result{Verdict: verdicts.Passed, Judged: 1, Details: []string{c.Detail}}
			}
			return reports.Result{Verdict: verdicts.Invalid, Judged: 1, Blame: blameForCheck(name), Reason: c.Detail}
		},
	}
}

// blameForCheck returns who is to blame if a check of the measuring does not hold.
func blameForCheck(name judge.CheckName) verdicts.Blame {
	if slices.Contains([]judge.CheckName{judge.ThresholdsValid, judge.Arrivals, judge.Counters}, name) {
		return verdicts.BlameHarness
	}
	return verdicts.BlameEnvironment
}

// sideCases returns what is claimed about a variant on a server.
func sideCases(p *profile.Profile, t judge.Thresholds, group string, side profile.Side) (cases []plannedCase) {
	name := judge.VariantKey{Variant: side.Variant, Server: string(side.Server)}.String()
	users := seq.Map(slices.DeleteFunc(slices.Clone(p.Comparisons), func(c profile.Comparison) bool { return c.A != side && c.B != side }),
		func(c profile.Comparison) string { return c.Name })
	add := func(label, claim string, keys ...limitKey) {
		cases = append(cases, plannedCase{
			Case:        product.NewCase(group, name+": "+claim, scenarios.Extended, label, side.Variant, string(side.Server)),
			comparisons: users, limits: keys,
			result: func(r *judge.Result) reports.Result { return limitResult(r, keys) },
		})
	}
	l := t.LimitsOf(side.Variant)
	add("identities", "every request is for whom its agent wanted to be, and allowed as granted", limitKey{name, judge.IdentitiesWanted})
	if p.Predictable() {
		add("prediction", "as many reviews as predicted", limitKey{name, judge.PredictedReviews})
	}
	if l.ReviewsPerRequest > 0 {
		add("limit", fmt.Sprintf("at most %g reviews per request", l.ReviewsPerRequest),
			limitKey{name, judge.ReviewsPerRequest}, limitKey{name + judge.FirstContactSuffix, judge.ReviewsPerRequest})
	}
	if d := time.Duration(l.P99); d > 0 {
		add("limit", fmt.Sprintf("p99 at most %s", d), limitKey{name, judge.P99})
	}
	if l.ErrorRate != nil {
		add("limit", fmt.Sprintf("at most %g %% of the answers are errors", 100**l.ErrorRate), limitKey{name, judge.ErrorRate})
	}
	if l.ChecksAtOnce > 0 {
		add(
			"limit",
			fmt.Sprintf("at some moment at least %d checks of impersonation are under way at once", l.ChecksAtOnce),
			limitKey{name, judge.ChecksAtOnce},
		)
	}
	if l.SLOHeld {
		for _, kind := range p.RequestKinds() {
			if objective, known := judge.ObjectiveOf(kind); known {
				add(
					"slo",
					fmt.Sprintf("p99 of %s at most %s, as Kubernetes promises", kind, objective),
					limitKey{name, judge.Objective(kind)},
				)
			}
		}
	}
	return cases
}

// growthCase returns the case that a server releases the memory that the storm took.
func growthCase(p *profile.Profile, group string, server profile.Server) plannedCase {
	users := seq.Filter(p.Comparisons, func(c profile.Comparison) bool { return c.A.Server == server || c.B.Server == server })
	key := limitKey{string(server), judge.ServerGrowth}
	return plannedCase{
		Case: product.NewCase(
			group,
			string(server)+": goroutines, open files and memory are back where they were",
			scenarios.Extended,
			"growth",
			string(server),
		),
		comparisons: seq.Map(users, func(c profile.Comparison) string { return c.Name }),
		limits:      []limitKey{key},
		result: func(r *judge.Result) reports.Result {
			if _, _, found := r.Limit(key.subject, key.name); !found {
				return reports.Result{Verdict: verdicts.Skipped, Reason: "not judged: others use the server, or it was restarted meanwhile"}
			}
			return limitResult(r, []limitKey{key})
		},
	}
}

// comparisonCases returns what is claimed about a comparison.
func comparisonCases(t judge.Thresholds, c profile.Comparison) (cases []plannedCase) {
	add := func(label, claim string, result func(r *judge.Result) reports.Result, keys ...limitKey) {
		cases = append(cases, plannedCase{
			Case:        product.NewCase(c.Name, claim, scenarios.Extended, label, c.B.Variant, string(c.B.Server)),
			comparisons: []string{c.Name}, limits: keys, result: result,
		})
	}
	missing := limitKey{c.Name, judge.ComparisonMissing}
	add("comparison", c.Name+": it was run", func(r *judge.Result) reports.Result {
		if l, _, found := r.Limit(missing.subject, missing.name); found {
			return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameEnvironment, Reason: l.Detail}
		}
		return reports.Result{Verdict: verdicts.Passed, Judged: 1}
	}, missing)
	margins := t.Comparisons[c.Name]
	for _, m := range []struct {
		quantity string
		margin   float64
		name     judge.LimitName
	}{{"p50", margins.P50, judge.P50Margin}, {"p99", margins.P99, judge.P99Margin}, {"processor time", margins.CPU, judge.CPUMargin}} {
		if m.margin > 0 && !c.AA() {
			key := limitKey{c.Name, m.name}
			add("margin", fmt.Sprintf("%s: %s of B at most %s above that of A", c.Name, m.quantity, judge.FormatPart(m.margin)),
				func(r *judge.Result) reports.Result { return limitResult(r, []limitKey{key}) }, key)
		}
	}
	return cases
}

// limitResult returns the result of a case that is about some limits. At least one of them has to be judged. The result
// is failed if one is broken, and invalid if one cannot be judged.
func limitResult(r *judge.Result, keys []limitKey) reports.Result {
	out := reports.Result{Verdict: verdicts.Passed}
	unjudged := ""
	for _, k := range keys {
		l, judged, found := r.Limit(k.subject, k.name)
		switch {
		case !found:
		case !judged:
			unjudged = l.Detail
		default:
			out.Judged++
			addLimit(&out, l)
		}
	}
	switch {
	case out.Judged > 0:
	case unjudged != "":
		out = reports.Result{Verdict: verdicts.Skipped, Reason: "not judged: " + unjudged}
	default:
		out = reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameEnvironment, Reason: "not judged: no block with it was run"}
	}
	return out
}

// addLimit adds the judgement of one limit to a result.
func addLimit(out *reports.Result, l judge.LimitResult) {
	switch {
	case l.State == judge.Holds:
		out.Details = append(out.Details, l.Detail)
	case l.State == judge.Broken:
		out.Verdict, out.Reason, out.Blame = verdicts.Failed, l.Detail, blameForLimit(l.Name)
		out.Certain = out.Certain || l.Certain
	case out.Verdict != verdicts.Failed:
		out.Verdict, out.Reason, out.Blame = verdicts.Invalid, l.Detail, verdicts.BlameEnvironment
	}
}

// blameForLimit returns who is to blame if a limit is broken. For reviews it is the API server; for times nobody knows.
func blameForLimit(name judge.LimitName) verdicts.Blame {
	switch name {
	case judge.IdentitiesWanted, judge.ServerGrowth, judge.PredictedReviews, judge.ReviewsPerRequest, judge.ChecksAtOnce:
		return verdicts.BlameAPIServer
	}
	return ""
}
