package storm

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

type reviews struct {
	start time.Time
	mu    sync.Mutex
	tallies
}

// tallies are what was counted. They go from one process to another.
type tallies struct {
	Arrived  map[recorder.Point]map[string]int64 // by verb
	Timeline []int64                             // at the front
	Latency  histogram.Histogram
}

// counting is how a recorder counts, and how long it takes to answer.
type counting struct {
	Start       time.Time
	Delay       time.Duration
	Sigma       float64
	Concurrency int
}

func newReviews(start time.Time) *reviews {
	return &reviews{start: start, tallies: tallies{Arrived: map[recorder.Point]map[string]int64{recorder.Front: {}, recorder.Back: {}}}}
}

// isOther tells reviews that have nothing to do with the storm.
type isOther func(recorder.Point, authorizationv1.SubjectAccessReviewSpec) bool

// others is nil where nobody else asks.
func (s *controlPlane) others() isOther {
	if s.targets[0].Components() {
		return s.targets[0].Other
	}
	return nil
}

func (r *reviews) counting(c counting, others isOther) *recorder.Counting {
	out := &recorder.Counting{Arrived: r.arrive, Answered: r.answered, Other: others}
	if c.Delay > 0 {
		out.Delay = func() time.Duration { return time.Duration(float64(c.Delay) * math.Exp(c.Sigma*rand.NormFloat64())) }
	}
	if c.Concurrency > 0 {
		out.Slots = make(chan struct{}, c.Concurrency)
	}
	return out
}

func (r *reviews) arrive(p recorder.Point, verb string) {
	second := max(0, int(time.Since(r.start)/time.Second))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Arrived[p][verb]++
	if p != recorder.Front {
		return
	}
	for len(r.Timeline) <= second {
		r.Timeline = append(r.Timeline, 0)
	}
	r.Timeline[second]++
}

func (r *reviews) answered(p recorder.Point, took time.Duration) {
	if p != recorder.Front {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Latency.Record(took)
}

func (r *reviews) soFar() (t tallies) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t = tallies{Arrived: map[recorder.Point]map[string]int64{}, Timeline: slices.Clone(r.Timeline)}
	for point, verbs := range r.Arrived {
		t.Arrived[point] = maps.Clone(verbs)
	}
	t.Latency.Merge(&r.Latency)
	return t
}

func (t tallies) total() int64 {
	return seq.Sum(t.Timeline, func(second int64) int64 { return second })
}

// counts are the reviews by verb and decision. One that also arrived at the back got no opinion from the
// authorizers between; the others were allowed, for RBAC and the Node authorizer deny nothing. Where the API server
// remembers what either end answered, that cannot be told.
func (t tallies) counts(cached bool) (list []run.ReviewCount) {
	for verb, n := range t.Arrived[recorder.Front] {
		undecided := t.Arrived[recorder.Back][verb]
		decisions := map[string]int64{"Allow": n - undecided, "NoOpinion": undecided}
		if cached {
			decisions = map[string]int64{run.Unseen: n}
		}
		mode, _ := scenarios.ImpersonationMode(verb)
		for decision, count := range decisions {
			if count != 0 {
				list = append(list, run.ReviewCount{ReviewKind: run.ReviewKind{Mode: cmp.Or(mode, run.RequestMode), Verb: verb, Decision: decision}, Count: count})
			}
		}
	}
	slices.SortFunc(list, func(a, b run.ReviewCount) int { return a.Compare(b.ReviewKind) })
	return list
}

func (t tallies) fill(b *run.Block, cached bool) {
	b.Reviews, b.WebhookLatency = t.counts(cached), t.Latency
	for i, n := range t.Timeline {
		for len(b.Timeline) <= i {
			b.Timeline = append(b.Timeline, run.Second{})
		}
		b.Timeline[i].Reviews = n
	}
}

// The API server's own counters that a block is measured by.
const (
	authorizationAttempts = verdicts.AuthorizationsMetric
	webhookEvaluations    = "apiserver_authorization_webhook_evaluations_total"
	flowControl           = "apiserver_flowcontrol_"
	decisions             = "apiserver_authorization_decisions_total"
)

type counters map[string]sample

type sample struct {
	family string
	labels model.Metric
	value  float64
}

// processStart is a gauge of every Go program: when it began, in seconds since 1970.
const processStart = "process_start_time_seconds"

