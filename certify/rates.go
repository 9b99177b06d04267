package certify

import (
	"fmt"
	"slices"
	"time"

	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

const (
	// maxSendLag is how late a review may be sent, and how long the harness may need for itself. maxLate is how many of
	// a thousand may be later; if there are more, the harness was measured and not the authorizer.
	maxSendLag = 50 * time.Millisecond
	maxLate    = 10
	// steadyFrom is how long a rate has to be kept up before changes are judged: answers that become slower, and a
	// memory that grows. Answers have become slow if they take more than twice as long and drifted milliseconds more. A
	// memory has grown if it is more than twice as large in the end as after the first tenth, and larger by more than
	// grown bytes.
	steadyFrom     = time.Minute
	slowdownMillis = 10
	grownBytes     = 32 << 20
	// memorySamples is how often the webhook's memory is read.
	memorySamples = 10
)

// Rate is what was measured at one rate. Times are in milliseconds.
type Rate struct {
	// TargetRate and Achieved are in reviews per second. Seconds is how long the rate was kept up.
	TargetRate int
	Achieved   float64
	Seconds    float64
	// P50, P99 and Max are times from when a review should have been sent to its answer. Limit is the limit of P99.
	P50, P99, Max, Limit float64
	// Wrong is how many answers are wrong, Late how many reviews were sent more than 50 ms late, and Dropped how many
	// were not sent.
	Wrong, Late, Dropped int
	// Inconclusive is set if the harness itself could not keep the rate.
	Inconclusive bool
	// P99s are the 99th percentiles of each tenth of the time. Memory is the memory of the webhook in bytes. Both are
	// set only for a rate that is kept up long enough.
	P99s   []float64
	Memory []int64
}

func (r Rate) check() string { return rateCheck(r.TargetRate) }

// length returns how long the rate was kept up.
func (r Rate) length() time.Duration {
	return time.Duration(r.Seconds * float64(time.Second)).Round(time.Second)
}

// measurement is a rate that is still being computed.
type measurement struct {
	Rate
	durations []time.Duration
	histogram histogram.Histogram
	micros    int64
	// delayedCount is how many answers came while the harness itself needed long.
	delayedCount int64
}

// rates returns what was measured at each rate, in the order in which they were kept up.
func (b *Plan) rates(answers []Answer) (out []Rate) {
	byCheck := map[string]*measurement{}
	var all []*measurement
	for _, a := range answers {
		s := a.Stage
		isRate := s != nil && isStage(a, rateCheck(s.Rate))
		if isRate && byCheck[a.Check] == nil {
			m := newMeasurement(s)
			byCheck[a.Check] = m
			all = append(all, m)
		}
	}
	for _, a := range answers {
		if m := byCheck[a.Check]; m != nil && a.Stage == nil {
			m.add(b, a)
		}
	}
	for _, m := range all {
		out = append(out, m.finish())
	}
	return out
}

func newMeasurement(s *Stage) *measurement {
	return &measurement{micros: s.Micros, Rate: Rate{
		TargetRate: s.Rate,
		Seconds:    float64(s.Planned) / float64(max(s.Rate, 1)),
		Limit:      float64(s.LimitUs) / 1000,
		Dropped:    s.Dropped,
		Memory:     s.Memory,
	}}
}

// add counts the answer to a review of the rate.
func (m *measurement) add(b *Plan, a Answer) {
	took := time.Duration(a.Micros) * time.Microsecond
	m.durations = append(m.durations, took)
	m.histogram.Record(took)
	if a.LateUs > maxSendLag.Microseconds() {
		m.Late++
	}
	if a.HarnessMs > maxSendLag.Milliseconds() {
		m.delayedCount++
	}
	if v, ok := b.findQuestion(a.Vector); ok && len(judge(v, a)) > 0 {
		m.Wrong++
	}
}

// finish returns the figures of the rate.
func (m *measurement) finish() Rate {
	r, h := m.Rate, &m.histogram
	r.P50, r.P99, r.Max = milliseconds(h.Quantile(0.5)), milliseconds(h.Quantile(0.99)), milliseconds(h.Max())
	if m.micros > 0 {
		r.Achieved = float64(int(float64(h.Count())/float64(m.micros)*1e7)) / 10
	}
	if r.isSteady() {
		r.P99s = p99OfTenths(m.durations)
	}
	isLate := func(n int64) bool { return n*1000 > h.Count()*maxLate }
	isDelayed := r.P99 >= r.Limit && isLate(m.delayedCount)
	r.Inconclusive = isLate(int64(r.Late)) || isDelayed
	return r
}

// isSteady reports whether the rate was kept up long enough to judge changes.
func (r Rate) isSteady() bool { return r.Seconds >= steadyFrom.Seconds() }

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond).Microseconds()) / 1000
}

