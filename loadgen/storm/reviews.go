package storm

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
	"github.com/authzconf/authzconf/scenarios"
)

// reviews counts the access reviews that the recorder receives while a block runs. What the API server itself counts is
// read in servercounters.go, and countChecks in metrics.go makes the checks of a block of it.
type reviews struct {
	start time.Time
	after time.Duration // when the block is settled; 0 if that does not matter
	mu    sync.Mutex
	tallies
	ownByText map[string]run.OwnReview // by the text of the review
	// checks are the checks of impersonation that are open. requests are the open reviews of requests themselves.
	checks, requests int64
}

// tallies are what was counted. They are passed from one process to another.
type tallies struct {
	Arrived  map[recorder.Point]map[string]int64 // by verb
	Settled  map[recorder.Point]map[string]int64 // those that arrived when the block was settled
	Timeline []int64                             // at the front
	Latency  histogram.Histogram
	// ChecksAtOnce is the largest number of checks of impersonation that were open at the same time, and RequestsAtOnce
	// the largest number of reviews of requests themselves.
	ChecksAtOnce, RequestsAtOnce int64
}

// countingOptions is how a recorder counts, and how long it takes to answer.
type countingOptions struct {
	Start       time.Time
	Settle      time.Duration // after which the block is settled
	Delay       time.Duration
	Sigma       float64
	Concurrency int
}

func newReviews(start time.Time, settle time.Duration) *reviews {
	none := func() map[recorder.Point]map[string]int64 {
		return map[recorder.Point]map[string]int64{recorder.Front: {}, recorder.Back: {}}
	}
	return &reviews{start: start, after: settle, tallies: tallies{Arrived: none(), Settled: none()}, ownByText: map[string]run.OwnReview{}}
}

// isOther reports whether a review has nothing to do with the storm.
type isOther func(recorder.Point, authorizationv1.SubjectAccessReviewSpec) bool

// others returns a function that recognizes reviews of others, or nil if nobody else asks.
func (s *controlPlane) others() isOther {
	if s.targets[0].Components() {
		return s.targets[0].Other
	}
	return nil
}

func (r *reviews) counting(c countingOptions, others isOther) *recorder.StormHooks {
	out := &recorder.StormHooks{Arrived: r.arrive, Read: r.read, Answered: r.answered, Other: others}
	if c.Delay > 0 {
		out.Delay = func() time.Duration { return time.Duration(float64(c.Delay) * math.Exp(c.Sigma*rand.NormFloat64())) }
	}
	if c.Concurrency > 0 {
		out.Slots = make(chan struct{}, c.Concurrency)
	}
	return out
}

// arrive counts an access review. It is called by the recorder, for each review and end of the chain.
func (r *reviews) arrive(p recorder.Point, verb string) {
	at := time.Since(r.start)
	second := max(0, int(at/time.Second))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Arrived[p][verb]++
	if r.after > 0 && at >= r.after {
		r.Settled[p][verb]++
	}
	if p != recorder.Front {
		return
	}
	if isCheck(verb) {
		r.checks++
		r.ChecksAtOnce = max(r.ChecksAtOnce, r.checks)
	} else {
		r.requests++
		r.RequestsAtOnce = max(r.RequestsAtOnce, r.requests)
	}
	for len(r.Timeline) <= second {
		r.Timeline = append(r.Timeline, 0)
	}
	r.Timeline[second]++
}

// mostOwn is how many different reviews of requests themselves are kept, which take no more than some hundred
// megabytes.
const mostOwn = 200_000

// read keeps the reviews of requests themselves, because they show as whom the API server sees an agent.
func (r *reviews) read(verb string, body []byte) {
	if isCheck(verb) {
		return
	}
	at := time.Since(r.start)
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, known := r.ownByText[string(body)]
	if !known {
		if len(r.ownByText) >= mostOwn {
			return
		}
		seen.First = at
	}
	seen.Count++
	r.ownByText[string(body)] = seen
}