// heapSys is a gauge of every Go program, too: what its heap has needed at most, for that is not given back.
const heapSys = "go_memstats_heap_sys_bytes"

func (c counters) of(family string) (one sample, there bool) {
	for _, s := range c {
		if s.family == family {
			return s, true
		}
	}
	return one, false
}

// began is when the server's process began, zero if it does not say so.
func (c counters) began() time.Time {
	if s, there := c.of(processStart); there {
		return time.UnixMilli(int64(1000 * s.value)).UTC()
	}
	return time.Time{}
}

// readCounters takes all that was scraped but the buckets of histograms.
func readCounters(families map[string]*dto.MetricFamily) (counters, error) {
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
	out := counters{}
	for _, s := range samples {
		if family := string(s.Metric[model.MetricNameLabel]); !strings.HasSuffix(family, "_bucket") {
			out[s.Metric.String()] = sample{family, s.Metric, float64(s.Value)}
		}
	}
	return out, err
}

func (c counters) add(other counters) {
	for key, s := range other {
		if before := c[key].value; s.family == processStart {
			s.value = max(s.value, before) // the newest process
		} else {
			s.value += before
		}
		c[key] = s
	}
}

func (c counters) since(before counters) (list []sample) {
	for key, s := range c {
		if s.family != heapSys {
			s.value -= before[key].value
		}
		if s.value != 0 {
			list = append(list, s)
		}
	}
	return list
}

// metrics puts what the API server counted into the block, and says where it contradicts the recorder. hasAttempts
// says whether the server counts checks of impersonation at all, components whether others than the agents ask it, and
// restarted whether what it counted last is lost.
func metrics(b *run.Block, increased []sample, hasAttempts, components, restarted bool) {
	evaluations := 0.0
	for _, s := range increased {
		switch {
		case s.family == webhookEvaluations && strings.HasPrefix(string(s.labels["name"]), "recorder-"):
			if s.labels["name"] == "recorder-front" {
				evaluations += s.value
			}
			if s.labels["result"] != "success" {
				b.GivenUp += int64(s.value)
			}
		case s.family == authorizationAttempts:
			b.Attempts = append(b.Attempts, run.AttemptCount{Mode: string(s.labels["mode"]), Decision: string(s.labels["decision"]), Count: s.value})
		case strings.HasPrefix(s.family, flowControl):
			if name := flowName(s); name != "" {
				if b.FlowControl == nil {
					b.FlowControl = map[string]float64{}
				}
				b.FlowControl[name] += math.Round(s.value*1e6) / 1e6
			}
		}
	}
	slices.SortFunc(b.Attempts, func(a, b run.AttemptCount) int {
		return cmp.Or(strings.Compare(a.Mode, b.Mode), strings.Compare(a.Decision, b.Decision))
	})
	b.Unreconciled = unreconciled(b, int64(evaluations), hasAttempts && !restarted, components, restarted)
}

// flowName names a series of priority and fairness: what was rejected and dispatched, and how long it waited.
func flowName(s sample) string {
	level := string(s.labels["priority_level"])
	switch strings.TrimPrefix(s.family, flowControl) {
	case "rejected_requests_total":
		return "rejected " + level + " " + string(s.labels["reason"])
	case "dispatched_requests_total":
		return "dispatched " + level
	case "request_wait_duration_seconds_sum":
		return "waited " + level + " seconds"
	}
	return ""
}

// unreconciled compares the recorder with the server's metrics: all reviews with the calls of the webhook, those
// of each mode with the attempts. Where components ask too, whose reviews were left out, the calls can only be
// more; where a server was restarted, less. One that the server gave up may have arrived or not, at both ends or one.
func unreconciled(b *run.Block, evaluations int64, hasAttempts, components, restarted bool) (list []string) {
	total := seq.Sum(b.Reviews, func(r run.ReviewCount) int64 { return r.Count })
	given := ""
	if b.GivenUp > 0 {
		given = fmt.Sprintf(", and gave up %d", b.GivenUp)
	}
	if total > evaluations && !restarted || total < evaluations-b.GivenUp && !components {
		list = append(list, fmt.Sprintf("the recorder received %d reviews, the API server says it sent %d%s", total, evaluations, given))
	}
	if hasAttempts {
		list = append(list, b.Contradicted()...)
	}
	return list
}
