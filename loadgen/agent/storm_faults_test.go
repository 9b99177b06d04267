package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/run"
)

func TestDeadServer(t *testing.T) {
	var answered atomic.Int32
	var server *httptest.Server
	c := stubWith(t, func(s *httptest.Server) { server = s }, func(http.ResponseWriter, *http.Request) {
		if answered.Add(1) == 50 {
			go func() {
				_ = server.Listener.Close()
				server.CloseClientConnections()
			}()
		}
	})
	b := play(t.Context(), t, storm(t, c, nil))
	balanced(t, b)
	if b.Planned != 200 || b.Answers["refused"] < 20 || b.Answers["200"] < 20 || b.Answers["other"] != 0 {
		t.Errorf("planned %d, answers %v", b.Planned, b.Answers)
	}
}

func TestTimeout(t *testing.T) {
	_, c := stub(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := storm(t, c, func(s *Storm) { s.Timeout, s.Plan.Rate = 300*time.Millisecond, 50 })
	b := play(t.Context(), t, s)
	balanced(t, b)
	if b.Answers["timeout"] != 50 || b.Latency.Min() < 290*time.Millisecond {
		t.Errorf("answers %v, %s to %s", b.Answers, b.Latency.Min(), b.Latency.Max())
	}
}

// TestLogOfAttempts checks that every attempt to send a request is in the log, with how far it came: what was given up,
// and what was refused before or after it was authorized.
func TestLogOfAttempts(t *testing.T) {
	var asked sync.Map
	_, c := stub(t, func(w http.ResponseWriter, r *http.Request) {
		agent := r.Header.Get("Agent")
		if _, again := asked.LoadOrStore(agent, true); again {
			return
		}
		header := w.Header()
		header.Set("Retry-After", "1")
		header.Set("Content-Type", map[string]string{"1": "text/plain; charset=utf-8", "2": "application/json"}[agent])
		switch agent {
		case "3":
			<-r.Context().Done()
			return
		case "1", "2":
			header.Set("X-Kubernetes-PF-FlowSchema-UID", "x")
		}
		w.WriteHeader(http.StatusTooManyRequests)
	})
	s := storm(t, c, func(s *Storm) {
		s.Timeout, s.Plan.Arrivals, s.Plan.Agents = 500*time.Millisecond, pacer.Burst, 4
	})
	b := play(t.Context(), t, s)
	balanced(t, b)
	answers := map[string]int64{}
	for _, a := range b.Log {
		answers[a.Answer]++
	}
	want := map[string]int64{"429 early": 1, run.Throttled: 1, run.Unready: 1, "timeout": 1, "": 3}
	if int64(len(b.Log)) != b.Sent+b.Retried || !maps.Equal(answers, want) {
		t.Errorf("%d sent, %d of them again, in the log: %v, want %v", b.Sent, b.Retried, answers, want)
	}
}

func TestInterrupt(t *testing.T) {
	_, c := stub(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := storm(t, c, func(s *Storm) { s.Plan.Length = time.Minute })
	begin := time.Now()
	b := play(ctx, t, s, cancel)
	balanced(t, b)
	if took := time.Since(begin); took > s.Plan.Length/2 {
		t.Errorf("ended %s after it was told to", took)
	}
	if b.Answers["canceled"] != b.Sent || b.Sent == 0 {
		t.Errorf("sent %d, answers %v", b.Sent, b.Answers)
	}
}

// TestShards checks that two shards together do the same as one.
func TestShards(t *testing.T) {
	var asked sync.Map
	_, c := stub(t, func(_ http.ResponseWriter, r *http.Request) { asked.Store(r.Header.Get("Agent")+r.URL.RawQuery, true) })
	var whole run.Block
	for i := range 2 {
		s := storm(t, c, func(s *Storm) { s.Shard, s.Shards = i, 2 })
		if s.Pool.Len() != 10 {
			t.Errorf("%d connections in a shard", s.Pool.Len())
		}
		whole.Merge(play(t.Context(), t, s))
	}
	balanced(t, &whole)
	if whole.Planned != 200 || count(&asked) != 200 {
		t.Errorf("planned %d, %d different requests", whole.Planned, count(&asked))
	}
}

// TestAchievedRate checks that everything is sent, and that what was not sent in time counts as late. make
// bench-loadgen measures how late that is.
func TestAchievedRate(t *testing.T) {
	_, c := stub(t, func(http.ResponseWriter, *http.Request) {})
	s := storm(t, c, func(s *Storm) { s.Plan.Rate = 500 })
	b := play(t.Context(), t, s)
	balanced(t, b)
	t.Logf("lag p50 %s, p99 %s", b.Lag.Quantile(0.5), b.Lag.Quantile(0.99))
	if late := b.Lag.Quantile(1) > s.Tolerance; b.Sent != 500 || b.Dropped != 0 || late != (b.Late > 0) {
		t.Errorf("%d sent, 500 asked for, %d dropped, %d late, the most %s", b.Sent, b.Dropped, b.Late, b.Lag.Quantile(1))
	}
}

func TestCheckFiles(t *testing.T) {
	if err := CheckFiles(1); err != nil {
		t.Error(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Skip(err)
	}
	err := CheckFiles(int(limit.Cur))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(limit.Cur)) || !strings.Contains(err.Error(), fmt.Sprint(limit.Cur+Files)) {
		t.Errorf("does not name the limit and the need: %v", err)
	}
}

func TestClassify(t *testing.T) {
	for want, err := range map[string]error{
		"timeout":  context.DeadlineExceeded,
		"canceled": context.Canceled,
		"eof":      io.ErrUnexpectedEOF,
		"refused":  fmt.Errorf("dial: %w", syscall.ECONNREFUSED),
		"reset":    fmt.Errorf("read: %w", syscall.ECONNRESET),
		"other":    errors.New("odd"),
	} {
		if got := classify(err); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
	_, c := stub(t, func(http.ResponseWriter, *http.Request) {})
	_, other := stub(t, func(http.ResponseWriter, *http.Request) {})
	c.CAData = other.CAData
	c.ServerName = "elsewhere.example"
	p, err := NewPool(c, 1, 1, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Open(t.Context()); err == nil || classify(err) != "tls" {
		t.Errorf("a certificate that is not trusted: %v", err)
	}
}
