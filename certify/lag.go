package certify

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	// lagEvery is how often the harness asks itself, lagNoted the least that is kept in the evidence.
	lagEvery = 50 * time.Millisecond
	lagNoted = 20 * time.Millisecond
	// maxHarness is how long the harness may need itself: beyond it nothing is said about the authorizer's time.
	maxHarness = 500 * time.Millisecond
	// lagKept is how long a measurement is kept, which is longer than any answer takes.
	lagKept = time.Minute
)

// lagMeter measures what the harness itself needs. It asks a stub within the harness, over TLS as it asks the authorizer,
// on a schedule: what comes late, or takes long, is the machine's doing.
type lagMeter struct {
	began time.Time
	stop  func() error
	end   context.CancelFunc
	over  chan struct{}

	mu sync.Mutex
	// due is when the measurement under way was to begin, zero if there is none.
	due   time.Time
	known []lagSample
}

// lagSample is one measurement: from when it was due until it was over.
type lagSample struct{ due, over time.Time }

// newLagMeter starts a meter, which measures until it is closed.
func newLagMeter(ctx context.Context) (*lagMeter, error) {
	stub, stop, err := Serve(reference.Handler(func(spec) scenarios.Decision { return scenarios.NoOpinion }))
	if err != nil {
		return nil, err
	}
	c, err := stub.client(false)
	if err != nil {
		_ = stop()
		return nil, err
	}
	body, err := Question{Spec: on("harness", "get", "", "pods", "", "")}.body()
	if err != nil {
		_ = stop()
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	m := &lagMeter{began: time.Now(), stop: stop, end: end, over: make(chan struct{})}
	c.send(ctx, http.MethodPost, body, nil) // so that connecting is not measured
	go m.run(ctx, func() { c.send(ctx, http.MethodPost, body, nil) }, c.close)
	return m, nil
}

// close ends the measurements.
func (m *lagMeter) close() {
	m.end()
	<-m.over
	_ = m.stop()
}

// run asks the stub on schedule.
func (m *lagMeter) run(ctx context.Context, ask, done func()) {
	defer close(m.over)
	defer done()
	for due := time.Now().Add(lagEvery); ; due = due.Add(lagEvery) {
		m.setDue(due)
		if !clusters.Pause(ctx, time.Until(due)) {
			return
		}
		ask()
		now := time.Now()
		m.add(lagSample{due, now})
		if due.Before(now.Add(-lagEvery)) {
			due = now
		}
	}
}

func (m *lagMeter) setDue(due time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.due = due
}

// add keeps a measurement that is worth it.
func (m *lagMeter) add(s lagSample) {
	if s.over.Sub(s.due) < lagNoted {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = slices.DeleteFunc(m.known, func(old lagSample) bool { return s.over.Sub(old.over) > lagKept })
	m.known = append(m.known, s)
}

// measure returns when a question was asked, and the longest that the harness itself needed meanwhile, 0 for little. Both are
// in milliseconds. A nil meter knows neither.
func (m *lagMeter) measure(from, until time.Time) (at, harness int64) {
	if m == nil {
		return 0, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := until.Sub(m.due) // of the one under way
	for _, s := range m.known {
		if s.over.After(from) && s.due.Before(until) {
			longest = max(longest, s.over.Sub(s.due))
		}
	}
	if longest = min(longest, until.Sub(from)); longest >= lagNoted {
		harness = longest.Milliseconds()
	}
	return from.Sub(m.began).Milliseconds(), harness
}
