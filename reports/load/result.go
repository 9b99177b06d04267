// Package load judges load runs: it makes statements with intervals, and an outcome, of the counters and
// histograms that a run left behind, and renders them. Everything is recomputed from the run alone, and comes out
// the same each time.
package load

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/statistics"
)

// Version of the file format.
const (
	APIVersion = run.APIVersion
	Kind       = "LoadReport"
)

// Outcome is the overall judgement of a run.
type Outcome string

// The possible outcomes.
const (
	// Passed: everything that was asked for was looked at, and holds.
	Passed Outcome = "passed"
	// Failed: something that was asked for does not hold.
	Failed Outcome = "failed"
	// Inconclusive: the run cannot say.
	Inconclusive Outcome = "inconclusive"
)

// ExitCode is that of authzconf.
func (o Outcome) ExitCode() int {
	switch o {
	case Passed:
		return 0
	case Failed:
		return 1
	}
	return 3
}

// Limits are what a variant has to keep. What is left out is not judged.
type Limits struct {
	// ReviewsPerRequest is the most access reviews that a request may cost in the mean.
	ReviewsPerRequest float64 `json:"reviewsPerRequest,omitempty"`
	// P99 of the latency from the intended send, at most.
	P99 run.Duration `json:"p99,omitempty,omitzero"`
	// SLOHeld asks for the latency objectives of Kubernetes: a p99 of 1 s for a single object, 30 s for a list.
	SLOHeld bool `json:"sloHeld,omitempty"`
	// ErrorRate is the largest part of the answers, 0 to 1, that may be errors.
	ErrorRate *float64 `json:"errorRate,omitempty"`
}

// Thresholds are what a run has to keep. They have to be declared before it.
type Thresholds struct {
	// Limits are those of every variant that Variants does not name.
	Limits
	// Variants have limits of their own, in place of the others, by name.
	Variants map[string]Limits `json:"variants,omitempty"`
	// Margin is the part, such as 0.05, within which the p50 of the two sides of a comparison has to be the same,
	// MarginP99 that for the p99. 0: not judged.
	Margin    float64 `json:"margin,omitempty"`
	MarginP99 float64 `json:"marginP99,omitempty"`
	// Comparisons have margins of their own, in place of these, by name.
	Comparisons map[string]Margins `json:"comparisons,omitempty"`
	// MinPairs and MinStarts are how many pairs a comparison was declared to have, and in how many starts of the
	// servers: 20 in 5 if they are 0. What is said of a difference needs what the statistics ask for in any case.
	MinPairs  int `json:"minPairs,omitempty"`
	MinStarts int `json:"minStarts,omitempty"`
}

// Margins are the parts within which the two sides of a comparison have to be the same. 0: not judged.
type Margins struct {
	P50 float64 `json:"p50,omitempty"`
	P99 float64 `json:"p99,omitempty"`
}

func (t Thresholds) margins(comparison string) Margins {
	if own, ok := t.Comparisons[comparison]; ok {
		return own
	}
	return Margins{P50: t.Margin, P99: t.MarginP99}
}

func (t Thresholds) declareMargins() bool {
	own := slices.Collect(maps.Values(t.Comparisons))
	return t.Margin > 0 || t.MarginP99 > 0 || slices.ContainsFunc(own, func(m Margins) bool { return m != Margins{} })
}

// aboutLatency says whether latencies or their differences are limited, beside the objectives of Kubernetes.
func (t Thresholds) aboutLatency() bool {
	limited := func(l Limits) bool { return l.P99 > 0 }
	return t.declareMargins() || limited(t.Limits) || slices.ContainsFunc(slices.Collect(maps.Values(t.Variants)), limited)
}

const defaultMinPairs = 20

// Validate says which threshold makes no sense, by its path in a file: one below 0 would silently not be judged.
func (t Thresholds) Validate() error {
	parts := map[string]float64{"margin": t.Margin, "marginP99": t.MarginP99}
	for name, m := range t.Comparisons {
		parts["comparisons."+name+".p50"], parts["comparisons."+name+".p99"] = m.P50, m.P99
	}
	for _, path := range slices.Sorted(maps.Keys(parts)) {
		if part := parts[path]; !(part >= 0 && part < 1) {
			return fmt.Errorf("%s: %g is not a part from 0 to below 1", path, part)
		}
	}
	if t.MinPairs < 0 || t.MinStarts < 0 {
		return fmt.Errorf("minPairs, minStarts: %d, %d: one is below 0", t.MinPairs, t.MinStarts)
	}
	if err := t.Limits.validate(""); err != nil {
		return err
	}
	for _, variant := range slices.Sorted(maps.Keys(t.Variants)) {
		if err := t.Variants[variant].validate("variants." + variant + "."); err != nil {
			return err
		}
	}
	return nil
}

