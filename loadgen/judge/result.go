// Package judge says what a storm shows. From the counters and histograms of the storm it makes statements with
// intervals, and an outcome. Everything follows from these and the thresholds alone.
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

// These are the possible outcomes.
const (
	// Passed means that everything that was requested was looked at, and holds.
	Passed Outcome = "passed"
	// Failed means that something that was requested does not hold.
	Failed Outcome = "failed"
	// Inconclusive means that the run cannot decide.
	Inconclusive Outcome = "inconclusive"
)

// Result is the judgement of a run. It follows from the run and the thresholds.
type Result struct {
	Thresholds Thresholds `json:"thresholds"`

	Outcome Outcome `json:"outcome"`
	// Reasons say why the outcome is not passed, beginning with those that decided it.
	Reasons []string `json:"reasons"`
	// Notes say what a reader should know although it changes nothing.
	Notes []string `json:"notes"`

	Variants    []Variant    `json:"variants"`
	Comparisons []Comparison `json:"comparisons"`
	// Checks are about the measuring itself. If one of them does not hold, or could not be made, nothing else counts.
	Checks []Check       `json:"checks"`
	Limits []LimitResult `json:"limits"` // the judgements on the thresholds
	// NotJudged are limits that could not be judged, such as an objective of latency for a handful of requests in a run
	// that is about counts. They change no outcome, and each is among the notes.
	NotJudged []LimitResult `json:"notJudged,omitempty"`
}

// State is the state of a check or a limit.
type State string

// These are the possible states.
const (
	Holds   State = "held"
	Broken  State = "broken"
	Unknown State = "unknown" // undecided, or not looked at
)

// Check is one check of the measuring.
type Check struct {
	Name   CheckName `json:"name"`
	State  State     `json:"state"`
	Detail string    `json:"detail"`
}

// LimitResult is the judgement of a threshold for a variant or a comparison.
type LimitResult struct {
	// Of is the name of the variant or comparison, and Name is that of the threshold.
	Of     string    `json:"of"`
	Name   LimitName `json:"name"`
	State  State     `json:"state"`
	Detail string    `json:"detail"`
	// Certain means that nothing which disturbed the run can explain the broken limit.
	Certain bool `json:"certain,omitempty"`
}

// LimitName names what is limited.
type LimitName string

// These are the limits of a variant, of a comparison, and of a run as a whole. Objective names those that are
// objectives of Kubernetes.
const (
	// IdentitiesWanted limits what cannot be caused by chance or load: an answer to somebody else than was wanted, or
	// to what was not granted.
	IdentitiesWanted  LimitName = "identities"
	PredictedReviews  LimitName = "predicted reviews"
	ReviewsPerRequest LimitName = "reviewsPerRequest"
	P99               LimitName = "p99"
	ErrorRate         LimitName = "errorRate"
	ChecksAtOnce      LimitName = "checksAtOnce"
	P50Margin         LimitName = "p50 margin"
	P99Margin         LimitName = "p99 margin"
	CPUMargin         LimitName = "CPU margin"

	// ThresholdsUnused is the limit of a variant that did not run, and ComparisonMissing that of a comparison without a
	// block that ran. ServerGrowth limits how much memory a server has after a storm.
	ServerGrowth LimitName = "growth"

	ThresholdsUnused  LimitName = "thresholds"
	ComparisonMissing LimitName = "comparison"

	anyMargin LimitName = "margin"
)

// ObjectivePrefix is the beginning of the names of limits that are objectives of Kubernetes.
const ObjectivePrefix = "sloHeld"

// Objective returns the name of the objective of Kubernetes for the latency of a kind of request.
func Objective(kind string) LimitName { return LimitName(ObjectivePrefix + " (" + kind + ")") }

