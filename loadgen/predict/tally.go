package predict

import "time"

// tally counts requests, checks and reviews, from a time on.
type tally struct {
	begin   time.Duration
	seconds []Second
	groups  []groupTally
}

// groupTally is the part of a workload.
type groupTally struct {
	requests int64
	checks   [kindCount]int64
	reviews  [kindCount]int64
}

// Second has the figures of one second.
type Second struct {
	Requests int64 `json:"requests"`
	Checks   int64 `json:"checks"`
	Reviews  int64 `json:"reviews"`
}

func newTally(begin time.Duration, groups int) *tally {
	return &tally{begin: begin, groups: make([]groupTally, groups)}
}

// secondOf returns the second of a time.
func (t *tally) secondOf(arrival time.Duration) *Second {
	second := int((arrival - t.begin) / time.Second)
	for len(t.seconds) <= second {
		t.seconds = append(t.seconds, Second{})
	}
	return &t.seconds[second]
}

func (t *tally) addRequest(group int, arrival time.Duration) {
	t.secondOf(arrival).Requests++
	t.groups[group].requests++
}

func (t *tally) addCheck(group int, kind CheckKind, arrival time.Duration) {
	t.secondOf(arrival).Checks++
	t.groups[group].checks[kind]++
}

func (t *tally) addReview(group int, kind CheckKind, arrival time.Duration) {
	t.secondOf(arrival).Reviews++
	t.groups[group].reviews[kind]++
}

// sumBetween returns the sum from one second of the tally up to another, which is excluded.
func (t *tally) sumBetween(from, to int) (sum Second) {
	for _, s := range t.seconds[min(from, len(t.seconds)):min(to, len(t.seconds))] {
		sum.Requests += s.Requests
		sum.Checks += s.Checks
		sum.Reviews += s.Reviews
	}
	return sum
}

// peakBetween returns the highest of each figure in one second, from one second of the tally up to another, which is
// excluded.
func (t *tally) peakBetween(from, to int) (peak Second) {
	for _, s := range t.seconds[min(from, len(t.seconds)):min(to, len(t.seconds))] {
		peak.Requests = max(peak.Requests, s.Requests)
		peak.Checks = max(peak.Checks, s.Checks)
		peak.Reviews = max(peak.Reviews, s.Reviews)
	}
	return peak
}
