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
	// lagEvery is how often the harness measures itself. lagNoted is the shortest time that is kept in the evidence.
	lagEvery = 50 * time.Millisecond
	lagNoted = 20 * time.Millisecond
	// maxHarness is how long the harness may need for itself. If it needs longer, the authorizer's time is not judged.
	maxHarness = 500 * time.Millisecond
	// lagKept is how long a measurement is kept. No answer takes longer than that.
	lagKept = time.Minute
)

// lagMeter measures what the harness itself needs. On a schedule it asks a stub within the harness over TLS, as it asks
// the authorizer. An answer of the stub that comes late, or takes long, is the machine's doing.
type lagMeter struct {
	began time.Time
	stop  func() error
	end   context.CancelFunc
	over  chan struct{}

	mu sync.Mutex
	// due is when the current measurement should have begun. It is zero if there is none.
	due   time.Time
	known []lagSample
}

// lagSample is one measurement, from when it was due until it was over.
type lagSample struct{ due, over time.Time }

// newLagMeter starts a meter that measures until it is closed.
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
	c.send(ctx, http.MethodPost, body, nil) // opens the connection, so that this is not measured
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

// add keeps a measurement if it is long enough to matter.
func (m *lagMeter) add(s lagSample) {
	if s.over.Sub(s.due) < lagNoted {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = slices.DeleteFunc(m.known, func(old lagSample) bool { return s.over.Sub(old.over) > lagKept })
	m.known = append(m.known, s)
}

// measure returns when a question was asked, and the longest time that the harness itself needed meanwhile, or 0 if
// that was short. Both are in milliseconds. A nil meter returns 0 for both.
func (m *lagMeter) measure(from, until time.Time) (at, harness int64) {
	if m == nil {
		return 0, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := until.Sub(m.due) // the current measurement
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
