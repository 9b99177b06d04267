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
	// lagInterval is how often the harness measures itself. minLag is the shortest time that is kept in the evidence.
	lagInterval = 50 * time.Millisecond
	minLag      = 20 * time.Millisecond
	// maxHarnessLag is how long the harness may need for itself. If it needs longer, the authorizer's time is not
	// judged.
	maxHarnessLag = 500 * time.Millisecond
	// lagRetention is how long a measurement is kept. No answer takes longer than that.
	lagRetention = time.Minute
	// recentLag is how long a measurement says something about what comes next. lagsToWait is how many times as long as
	// the harness needs for one review it waits for something that takes several steps, and maxPatience limits that.
	recentLag   = 10 * time.Second
	lagsToWait  = 20
	maxPatience = 20 * time.Second
)

// lagMeter measures what the harness itself needs. On a schedule it asks a stub within the harness over TLS, as it asks
// the authorizer. An answer of the stub that comes late, or takes long, is the machine's doing.
type lagMeter struct {
	began  time.Time
	stop   func() error
	cancel context.CancelFunc
	done   chan struct{}

	mu sync.Mutex
	// due is when the current measurement should have begun. It is zero if there is none.
	due     time.Time
	samples []lagSample
}

// lagSample is one measurement, from when it was due until it was over.
type lagSample struct{ due, end time.Time }

// newLagMeter starts a meter that measures until it is closed.
func newLagMeter(ctx context.Context) (*lagMeter, error) {
	stub, stop, err := Serve(reference.Handler(func(spec) scenarios.Decision { return scenarios.NoOpinion }))
	if err != nil {
		return nil, err
	}
	c, err := stub.newClient(false)
	if err != nil {
		_ = stop()
		return nil, err
	}
	body, err := Question{Spec: newReview("harness", "get", "", "pods", "", "")}.body()
	if err != nil {
		_ = stop()
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	m := &lagMeter{began: time.Now(), stop: stop, cancel: end, done: make(chan struct{})}
	c.post(ctx, http.MethodPost, body, nil) // opens the connection, so that this is not measured
	m.setDue(time.Now().Add(lagInterval))   // a meter that does not get to run is late, too
	go m.measureOnSchedule(ctx, func() { c.post(ctx, http.MethodPost, body, nil) }, c.close)
	return m, nil
}

// close ends the measurements.
func (m *lagMeter) close() {
	m.cancel()
	<-m.done
	_ = m.stop()
}

// measureOnSchedule asks the stub on schedule.
func (m *lagMeter) measureOnSchedule(ctx context.Context, ask, done func()) {
	defer close(m.done)
	defer done()
	for due := time.Now().Add(lagInterval); ; due = due.Add(lagInterval) {
		m.setDue(due)
		if !clusters.Pause(ctx, time.Until(due)) {
			return
		}
		ask()
		now := time.Now()
		m.add(lagSample{due, now})
		if due.Before(now.Add(-lagInterval)) {
			due = now
		}
	}
}

// setDue records when the next measurement is due.
func (m *lagMeter) setDue(due time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.due = due
}

// add keeps a measurement if it is long enough to matter.
func (m *lagMeter) add(s lagSample) {
	if s.end.Sub(s.due) < minLag {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples = slices.DeleteFunc(m.samples, func(old lagSample) bool { return s.end.Sub(old.end) > lagRetention })
	m.samples = append(m.samples, s)
}

// measure returns when a question was asked, and the longest time that the harness itself needed meanwhile, or 0 if
// that was short. Both are in milliseconds. A nil meter returns 0 for both.
func (m *lagMeter) measure(from, until time.Time) (at, harness int64) {
	if m == nil {
		return 0, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := time.Duration(0)
	if !m.due.IsZero() {
		longest = until.Sub(m.due) // the current measurement
	}
	for _, s := range m.samples {
		if s.end.After(from) && s.due.Before(until) {
			longest = max(longest, s.end.Sub(s.due))
		}
	}
	if longest = min(longest, until.Sub(from)); longest >= minLag {
		harness = longest.Milliseconds()
	}
	return from.Sub(m.began).Milliseconds(), harness
}

// patience returns how long to wait for something that is over within a time on a machine with nothing else to do. Where
// the harness itself was slow lately, that is longer. A nil meter returns the time as it is.
func (m *lagMeter) patience(d time.Duration) time.Duration {
	now := time.Now()
	_, lag := m.measure(now.Add(-recentLag), now)
	return d + min(lagsToWait*time.Duration(lag)*time.Millisecond, maxPatience)
}