// Limit returns the judgement of a limit of a variant or a comparison, in Limits or NotJudged.
func (r *Result) Limit(subject string, name LimitName) (limit LimitResult, isJudged, found bool) {
	matches := func(l LimitResult) bool { return l.Of == subject && l.Name == name }
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

// Counted reports whether nothing disturbed what a run counts, whatever it shows about latency.
func (r Result) Counted() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool {
		return c.State != Holds && slices.Contains([]CheckName{Executed, Undisturbed, Servers, Counters}, c.Name)
	})
}

// Variant is what was measured of a variant on a server, with a number of agents.
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
	// Again are answers after which agents asked again, which are also in Statuses: throttled is 429, and refused is a
	// server that is not there.
	Again    map[string]int64 `json:"again,omitempty"`
	Rate     float64          `json:"requestsPerSecond"`
	Statuses map[string]int64 `json:"statuses,omitempty"` // the answers by status, or class of error

	// P50 and P99 are those of all blocks together, from the intended send, with order-statistic bounds at a level of
	// 95 %. These treat requests as independent, which the bounds of a comparison do not.
	P50  QuantileBound `json:"p50"`
	P99  QuantileBound `json:"p99"`
	P999 float64       `json:"p999Milliseconds"`
	Max  float64       `json:"maxMilliseconds"`

	// Reviews are those of the steady state, or where every agent had asked before. FirstContact are those of the
	// blocks in which each request was the first of its agent. If there is neither, or no prediction, Reviews are those
	// of all blocks.
	Reviews      ReviewRate  `json:"reviews"`
	FirstContact *ReviewRate `json:"firstContact,omitempty"`
	// ReviewsPerSecond is the load that the authorizer had, MostReviews the most in one second of a block.
	ReviewsPerSecond float64 `json:"reviewsPerSecond"`
	// WebhookCalls is how many reviews per request the API server sent to its webhooks by its own count. It is 0 if the
	// recorder counts.
	WebhookCalls float64 `json:"webhookCallsPerRequest,omitempty"`
	MostReviews  int64   `json:"mostReviewsInASecond,omitempty"`
	GeneratorCPU float64 `json:"generatorCPUMillisecondsPerRequest"` // ms of CPU time for each request that was sent
	// Usage is what the programs under load used in addition to what they use without load, by program.
	Usage        map[string]Usage `json:"usage,omitempty"`
	GeneratorRSS int64            `json:"generatorRSSBytes"` // the largest resident memory at the end of a block
	// FlowControl is what priority and fairness did in all blocks, by quantity and priority level: requests dispatched
	// and rejected, and seconds waited by all requests together.
	FlowControl map[string]float64 `json:"flowControl,omitempty"`
	// WebhookP99 is the p99 in ms of the webhook's own latency.
	WebhookP99 float64 `json:"webhookP99Milliseconds"`
}

// QuantileBound is a quantile in ms.
type QuantileBound struct {
	Milliseconds float64 `json:"milliseconds"`
	// Low and High are its bounds at 95 % if Bounded. Otherwise Samples says why: there are too few.
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Bounded bool    `json:"bounded"`
	Samples int64   `json:"samples"`
}

// Comparison is one comparison of the profile, of side B with side A.
type Comparison struct {
	Name string `json:"name"`
	AA   bool   `json:"aa,omitempty"`
	// A and B are the variants and servers of the sides.
	A string `json:"a"`
	B string `json:"b"`
	// Disturbed is how many of the pairs say nothing about time because others used the machine
	// (run.Block.FindDisturbance).
	Disturbed int `json:"disturbed,omitempty"`
	// Twins are further sides whose blocks are part of the baseline: the same variant on other servers that are like
	// A's.
	Twins  []string `json:"twins,omitempty"`
	Pairs  int      `json:"pairs"` // how many there are; Starts is in how many starts of the servers
	Starts int      `json:"starts"`
	// LevelA and LevelB are the priority levels in which most requests of the sides were dispatched. If they differ,
	// latency and processor time are not compared.
	LevelA string `json:"levelA,omitempty"`
	LevelB string `json:"levelB,omitempty"`
	P50    Effect `json:"p50"`
	P99    Effect `json:"p99"`
	// CPU is about the API server's processor time above idle for each request.
	CPU Effect `json:"cpu"`
	// ReviewsA and ReviewsB are the reviews per request of the sides.
	ReviewsA float64             `json:"reviewsPerRequestA"`
	ReviewsB float64             `json:"reviewsPerRequestB"`
	Profiles []ProfileDifference `json:"cpuProfiles,omitempty"` // what programs do differently in B

	// logP50 are the log-ratios of p50 by pair, kept for the trend.
	logP50 []float64
	// oneProcess means that both sides of an A/A comparison ran on one server.
	oneProcess bool
}