// ownReviews returns the reviews of requests themselves, or nil if there were more than are kept.
func (r *reviews) ownReviews() map[string]run.OwnReview {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ownByText) >= mostOwn {
		return nil
	}
	return maps.Clone(r.ownByText)
}

// isCheck reports whether a review with the verb is about an impersonation, and not about the request itself.
func isCheck(verb string) bool {
	_, isImpersonation := scenarios.ImpersonationMode(verb)
	return isImpersonation
}

func (r *reviews) answered(p recorder.Point, verb string, took time.Duration) {
	if p != recorder.Front {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if isCheck(verb) {
		r.checks--
	} else {
		r.requests--
	}
	r.Latency.Record(took)
}

func (r *reviews) soFar() (t tallies) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t = tallies{
		Arrived:        map[recorder.Point]map[string]int64{},
		Settled:        map[recorder.Point]map[string]int64{},
		Timeline:       slices.Clone(r.Timeline),
		ChecksAtOnce:   r.ChecksAtOnce,
		RequestsAtOnce: r.RequestsAtOnce,
	}
	for point, verbs := range r.Arrived {
		t.Arrived[point], t.Settled[point] = maps.Clone(verbs), maps.Clone(r.Settled[point])
	}
	t.Latency.Merge(&r.Latency)
	return t
}

func (t tallies) total() int64 {
	return seq.Sum(t.Timeline, func(second int64) int64 { return second })
}

// countReviews returns reviews by verb and decision. A review that also arrived at the back got no opinion from the
// authorizers between. The others were allowed, because RBAC and the Node authorizer deny nothing. If the API server
// remembers answers of either end, decisions cannot be told.
func countReviews(arrived map[recorder.Point]map[string]int64, cached bool) (list []run.ReviewCount) {
	for verb, n := range arrived[recorder.Front] {
		undecided := arrived[recorder.Back][verb]
		decisions := map[string]int64{"Allow": n - undecided, "NoOpinion": undecided}
		if cached {
			decisions = map[string]int64{run.Unseen: n}
		}
		mode, _ := scenarios.ImpersonationMode(verb)
		for decision, count := range decisions {
			if count != 0 {
				list = append(list,
					run.ReviewCount{
						ReviewKind: run.ReviewKind{Mode: cmp.Or(mode, run.RequestMode), Verb: verb, Decision: decision},
						Count:      count,
					},
				)
			}
		}
	}
	slices.SortFunc(list, func(a, b run.ReviewCount) int { return a.Compare(b.ReviewKind) })
	return list
}

func (t tallies) fill(b *run.Block, cached bool) {
	b.Reviews, b.WebhookLatency = countReviews(t.Arrived, cached), t.Latency
	b.ChecksAtOnce, b.RequestsAtOnce = t.ChecksAtOnce, t.RequestsAtOnce
	if b.Settled != nil {
		b.Settled.Reviews = countReviews(t.Settled, cached)
	}
	for i, n := range t.Timeline {
		for len(b.Timeline) <= i {
			b.Timeline = append(b.Timeline, run.Second{})
		}
		b.Timeline[i].Reviews = n
	}
}

func (r *runner) count(s *controlPlane, start time.Time, delayed bool) (read func() tallies) {
	s.ownReviews = func() map[string]run.OwnReview { return nil }
	c := countingOptions{Start: start, Settle: r.Profile.Settle}
	if delayed {
		c.Delay, c.Sigma, c.Concurrency = r.Profile.WebhookDelay, r.Profile.Authorizer.Sigma, r.Profile.Authorizer.Concurrency
	}
	switch {
	case r.serverCounts():
		return func() tallies { return tallies{} }
	case r.recorder != nil:
		r.recorder.ask(question{Count: &c})
		s.ownReviews = func() map[string]run.OwnReview { return r.recorder.ask(question{Own: true}).Own }
		return func() tallies { return r.recorder.ask(question{Read: true}).Counted }
	}
	counted := newReviews(start, c.Settle)
	s.ownReviews = counted.ownReviews
	for _, t := range s.targets {
		t.Count(counted.counting(c, s.others()))
	}
	return counted.soFar
}
