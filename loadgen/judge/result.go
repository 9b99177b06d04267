// Package judge says what a storm shows: it makes statements with intervals, and an outcome, of the counters and
// histograms that the storm left behind. Everything follows from these and the thresholds alone.
package judge

import (
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics"
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

// Result is what a run says. It follows from the run and the thresholds.
type Result struct {
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
	// NotJudged are limits about which nothing was to be said, such as an objective of latency for a handful of requests
	// in a run that is about counts. They change no outcome, and each is among the notes.
	NotJudged []LimitResult `json:"notJudged,omitempty"`
}

// State of a check or a limit.
type State string

// The possible states.
const (
	Holds   State = "held"
	Broken  State = "broken"
	Unknown State = "unknown" // it cannot be said, or was not looked at
)

// Check is one about the measuring.
type Check struct {
	Name   CheckName `json:"name"`
	State  State     `json:"state"`
	Detail string    `json:"detail"`
}

// LimitResult is the judgement of a threshold for a variant or a comparison.
type LimitResult struct {
	// Of names the variant or comparison, Name the threshold.
	Of     string    `json:"of"`
	Name   LimitName `json:"name"`
	State  State     `json:"state"`
	Detail string    `json:"detail"`
	// Certain says of a broken limit that nothing which disturbed the run explains it.
	Certain bool `json:"certain,omitempty"`
}

// LimitName names what is limited.
type LimitName string

// The limits of a variant, of a comparison, and of a run as a whole. Those of the objectives of Kubernetes are named
// by Objective.
const (
	// IdentitiesWanted limits what cannot be due to chance or load: an answer to somebody else than was wanted, or to what
	// was not granted.
	IdentitiesWanted  LimitName = "identities"
	PredictedReviews  LimitName = "predicted reviews"
	ReviewsPerRequest LimitName = "reviewsPerRequest"
	P99               LimitName = "p99"
	ErrorRate         LimitName = "errorRate"
	ChecksAtOnce      LimitName = "checksAtOnce"
	P50Margin         LimitName = "p50 margin"
	P99Margin         LimitName = "p99 margin"
	CPUMargin         LimitName = "CPU margin"

	// ThresholdsUnused is the limit of a variant that did not run, ComparisonMissing that of a comparison of which no block
	// ran.
	// ServerGrowth limits what a server holds after a storm.
	ServerGrowth LimitName = "growth"

	ThresholdsUnused  LimitName = "thresholds"
	ComparisonMissing LimitName = "comparison"

	anyMargin LimitName = "margin"
)

// ObjectivePrefix begins the names of limits that are objectives of Kubernetes.
const ObjectivePrefix = "sloHeld"

// Objective names the objective of Kubernetes for the latency of a kind of request.
func Objective(kind string) LimitName { return LimitName(ObjectivePrefix + " (" + kind + ")") }

// Limit returns the judgement of a limit of a variant or a comparison, in Limits or NotJudged.
func (r *Result) Limit(of string, name LimitName) (limit LimitResult, judged, found bool) {
	matches := func(l LimitResult) bool { return l.Of == of && l.Name == name }
	if i := slices.IndexFunc(r.Limits, matches); i >= 0 {
		return r.Limits[i], true, true
	}
	if i := slices.IndexFunc(r.NotJudged, matches); i >= 0 {
		return r.NotJudged[i], false, true
	}
	return limit, false, false
}

// Sound reports whether every check and limit holds.
func (r Result) Sound() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool { return c.State != Holds }) &&
		!slices.ContainsFunc(r.Limits, func(l LimitResult) bool { return l.State != Holds })
}

// Counted reports whether nothing disturbed what a run counts, whatever it says of latency.
func (r Result) Counted() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool {
		return c.State != Holds && slices.Contains([]CheckName{Executed, Undisturbed, Servers, Counters}, c.Name)
	})
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

	// Reviews are those of the steady state, or where every agent had asked before, FirstContact those of the blocks in
	// which each request was the first of its agent. Without either, or a prediction, Reviews are those of all blocks.
	Reviews      ReviewRate  `json:"reviews"`
	FirstContact *ReviewRate `json:"firstContact,omitempty"`
	// ReviewsPerSecond is the load that the authorizer had, MostReviews the most in one second of a block.
	ReviewsPerSecond float64 `json:"reviewsPerSecond"`
	// WebhookCalls is how many reviews per request the API server sent to its webhooks, by its own count; 0 where the recorder
	// counts.
	WebhookCalls float64 `json:"webhookCallsPerRequest,omitempty"`
	MostReviews  int64   `json:"mostReviewsInASecond,omitempty"`
	GeneratorCPU float64 `json:"generatorCPUMillisecondsPerRequest"` // ms of CPU time per request sent
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
	A string `json:"a"`
	B string `json:"b"`
	// Disturbed is how many of the pairs say nothing about time, because others used the machine (run.Block.FindDisturbance).
	Disturbed int `json:"disturbed,omitempty"`
	// Twins are the sides whose blocks are part of the baseline, too: the same variant on other servers that are like A's.
	Twins  []string `json:"twins,omitempty"`
	Pairs  int      `json:"pairs"` // how many there are, Starts in how many starts of the servers
	Starts int      `json:"starts"`
	// LevelA and LevelB are the priority levels in which most requests of the sides were dispatched. In different ones latency
	// and processor time are not compared.
	LevelA string `json:"levelA,omitempty"`
	LevelB string `json:"levelB,omitempty"`
	P50    Effect `json:"p50"`
	P99    Effect `json:"p99"`
	// CPU is of the API server's processor time above idle for each request.
	CPU Effect `json:"cpu"`
	// ReviewsA and ReviewsB are the reviews per request of the sides.
	ReviewsA float64             `json:"reviewsPerRequestA"`
	ReviewsB float64             `json:"reviewsPerRequestB"`
	Profiles []ProfileDifference `json:"cpuProfiles,omitempty"` // what programs do otherwise in B

	// logP50 are the log-ratios of p50 by pair, kept for the trend.
	logP50 []float64
	// oneProcess says that both sides of an A/A comparison ran on one server.
	oneProcess bool
}

// Baseline names side A, and the servers like it whose blocks are part of it.
func (c Comparison) Baseline() string {
	return strings.Join(append([]string{c.A}, c.Twins...), " and ")
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

// Usage is what one program used for a variant.
type Usage struct {
	// PerRequest is ms of CPU time above idle for each request sent, Idle the part of a processor used without requests.
	PerRequest float64 `json:"cpuMillisecondsPerRequest"`
	Idle       float64 `json:"idleProcessors"`
	RSS        int64   `json:"rssBytes"` // the most at a block's end
	// Allocated bytes for each request sent, and garbage collections in all blocks.
	Allocated float64 `json:"allocatedBytesPerRequest,omitempty"`
	GCs       int64   `json:"gcs,omitempty"`
	PeakHeap  int64   `json:"peakHeapBytes,omitempty"` // of all blocks
}

// ReviewRate is access reviews per request.
type ReviewRate struct {
	// Of is the phase, and where checks of requests themselves are not
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

// CheckRate is how many reviews of one kind a request costs in the mean.
type CheckRate struct {
	run.ReviewKind
	PerRequest float64 `json:"perRequest"`
	Predicted  *Range  `json:"predicted,omitempty"`
}

// Range is what is predicted per request: with requests that are under way at once, it is not one figure.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
