package agent_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/shard"
)

// result is what a run reports about itself. CPU is measured by whoever started the run.
type result struct {
	Requests int64
	// InTime are the requests that were sent before the schedule's end.
	InTime int64
	P99    time.Duration
	LagP1  time.Duration
	LagP50 time.Duration
	LagP99 time.Duration
	// Before, After and Peak are the resident memory without connections, with idle ones, and at most.
	Before, After, Peak int64
	CPU                 time.Duration `json:"-"`
	// ServerP99 is what the stub saw.
	ServerP99 time.Duration `json:"-"`
}

func readWork() (w work, err error) { return w, json.NewDecoder(os.Stdin).Decode(&w) }

func writeResult(r result) error { return json.NewEncoder(os.Stdout).Encode(r) }

// asker makes the requests. They are those of a storm in which agents on nodes list the pods of their node and
// impersonate it, with tokens as long as real ones.
func (w work) asker() (func(agent, kind, turn int) agent.Request, error) {
	p, err := profile.Load("steady", nil)
	if err != nil {
		return nil, err
	}
	p.Nodes = w.Connections
	variant, err := profile.VariantNamed("associated-node")
	token := strings.Repeat("eyJhbGciOi", 120)
	return population.Asker(p, variant, func(identity int) []string { return []string{token + strconv.Itoa(identity)} }), err
}

// resident is the memory that a process keeps when it does nothing.
func resident() int64 {
	debug.FreeOSMemory()
	_, rss := shard.Used(os.Getpid())
	return rss
}

// peak is the most resident memory that this process has had.
func peak() int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return used.Maxrss << 10
}

// agents reads the work, runs a block of authzconf's own agents as a shard does, and writes the result. With idle it
// measures what the agents keep after they have asked.
func agents(idle bool) error {
	w, err := readWork()
	if err != nil {
		return err
	}
	var r result
	if idle {
		r.Before = resident()
	}
	pool, err := agent.NewPool(&rest.Config{Host: w.URL, TLSClientConfig: rest.TLSClientConfig{CAData: w.CA}}, w.Connections, 1, 0, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pool.Open(context.Background()); err != nil {
		return err
	}
	asker, err := w.asker()
	if err != nil {
		return err
	}
	s := &agent.Storm{
		Pool:      pool,
		Shards:    1,
		Kinds:     []string{"list"},
		Expect:    http.StatusOK,
		Tolerance: 10 * time.Millisecond,
		Timeout:   10 * time.Second,
		Plan: pacer.Plan{
			Arrivals: pacer.Constant,
			Agents:   w.Connections,
			Rate:     float64(w.Rate),
			Length:   time.Duration(w.Seconds) * time.Second,
		},
		Request: asker,
		Start:   time.Now().Add(100 * time.Millisecond),
	}
	if w.Together {
		s.Plan.Arrivals, s.Plan.Every = pacer.Burst, time.Duration(float64(w.Connections)/float64(w.Rate)*float64(time.Second))
	}
	schedule, err := s.Prepare()
	if err != nil {
		return err
	}
	b := s.Run(context.Background(), schedule)
	r.Requests, r.P99 = b.Answers["200"], b.Latency.Quantile(0.99)
	r.LagP1, r.LagP50, r.LagP99 = b.Lag.Quantile(0.01), b.Lag.Quantile(0.5), b.Lag.Quantile(0.99)
	for _, second := range b.Timeline[:min(w.Seconds, len(b.Timeline))] {
		r.InTime += second.Sent
	}
	if idle {
		r.After, r.Peak = resident(), peak()
	}
	return writeResult(r)
}

// bareConnections measures only connections of net/http, each of which has asked once.
func bareConnections() error {
	w, err := readWork()
	if err != nil {
		return err
	}
	r := result{Before: resident()}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP2(true)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, w.URL, nil)
	if err != nil {
		return err
	}
	req.Header = w.Header
	for range w.Connections {
		c, err := transport.NewClientConn(req.Context(), "https", req.URL.Host)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		resp, err := c.RoundTrip(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		r.Requests++
	}
	r.After, r.Peak = resident(), peak()
	return writeResult(r)
}

// ask asks the stub for something on a connection of its own.
func ask(w work, path string) ([]byte, error) {
	client, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host:            w.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: w.CA},
		ContentConfig:   rest.ContentConfig{NegotiatedSerializer: scheme.Codecs, GroupVersion: &schema.GroupVersion{}},
	})
	if err != nil {
		return nil, err
	}
	return client.Get().AbsPath(path).DoRaw(context.Background())
}