// p99OfTenths returns the 99th percentile of each tenth of the times, in order and in milliseconds.
func p99OfTenths(all []time.Duration) (out []float64) {
	for part := range slices.Chunk(all, max((len(all)+9)/10, 1)) {
		var h histogram.Histogram
		for _, d := range part {
			h.Record(d)
		}
		out = append(out, milliseconds(h.Quantile(0.99)))
	}
	return out
}

// problem is something that is wrong at a rate, apart from single answers.
type problem struct{ reason, text string }

// These are the reasons that are about changes.
const (
	slowsDown   = "slows-down"
	memoryGrows = "memory-grows"
)

// problems returns what is wrong at the rate, apart from single answers. If the harness itself was late, nothing is
// said about time.
func (r Rate) problems() (out []problem) {
	if r.Inconclusive {
		return nil
	}
	add := func(reason, format string, args ...any) {
		out = append(out, problem{reason, r.check() + ": " + fmt.Sprintf(format, args...)})
	}
	if r.Dropped > 0 {
		add("does-not-keep-up", "%d reviews were not sent, as %d had no answer", r.Dropped, maxOutstanding)
	}
	if r.P99 >= r.Limit {
		add("slow-under-load", "99 %% of the answers came within %.2f ms, expected less than %.2f ms", r.P99, r.Limit)
	}
	if n := len(r.P99s); n > 1 && r.P99s[n-1] > 2*r.P99s[0]+slowdownMillis {
		add(slowsDown, "99 %% of the answers came within %.2f ms in the first tenth, and %.2f ms in the last", r.P99s[0], r.P99s[n-1])
	}
	if r.hasMemoryGrown() {
		add(memoryGrows, "the webhook had %d MiB after a tenth, and %d MiB at the end", r.Memory[1]>>20, r.Memory[len(r.Memory)-1]>>20)
	}
	return out
}

// hasMemoryGrown reports whether the webhook's memory has grown by more than it does while a program warms up.
func (r Rate) hasMemoryGrown() bool {
	if len(r.Memory) < 3 || r.Memory[1] <= 0 {
		return false
	}
	first, last := r.Memory[1], r.Memory[len(r.Memory)-1]
	return last > 2*first && last-first > grownBytes
}

// isExcused reports whether an answer did not come in time because the harness itself was late. A wrong answer is never
// excused.
func isExcused(a Answer, rates []Rate) bool {
	if a.Fault == faultNoAnswerInTime && a.isTimeUnclear() {
		return true
	}
	return a.Fault != "" && slices.ContainsFunc(rates, func(r Rate) bool { return r.Inconclusive && a.Check == r.check() })
}

// loadTally counts how many of the planned questions of each part of level load were asked.
func loadTally(answers []Answer) *tally {
	t := newTally()
	for _, a := range answers {
		if a.Stage != nil {
			n := t.countOf(partOfLoad(a.Check))
			n.planned += a.Stage.Planned
			n.answered += a.Stage.Right
		}
	}
	for _, a := range answers {
		if isLoadCheck(a.Check) && a.Stage == nil {
			t.countOf(partOfLoad(a.Check)).answered++
		}
	}
	return t
}