func (l Limits) validate(path string) error {
	switch {
	case !(l.ReviewsPerRequest >= 0) || math.IsInf(l.ReviewsPerRequest, 0):
		return fmt.Errorf("%sreviewsPerRequest: %g is not a number of reviews", path, l.ReviewsPerRequest)
	case l.P99 < 0:
		return fmt.Errorf("%sp99: %s is below 0", path, text(l.P99))
	case l.ErrorRate != nil && !(*l.ErrorRate >= 0 && *l.ErrorRate <= 1):
		return fmt.Errorf("%serrorRate: %g is not a part from 0 to 1", path, *l.ErrorRate)
	}
	return nil
}

type design struct{ pairs, starts int }

func (d design) String() string {
	return reports.Plural(d.pairs, "pair") + " in " + reports.Plural(d.starts, "start")
}

func (d design) covers(least design) bool { return d.pairs >= least.pairs && d.starts >= least.starts }

func (t Thresholds) declared() design {
	return design{cmp.Or(t.MinPairs, defaultMinPairs), cmp.Or(t.MinStarts, statistics.MinStarts)}
}

// forClaim is what one statement of so many tests needs: what was declared, and no less than the statistics ask for.
func (t Thresholds) forClaim(tests int) design {
	d := t.declared()
	return design{max(d.pairs, statistics.PairsNeeded(tests)), max(d.starts, statistics.MinStarts)}
}

func (t Thresholds) of(variant string) Limits {
	if l, ok := t.Variants[variant]; ok {
		return l
	}
	return t.Limits
}

// Result is what a run says. It follows from the run and the thresholds.
type Result struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Profile, Seed, Tool and Started are those of the run.
	Profile    string     `json:"profile"`
	Seed       int64      `json:"seed"`
	Tool       string     `json:"tool"`
	Started    time.Time  `json:"started"`
	Thresholds Thresholds `json:"thresholds"`

	Outcome Outcome `json:"outcome"`
	// Reasons say why the outcome is not passed; those that decided it come first.
	Reasons []string `json:"reasons"`
	// Notes say what a reader should know and what changes nothing.
	Notes []string `json:"notes"`

	Variants    []Variant    `json:"variants"`
	Comparisons []Comparison `json:"comparisons"`
	// Checks are about the measuring itself. If one does not hold, or could not be made, nothing else counts.
	Checks []Check       `json:"checks"`
	Limits []LimitResult `json:"limits"` // the judgements of the thresholds
}

// State of a check or a limit.
type State string

// The possible states.
const (
	Held    State = "held"
	Broken  State = "broken"
	Unknown State = "unknown" // it cannot be said, or was not looked at
)

// Check is one about the measuring.
type Check struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail"`
}

// LimitResult is the judgement of a threshold for a variant or a comparison.
type LimitResult struct {
	// Of names the variant or comparison, Name the threshold.
	Of     string `json:"of"`
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail"`
}

// Unkept says whether a check or a limit does not hold.
func (r Result) Unkept() bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.State != Held }) ||
		slices.ContainsFunc(r.Limits, func(l LimitResult) bool { return l.State != Held })
}

