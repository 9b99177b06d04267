package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/process"
	"github.com/authzconf/authzconf/reports/load/run"
)

// Result is what a run reports of itself; CPU is measured by who started it.
type Result struct {
	Requests int64
	// InTime are the requests that were sent before the schedule's end.
	InTime int64
	P99    time.Duration
	LagP1  time.Duration
	LagP50 time.Duration
	LagP99 time.Duration
	// Before, After and Peak are the resident memory without connections, with idle
	// ones, and at most.
	Before, After, Peak int64
	CPU                 time.Duration `json:"-"`
	// ServerP99 is what the stub saw.
	ServerP99 time.Duration `json:"-"`
}

func readWork() (w Work, err error) { return w, json.NewDecoder(os.Stdin).Decode(&w) }

func writeResult(r Result) error { return json.NewEncoder(os.Stdout).Encode(r) }

// play runs a block of authzconf's own agents, as a shard does.
func play(w Work, pool *agent.Pool) (*run.Block, error) {
	header := http.Header{}
	s := &agent.Storm{
		Pool: pool, Shards: 1, Kinds: []string{"get"}, Expect: http.StatusOK, Tolerance: 10 * time.Millisecond, Timeout: 10 * time.Second,
		Plan:    pacer.Plan{Arrivals: pacer.Constant, Agents: w.Connections, Rate: float64(w.Rate), Length: time.Duration(w.Seconds) * time.Second},
		Request: func(int, int, int) agent.Request { return agent.Request{Path: "/", Header: header} },
		Start:   time.Now().Add(100 * time.Millisecond),
	}
	if w.Together {
		s.Plan.Arrivals, s.Plan.Every = pacer.Burst, time.Duration(float64(w.Connections)/float64(w.Rate)*float64(time.Second))
	}
	schedule, err := s.Prepare()
	if err != nil {
		return nil, err
	}
	return s.Run(context.Background(), schedule), nil
}

func connect(w Work) (*agent.Pool, error) {
	pool, err := agent.NewPool(&rest.Config{Host: w.URL, TLSClientConfig: rest.TLSClientConfig{CAData: w.CA}}, w.Connections, 1, 0, 1)
	if err != nil {
		return nil, err
	}
	return pool, pool.Open(context.Background())
}

// agents reads the work and writes the result of one block.
func agents() error {
	w, err := readWork()
	if err != nil {
		return err
	}
	pool, err := connect(w)
	if err != nil {
		return err
	}
	defer pool.Close()
	b, err := play(w, pool)
	if err != nil {
		return err
	}
	r := Result{
		Requests: b.Answers["200"], P99: b.Latency.Quantile(0.99),
		LagP1: b.Lag.Quantile(0.01), LagP50: b.Lag.Quantile(0.5), LagP99: b.Lag.Quantile(0.99),
	}
	for i, s := range b.Timeline {
		if i < w.Seconds {
			r.InTime += s.Sent
		}
	}
	return writeResult(r)
}

// resident is the memory that a process keeps when it does nothing.
func resident() int64 {
	debug.FreeOSMemory()
	return process.RSS(os.Getpid())
}

// idleAgents has every agent ask once, and then measures what they keep.
func idleAgents() error {
	w, err := readWork()
	if err != nil {
		return err
	}
	before := resident()
	pool, err := connect(w)
	if err != nil {
		return err
	}
	defer pool.Close()
	b, err := play(w, pool)
	if err != nil {
		return err
	}
	return writeResult(Result{Requests: b.Answers["200"], Before: before, After: resident(), Peak: process.PeakRSS(os.Getpid())})
}

// bareConnections measures connections of golang.org/x/net/http2 over crypto/tls
// and nothing else, each of which has asked once.
//
//nolint:staticcheck // deprecated in favour of net/http's, which is what is compared with it
func bareConnections() error {
	w, err := readWork()
	if err != nil {
		return err
	}
	host, err := url.Parse(w.URL)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.CA)
	config := &tls.Config{RootCAs: roots, NextProtos: []string{http2.NextProtoTLS}, MinVersion: tls.VersionTLS12}
	before := resident()
	transport := &http2.Transport{}
	conns := make([]*http2.ClientConn, w.Connections)
	for i := range conns {
		raw, err := (&tls.Dialer{Config: config}).DialContext(context.Background(), "tcp", host.Host)
		if err != nil {
			return err
		}
		if conns[i], err = transport.NewClientConn(raw); err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, w.URL, nil)
		if err != nil {
			return err
		}
		resp, err := conns[i].RoundTrip(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	r := Result{Requests: int64(len(conns)), Before: before, After: resident(), Peak: process.PeakRSS(os.Getpid())}
	for _, c := range conns {
		_ = c.Close()
	}
	return writeResult(r)
}

// ask asks the stub for something, on a connection of its own.
func ask(w Work, path string) ([]byte, error) {
	client, err := rest.HTTPClientFor(&rest.Config{Host: w.URL, TLSClientConfig: rest.TLSClientConfig{CAData: w.CA}})
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, w.URL+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, resp.Status)
	}
	var text bytes.Buffer
	_, err = text.ReadFrom(resp.Body)
	return text.Bytes(), err
}
