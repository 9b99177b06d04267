package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	write := func(text string) Work {
		if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Work{Log: log}
	}
	for _, c := range []struct {
		name     string
		parse    func(Work, []byte) (Result, error)
		work     Work
		out      string
		requests int64
		p99      time.Duration
		fails    bool
	}{
		{name: "fortio", parse: parseFortio, out: `{"DurationHistogram":{"Count":7,"Percentiles":[{"Percentile":50,"Value":0.1},{"Percentile":99,"Value":0.25}]}}`, requests: 7, p99: 250 * time.Millisecond},
		{name: "h2load", parse: parseH2load, out: "requests: 5 total, 5 started, 5 done, 4 succeeded, 1 failed", requests: 4},
		{name: "h2load with a log", parse: parseH2load, work: write("1 200 30\n2 200 10\n3 200 20\n"), out: "3 succeeded", requests: 3, p99: 30 * time.Microsecond},
		{name: "h2load without a number", parse: parseH2load, out: "nothing", fails: true},
		{name: "fortio that says nothing", parse: parseFortio, out: "", fails: true},
	} {
		r, err := c.parse(c.work, []byte(c.out))
		if c.fails != (err != nil) || r.Requests != c.requests || r.P99 != c.p99 {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
	}
	for _, text := range []string{"", "1 200\n", "1 200 x\n"} {
		if _, err := parseH2load(write(text), []byte("3 succeeded")); err == nil {
			t.Errorf("a log of %q is read", text)
		}
	}
}

func TestMedians(t *testing.T) {
	if got := median([]float64{9, 1, 2, 4}); got != 3 {
		t.Errorf("the median is %v", got)
	}
	s := series{"a": {2, 4, 9}, "b": {1, 2, 3}}
	if got := s.ratio("a", "b"); got != "2.00" {
		t.Errorf("the ratio is %s", got)
	}
	if got := s.ratio("a", "missing"); got != "–" {
		t.Errorf("a ratio by nothing is %s", got)
	}
}

// The stub's stall holds up who asks in it, in order, and nobody later.
func TestStall(t *testing.T) {
	s := &stubServer{}
	ask := func() { s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)) }
	s.stalled = true
	var group sync.WaitGroup
	for range 3 {
		group.Go(ask)
	}
	time.Sleep(50 * time.Millisecond)
	s.mu.Lock()
	if len(s.took) != 0 {
		t.Errorf("%d were answered in a stall", len(s.took))
	}
	s.mu.Unlock()
	s.release()
	group.Wait()
	ask()
	if len(s.took) != 4 || s.took[3] > s.took[0] {
		t.Errorf("took %v", s.took)
	}
}