// Baseline returns the names of side A and of the servers like it whose blocks are part of the baseline.
func (c Comparison) Baseline() string {
	return strings.Join(append([]string{c.A}, c.Twins...), " and ")
}

// Effect is how much longer B takes than A, over starts of the servers.
type Effect struct {
	Measured bool   `json:"measured"` // false if nothing can be said, and Why says why
	Why      string `json:"why,omitempty"`
	// Change is B/A-1 (0.03 is 3 % longer) with its 95 % interval. Ninety is the 90 % interval, on which the verdict is
	// based. Both are by Student's t over the means of starts, which are in Starts.
	Change       statistics.Interval `json:"change"`
	Ninety       statistics.Interval `json:"change90"`
	Starts       []float64           `json:"starts,omitempty"`
	Milliseconds statistics.Interval `json:"milliseconds"` // the mean difference with its 95 % interval
	// P belongs to the same t. PHolm is adjusted for all tests of its family: those of all comparisons, or those of
	// A/A.
	P     float64 `json:"p"`
	PHolm float64 `json:"pHolm"`
	// Margin is the declared margin, or 0 if there is none. Verdict is where the 90 % interval lies: equivalent, above,
	// below or undecided. It is empty without a margin.
	Margin  float64                `json:"margin,omitempty"`
	Verdict statistics.Equivalence `json:"verdict,omitempty"`
}

// Usage is what one program used for a variant.
type Usage struct {
	// PerRequest is ms of CPU time above idle for each request that was sent. Idle is the part of a processor that is
	// used without requests.
	PerRequest float64 `json:"cpuMillisecondsPerRequest"`
	Idle       float64 `json:"idleProcessors"`
	RSS        int64   `json:"rssBytes"` // the largest at the end of a block
	// Allocated is bytes for each request that was sent. Collections are garbage collections in all blocks.
	Allocated float64 `json:"allocatedBytesPerRequest,omitempty"`
	GCs       int64   `json:"gcs,omitempty"`
	PeakHeap  int64   `json:"peakHeapBytes,omitempty"` // of all blocks
}

// ReviewRate is the number of access reviews per request.
type ReviewRate struct {
	// Of is the phase, preceded by "impersonation alone" if checks of requests themselves are not counted. Blocks is
	// how many blocks there are.
	Of     string `json:"of"`
	Blocks int    `json:"blocks"`
	// PerRequest is the mean of blocks, with its 95 % interval if Bounded. A single block has none.
	PerRequest statistics.Interval `json:"perRequest"`
	Bounded    bool                `json:"bounded"`
	Checks     []CheckRate         `json:"checks,omitempty"` // the means by mode, verb and decision
	// Predicted is what the oracle predicts for the schedules of these blocks, or nil.
	Predicted *Range `json:"predicted,omitempty"`
	Verdict   string `json:"verdict"` // "as predicted", "not as predicted", or why it is not judged
}

// CheckRate is how many reviews of one kind a request costs on average.
type CheckRate struct {
	run.ReviewKind
	PerRequest float64 `json:"perRequest"`
	Predicted  *Range  `json:"predicted,omitempty"`
}

// Range is what is predicted per request. If requests are open at the same time, it is not a single figure.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
