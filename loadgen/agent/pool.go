// Package agent sends the requests of a schedule as many agents at the same time, each with its own token, its own
// connection and its own intended times. It decodes nothing. A latency begins when a request should have been sent, so
// that a server that stalls cannot hide the requests that waited.
package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// Pool has the connections of the agents to one server. Each uses HTTP/2, with the trust of a client-go configuration.
// Several agents may share one.
type Pool struct {
	transport *http.Transport
	host      *url.URL
	perConn   int
	shards    int
	conns     []conn
	opened    atomic.Int64
}

type conn struct {
	mu sync.Mutex
	cc *http.ClientConn
}

// Files is how many file descriptors this process needs in addition to those of its agents' connections.
const Files = 200

// CheckFiles returns an error if this process may not open that many connections.
func CheckFiles(connections int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil //nolint:nilerr // if the limit cannot be read, opening too many connections fails
	}
	if demand := uint64(connections + Files); demand > limit.Cur {
		return fmt.Errorf(
			"%d connections need %d open files, and this process may have %d: raise the limit (ulimit -n %d), or let agents share connections (agentsPerConnection)",
			connections,
			demand,
			limit.Cur,
			demand,
		)
	}
	return nil
}

// NewPool makes the pool of one shard's agents. shard and shards are as in pacer.Plan.Stripe. Nothing is opened yet.
func NewPool(c *rest.Config, agents, perConn, shard, shards int) (*Pool, error) {
	config, err := rest.TLSConfigFor(c)
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, errors.New("the server has no TLS")
	}
	host, err := url.Parse(c.Host)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	count := (agents - shard + shards - 1) / shards
	return &Pool{
		transport: &http.Transport{
			TLSClientConfig: config, Protocols: &protocols, DisableCompression: true,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return quiet(dialer.DialContext(ctx, network, address))
			},
			TLSHandshakeTimeout: 30 * time.Second,
		},
		host: host, perConn: perConn, shards: shards,
		conns: make([]conn, (count+perConn-1)/perConn),
	}, nil
}

// Len is the number of connections.
func (p *Pool) Len() int { return len(p.conns) }

// Open opens all connections, some at a time. Those that are open stay.
func (p *Pool) Open(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range p.conns {
		group.Go(func() error {
			_, err := p.openConn(ctx, &p.conns[i])
			return err
		})
	}
	return group.Wait()
}

// Close closes all connections. The pool can be used again.
func (p *Pool) Close() {
	for i := range p.conns {
		c := &p.conns[i]
		c.mu.Lock()
		if c.cc != nil {
			_ = c.cc.Close()
			c.cc = nil
		}
		c.mu.Unlock()
	}
}

// connect returns the connection of an agent.
func (p *Pool) connect(ctx context.Context, agent int) (*http.ClientConn, error) {
	return p.openConn(ctx, &p.conns[agent/p.shards/p.perConn])
}

// openConn returns the connection, and opens it if it is not open or is broken. Agents that share it wait for the one that
// opens it.
func (p *Pool) openConn(ctx context.Context, c *conn) (*http.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cc != nil && c.cc.Err() == nil {
		return c.cc, nil
	}
	if c.cc != nil {
		_ = c.cc.Close()
		c.cc = nil
	}
	cc, err := p.transport.NewClientConn(ctx, "https", p.host.Host)
	if err != nil {
		return nil, err
	}
	p.opened.Add(1)
	c.cc = cc
	return cc, nil
}

// reconnect replaces a connection that accepts no more requests, and returns the new one. The old one stays open,
// because answers may still arrive on it.
func (p *Pool) reconnect(ctx context.Context, agent int, old *http.ClientConn) (*http.ClientConn, error) {
	c := &p.conns[agent/p.shards/p.perConn]
	c.mu.Lock()
	if c.cc == old {
		c.cc = nil
	}
	c.mu.Unlock()
	return p.openConn(ctx, c)
}

// other is the class of errors that have no class of their own.
const other = "other"

