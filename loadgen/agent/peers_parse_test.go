package agent_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func parseFortio(_ work, out []byte) (r result, err error) {
	var report struct {
		RetCodes          map[string]int64
		DurationHistogram struct {
			Percentiles []struct{ Percentile, Value float64 }
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return r, err
	}
	r.Requests = report.RetCodes["200"]
	for _, p := range report.DurationHistogram.Percentiles {
		if p.Percentile == 99 {
			r.P99 = time.Duration(p.Value * float64(time.Second))
		}
	}
	return r, nil
}

func parseK6(_ work, out []byte) (r result, err error) {
	var summary struct {
		OK  int64
		P99 float64
	}
	err = json.Unmarshal(out, &summary)
	return result{Requests: summary.OK, P99: time.Duration(summary.P99 * float64(time.Millisecond))}, err
}

var h2loadDone = regexp.MustCompile(`(\d+) succeeded`)

// parseH2load reads how many requests there were. h2load prints no percentiles, so the p99 is computed from its log,
// which has a line for each request with its duration in µs.
func parseH2load(w work, out []byte) (r result, err error) {
	m := h2loadDone.FindSubmatch(out)
	if m == nil {
		return r, errors.New("its output has no number of requests")
	}
	if r.Requests, err = strconv.ParseInt(string(m[1]), 10, 64); err != nil {
		return r, fmt.Errorf("its output: %w", err)
	}
	if w.Log == "" {
		return r, nil
	}
	data, err := os.ReadFile(w.Log)
	if err != nil {
		return r, err
	}
	var took []int64
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return r, fmt.Errorf("its log: %q, expected a start, a status and a duration", line)
		}
		us, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return r, fmt.Errorf("its log: %w", err)
		}
		took = append(took, us)
	}
	if len(took) == 0 {
		return r, errors.New("its log is empty")
	}
	slices.Sort(took)
	r.P99 = time.Duration(took[(99*len(took)+99)/100-1]) * time.Microsecond
	return r, nil
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.SortedFunc(slices.Values(list), cmp.Compare[float64])
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

func TestParse(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	write := func(text string) work {
		if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return work{Log: log}
	}
	for _, c := range []struct {
		name     string
		parse    func(work, []byte) (result, error)
		work     work
		out      string
		requests int64
		p99      time.Duration
		fails    bool
	}{
		{name: "fortio", parse: parseFortio, out: `{"RetCodes":{"200":7,"401":9},"DurationHistogram":{"Percentiles":[{"Percentile":50,"Value":0.1},{"Percentile":99,"Value":0.25}]}}`, requests: 7, p99: 250 * time.Millisecond},
		{name: "h2load", parse: parseH2load, out: "requests: 5 total, 5 started, 5 done, 4 succeeded, 1 failed", requests: 4},
		{name: "h2load with a log", parse: parseH2load, work: write("1 200 30\n2 200 10\n3 200 20\n"), out: "3 succeeded", requests: 3, p99: 30 * time.Microsecond},
		{name: "h2load without a number", parse: parseH2load, out: "nothing", fails: true},
		{name: "k6", parse: parseK6, out: `{"ok":12,"p99":2.5}`, requests: 12, p99: 2500 * time.Microsecond},
		{name: "k6 that says nothing", parse: parseK6, out: "", fails: true},
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

func TestRatios(t *testing.T) {
	if got := median([]float64{9, 1, 2, 4}); got != 3 {
		t.Errorf("the median is %v", got)
	}
	s := series{"a": {2, 4, 8}, "b": {1, 2, 4}, "c": {2, 1, 4}, "once": {3}}
	for _, c := range []struct{ a, b, want string }{
		{"a", "b", "2.00 [2.00, 2.00]"},
		{"c", "b", "1.00 [0.18, 5.59]"}, // e^±(4.303 × ln 2 ÷ √3)
		{"once", "b", "3.00"},
		{"a", "missing", "–"},
		{"a", "a", "1"},
	} {
		if got := s.ratio(c.a, c.b); got != c.want {
			t.Errorf("%s by %s is %s, expected %s", c.a, c.b, got, c.want)
		}
	}
	list := []generator{{title: "a"}, {title: "b"}, {title: "c"}}
	if got := rotated(list, 4); got[0].title != "b" || got[2].title != "a" {
		t.Errorf("rotated: %v", got)
	}
}

// TestStubStall checks that the stall delays those who ask during it, in order, and nobody later.
func TestStubStall(t *testing.T) {
	s := &stubServer{}
	ask := func() {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = http.Header{"Authorization": {"Bearer x"}, "Impersonate-User": {"x"}}
		s.ServeHTTP(httptest.NewRecorder(), r)
	}
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