// Variant is what was measured of a variant on a server, at a number of agents.
type Variant struct {
	Variant string `json:"variant"`
	Server  string `json:"server"`
	Agents  int    `json:"agents"`
	Name    string `json:"name"` // unique within the report
	Blocks  int    `json:"blocks"`

	Sent    int64 `json:"sent"`
	Done    int64 `json:"done"`
	Errors  int64 `json:"errors"`
	Late    int64 `json:"late"`
	Dropped int64 `json:"dropped"`
	// Again are answers, also in Statuses, after which agents asked again: 429 is throttled, refused a server not there.
	Again    map[string]int64 `json:"again,omitempty"`
	Rate     float64          `json:"requestsPerSecond"`
	Statuses map[string]int64 `json:"statuses,omitempty"` // the answers by status, or class of error

	// P50 and P99 are of all blocks together, from the intended send, with the order-statistic bounds of a level
	// of 95 %. They take requests for independent: the bounds of a comparison do not.
	P50  QuantileBound `json:"p50"`
	P99  QuantileBound `json:"p99"`
	P999 float64       `json:"p999Milliseconds"`
	Max  float64       `json:"maxMilliseconds"`

	// Reviews are those of the steady state, in which every agent had asked before, FirstContact of the blocks of which each
	// request was the first of its agent. Without either, or a prediction, Reviews are of all blocks.
	Reviews      ReviewRate  `json:"reviews"`
	FirstContact *ReviewRate `json:"firstContact,omitempty"`
	// ReviewsPerSecond is the load that the authorizer had, MostReviews the most in one second of a block.
	ReviewsPerSecond float64 `json:"reviewsPerSecond"`
	MostReviews      int64   `json:"mostReviewsInASecond,omitempty"`
	GeneratorCPU     float64 `json:"generatorCPUMillisecondsPerRequest"` // ms of CPU time per request sent
	// Usage is what the programs under load used above what they use without, by what they are.
	Usage        map[string]Usage `json:"usage,omitempty"`
	GeneratorRSS int64            `json:"generatorRSSBytes"` // the most resident bytes at a block's end
	// FlowControl is what priority and fairness did in all blocks, by what it is and the priority level: requests
	// dispatched and rejected, seconds waited by all requests together.
	FlowControl map[string]float64 `json:"flowControl,omitempty"`
	// WebhookP99 is the p99 in ms of the webhook's own latency.
	WebhookP99 float64 `json:"webhookP99Milliseconds"`
}

// QuantileBound is a quantile in ms.
type QuantileBound struct {
	Milliseconds float64 `json:"milliseconds"`
	// Low and High bound it at 95 % if Bounded; else Samples, too few, says why.
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Bounded bool    `json:"bounded"`
	Samples int64   `json:"samples"`
}

// Comparison is one comparison of the profile: side B against side A.
type Comparison struct {
	Name string `json:"name"`
	AA   bool   `json:"aa,omitempty"`
	// A and B name variant and server of the sides.
	A      string `json:"a"`
	B      string `json:"b"`
	Pairs  int    `json:"pairs"` // how many there are, Starts in how many starts of the servers
	Starts int    `json:"starts"`
	P50    Effect `json:"p50"`
	P99    Effect `json:"p99"`
	// CPU is of the API server's processor time above idle for each request. It has no margin.
	CPU Effect `json:"cpu"`
	// ReviewsA and ReviewsB are the reviews per request of the sides.
	ReviewsA float64             `json:"reviewsPerRequestA"`
	ReviewsB float64             `json:"reviewsPerRequestB"`
	Profiles []ProfileDifference `json:"cpuProfiles,omitempty"` // what programs do otherwise in B

	// Log-ratios of p50 by pair; kept for the trend.
	logP50 []float64
	// oneProcess says that both sides of an A/A comparison ran on one server.
	oneProcess bool
}

// Effect is how much longer B takes than A, over starts of the servers.
type Effect struct {
	Measured bool   `json:"measured"` // false if nothing can be said; Why says why
	Why      string `json:"why,omitempty"`
	// Change is B/A-1 (0.03 is 3 % longer) with its 95 % interval, Ninety the 90 % interval, which the verdict is
	// about: by Student's t over the means of starts, which are in Starts.
	Change       statistics.Interval `json:"change"`
	Ninety       statistics.Interval `json:"change90"`
	Starts       []float64           `json:"starts,omitempty"`
	Milliseconds statistics.Interval `json:"milliseconds"` // the mean difference with its 95 % interval
	// P is that of the same t, PHolm adjusted for all tests of its family: those of all comparisons, or of A/A.
	P     float64 `json:"p"`
	PHolm float64 `json:"pHolm"`
	// Margin is what was declared, 0 if nothing was, and Verdict where the 90 % interval lies: equivalent, above,
	// below or undecided; empty without a margin.
	Margin  float64                `json:"margin,omitempty"`
	Verdict statistics.Equivalence `json:"verdict,omitempty"`
}