func classify(err error) string {
	var alert tls.AlertError
	var verification *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.As(err, &alert), errors.As(err, &verification), errors.As(err, &header):
		return "tls"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case eof(err):
		return "eof"
	}
	return other
}

// renewals is how often a request is sent again, as in net/http's HTTP/2.
const renewals = 6

// unprocessed reports whether a request did not reach the server because the connection was being closed in order.
// http.Transport sends such a request again, too (shouldRetryRequest in net/http's HTTP/2). net/http has no value for
// these errors.
func unprocessed(err error) bool {
	return strings.Contains(err.Error(), "client conn not usable") || strings.Contains(err.Error(), "graceful shutdown GOAWAY")
}

// eof reports whether a connection ended in order during a request. net/http has no value for the error of its HTTP/2
// in that case.
func eof(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return true
	}
	return slices.ContainsFunc([]string{
		"connection lost",
		"GOAWAY",
		"conn could not be established",
		"connection is closed",
		"force closed",
		"response body closed",
		"shutdown",
		"conn is closed",
		"connection not usable",
	}, func(text string) bool { return strings.Contains(err.Error(), text) })
}

type tally struct {
	start     time.Time
	tolerance time.Duration

	mu    sync.Mutex
	block run.Block
	kinds []histogram.Histogram
	errs  int64 // unexpected answers
	done  int64
}

// second returns the entry of the timeline for a moment. The caller has the lock.
func (t *tally) second(at time.Time) *run.Second {
	i := max(0, int(at.Sub(t.start)/time.Second))
	for len(t.block.Timeline) <= i {
		t.block.Timeline = append(t.block.Timeline, run.Second{})
	}
	return &t.block.Timeline[i]
}

func (t *tally) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.block.Dropped++
}

// countSent counts a request that was sent, and how late it was.
func (t *tally) countSent(intended, actual time.Time) {
	lag := actual.Sub(intended)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.block.Sent++
	t.block.Lag.Record(lag)
	if lag > t.tolerance {
		t.block.Late++
	}
	t.second(actual).Sent++
}

func (t *tally) retry(status int, err error) {
	name := nameOf(status, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.block.Retried++
	t.block.Again[name]++
	t.block.Answers[name]++
}

// nameOf returns what an answer is counted as: a status, or a class of error.
func nameOf(status int, err error) string {
	if err != nil {
		return classify(err)
	}
	return strconv.Itoa(status)
}

// mostLogged is how many requests of a block are logged. With more, nothing is predicted.
const mostLogged = 2_000_000

// log logs a request that was sent, and its answer if that is unexpected.
func (t *tally) log(next task, from, to time.Time, expect int, got reply, err error) {
	request := run.Request{Agent: next.Agent, Kind: next.Kind, Turn: next.turn, From: from.Sub(t.start), To: to.Sub(t.start)}
	if err != nil {
		request.Answer = classify(err)
	} else if got.status != expect {
		request.Answer = got.detailedStatus
	}
	request.Said = got.loggedBody
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.block.Log) < mostLogged {
		t.block.Log = append(t.block.Log, request)
	}
}

// finish counts the end of a request: a status, or an error.
func (t *tally) finish(kind int32, expect int, intended, actual, end time.Time, status int, err error) {
	name := nameOf(status, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done++
	t.block.Answers[name]++
	second := t.second(end)
	second.Done++
	if name == other {
		t.block.NoteOdd(err.Error())
	}
	if err != nil || status != expect {
		t.errs++
		second.Errors++
		t.block.Wrong[fmt.Sprintf("%s: expected %d", name, expect)]++
	}
	t.block.Latency.Record(end.Sub(intended))
	t.block.Service.Record(end.Sub(actual))
	t.kinds[kind].Record(end.Sub(intended))
}

// Live is how a block is going at the moment.
type Live struct {
	Sent, Done, Errors int64
	Latency            histogram.Histogram // the latency of all requests so far
}

func (t *tally) live() Live {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := Live{Sent: t.block.Sent, Done: t.done, Errors: t.errs}
	l.Latency.Merge(&t.block.Latency)
	return l
}
