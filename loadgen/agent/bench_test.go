package agent

import (
	"net/http"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// BenchmarkRequest is a request from its turn to its count, the stub's part of it
// included.
func BenchmarkRequest(b *testing.B) {
	_, c := stub(b, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	header := http.Header{"Authorization": {"Bearer token"}}
	s := storm(b, c, func(s *Storm) {
		s.Plan.Agents, s.Start = 1, time.Now()
		s.Request = func(int, int, int) Request { return Request{Path: "/", Header: header} }
	})
	if err := s.Pool.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err := s.Prepare(); err != nil {
		b.Fatal(err)
	}
	defer s.alarm.close()
	b.ReportAllocs()
	for b.Loop() {
		s.retrying(b.Context(), task{}, nil)
	}
	if n := s.tally.block.Answers["200"]; n != s.tally.block.Sent {
		b.Errorf("%d of %d were answered", n, s.tally.block.Sent)
	}
}

// BenchmarkTally counts a request's beginning and end, as many goroutines do.
func BenchmarkTally(b *testing.B) {
	t := &tally{start: time.Now(), kinds: make([]histogram.Histogram, 1)}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			now := time.Now()
			t.countSent(now, now)
			t.finish(0, http.StatusOK, now, now, now, http.StatusOK, nil)
		}
	})
}

// BenchmarkSchedule makes the schedule of 10,000 agents.
func BenchmarkSchedule(b *testing.B) {
	p := pacer.Plan{Arrivals: pacer.Poisson, Agents: 10_000, Rate: 1000, Length: 30 * time.Second, Mix: []int{1}}
	b.ReportAllocs()
	for b.Loop() {
		p.Stripe(0, 1)
	}
}
