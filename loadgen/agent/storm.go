package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// Request is one request of an agent.
type Request struct {
	// Path and Query are parts of the URL.
	Path, Query string
	Header      http.Header
	Body        []byte // posted, if it is not empty
	// Watch means that the answer goes on. Its latency is that of the beginning.
	Watch bool
	// Read, if it is given, returns what the log keeps of an expected answer.
	Read func(body []byte) string
}

// Storm is the requests of one shard in one block.
type Storm struct {
	Pool          *Pool
	Plan          pacer.Plan
	Shard, Shards int
	Start         time.Time // time 0 of the schedule
	// Kinds are the names of the kinds of requests. Request makes one, and is called by several goroutines; turn counts
	// the requests of the agent.
	Kinds   []string
	Request func(agent, kind, turn int) Request
	// Expect is the status that all answers should have. If it is ok (200), posted requests should be answered with
	// created (201).
	Expect int
	// Before is a kind of request, and how many of it an agent sends before each other one.
	Before struct{ Kind, Times int }
	// Return makes agents behave as client-go's reflectors: they list (kind 0), then watch (kind 2), and if the watch
	// ends or a request fails they wait, longer each time, and begin again.
	Return bool
	// WatchList makes agents that come back begin with a watch that sends what exists, instead of a list and a watch.
	// client-go's reflectors do so by default since 1.35 (the feature WatchListClient).
	WatchList bool
	// Tolerance is how late a request may be sent, and Timeout is how long its answer may take.
	Tolerance, Timeout time.Duration
	// Reconnect closes all connections before the block, so that each agent opens its own with its first request.
	Reconnect bool
	// Room is how many requests may be open at the same time. Further ones are dropped. By default it is 4 for each
	// agent, and at least 4096.
	Room int
	// Patient makes requests wait for room instead of being dropped. If a run is not about latency, a slow server gets
	// them later.
	Patient bool

	tally    *tally
	alarm    *alarm // of an open loop
	underWay atomic.Int64
	group    sync.WaitGroup
}

// task is one request. turn counts the agent's requests in the schedule, so that what is asked follows from the
// schedule alone. The watch of a reflector begins at a version.
type task struct {
	pacer.Send
	turn    int
	version string
}

// settle is how long open requests may take after the user has ended a run.
const settle = 200 * time.Millisecond

// Prepare makes the schedule, so that Run can begin on time.
func (s *Storm) Prepare() ([]pacer.Send, error) {
	s.tally = &tally{start: s.Start, tolerance: s.Tolerance, kinds: make([]histogram.Histogram, len(s.Kinds)), block: run.Block{
		Answers: map[string]int64{}, Again: map[string]int64{}, Wrong: map[string]int64{},
	}}
	s.Room = cmp.Or(s.Room, max(4096, 4*s.Plan.Agents))
	if s.Reconnect {
		s.Pool.Close()
	}
	if !s.Return {
		var err error
		if s.alarm, err = newAlarm(); err != nil {
			return nil, err
		}
	}
	return s.Plan.Stripe(s.Shard, s.Shards), nil
}

// Live returns how the block is going. It may be called while Run runs.
func (s *Storm) Live() Live { return s.tally.live() }

// Run sends a schedule that Prepare made. It returns when every request has its answer or its error, at most Timeout
// after the end. When ctx ends it stops early, and open requests are counted as canceled.
func (s *Storm) Run(ctx context.Context, schedule []pacer.Send) *run.Block {
	opened := s.Pool.opened.Load()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(settle, cancel) })
	defer stop()
	if s.Return {
		s.reflectors(ctx, inner, schedule)
	} else {
		s.open(ctx, inner, schedule)
	}
	s.group.Wait()
	t := s.tally
	b := &t.block
	b.Started, b.Length = s.Start, run.Duration(s.Plan.Length)
	b.Agents, b.FollowsServer = s.Plan.Agents, s.Return
	b.Reconnects = s.Pool.opened.Load() - opened
	b.Kinds = map[string]histogram.Histogram{}
	for i, h := range t.kinds {
		if h.Count() > 0 {
			b.Kinds[s.Kinds[i]] = h
		}
	}
	return b
}

// open sends at the times of the schedule, whatever the server does. One goroutine starts all requests, because each
// further goroutine for a request would be another turn of the scheduler.
func (s *Storm) open(ctx, inner context.Context, schedule []pacer.Send) {
	defer s.alarm.close()
	stop := context.AfterFunc(ctx, s.alarm.stop)
	defer stop()
	turns := make([]int, s.Plan.Agents/s.Shards+1) // by the agent's index within the shard
	for _, send := range schedule {
		if !s.alarm.wait(s.Start.Add(send.At)) {
			return
		}
		turn := &turns[int(send.Agent)/s.Shards]
		due := task{Send: send, turn: *turn}
		*turn++
		if s.Patient && !s.awaitRoom(ctx) {
			return
		}
		if s.underWay.Add(1) > int64(s.Room) {
			s.underWay.Add(-1)
			s.tally.block.Planned++
			s.tally.drop()
			continue
		}
		s.tally.block.Planned += int64(1 + s.Before.Times)
		s.group.Add(1)
		go func() {
			defer s.group.Done()
			first := due
			for range s.Before.Times {
				first.Kind = int32(s.Before.Kind)
				s.retrying(inner, first, nil)
				first.At = time.Since(s.Start) // when the next could be sent
			}
			due.At = first.At
			s.retrying(inner, due, nil)
			s.underWay.Add(-1)
		}()
	}
	// A watch continues to the end of the block.
	s.alarm.wait(s.Start.Add(s.Plan.Length))
}

// roomPause is the time between two looks for room.
const roomPause = time.Millisecond

// awaitRoom returns when one more request may be under way, and false if ctx ends first.
func (s *Storm) awaitRoom(ctx context.Context) bool {
	for s.underWay.Load() >= int64(s.Room) {
		if !clusters.Pause(ctx, roomPause) {
			return false
		}
	}
	return true
}

// mostRetries is how often a request is sent again because of a Retry-After (maxRetries of client-go's rest.Request).
const mostRetries = 10

// retrying sends a request, sends it again if the answer says so, and counts the results. With a backoff, which agents
// that come back have, every failure is followed by another attempt. It returns the last answer, and false if that is
// unexpected.
func (s *Storm) retrying(ctx context.Context, next task, backoff *pacer.Backoff) (got reply, ok bool) {
	agent, kind := int(next.Agent), next.Kind
	intended, actual := s.Start.Add(next.At), time.Now()
	s.tally.countSent(intended, actual)
	request, expect := s.Request(agent, int(kind), next.turn), s.Expect
	if len(request.Body) > 0 && expect == http.StatusOK {
		expect = http.StatusCreated
	}
	request.Query = s.beginAt(request.Query, next)
	for retries := 0; ; {
		sentAt := time.Now()
		var err error
		got, err = s.send(ctx, agent, request)
		status := got.status
		s.tally.log(next, sentAt, time.Now(), expect, got, err)
		isRetry := false
		switch {
		case err == nil && status == expect:
		case got.retryAfter > 0 && retries < mostRetries:
			retries++
			isRetry = s.wait(ctx, got.retryAfter)
		case backoff != nil:
			isRetry = s.wait(ctx, backoff.Next())
		}
		if isRetry {
			s.tally.retry(status, err)
			continue
		}
		s.tally.finish(kind, expect, intended, actual, time.Now(), status, err)
		if got.watch != nil {
			began := time.Now()
			s.follow(ctx, got.watch)
			got.watchedFor = time.Since(began)
		}
		return got, err == nil && status == expect
	}
}

// wait waits before a request is sent again, unless the block and the time for its last answers are over by then.
func (s *Storm) wait(ctx context.Context, d time.Duration) bool {
	return time.Since(s.Start)+d <= s.Plan.Length+s.Timeout && clusters.Pause(ctx, d)
}

// reply is the answer to a request that was sent once. It has a status, that status with details for the log, how long
// to wait according to Retry-After, the version of a list, and a watch with how long it lasted.
type reply struct {
	status                  int
	detailedStatus, version string
	loggedBody              string // what the log keeps of the body
	retryAfter, watchedFor  time.Duration
	watch                   *following
}

// send sends a request once. It discards the body, except for the version of a reflector's list. It returns the body of
// a watch.
func (s *Storm) send(ctx context.Context, agent int, request Request) (got reply, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(s.Timeout, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	resp, err := s.roundTrip(ctx, agent, request)
	if err != nil {
		err = causeOf(ctx, err)
		cancel(nil)
		return got, err
	}
	got.status, got.detailedStatus = resp.StatusCode, describeStatus(resp)
	if request.Watch && resp.StatusCode == http.StatusOK {
		got.watch = &following{body: resp.Body, cancel: cancel}
		return got, nil
	}
	defer cancel(nil)
	if s.Return && resp.StatusCode == http.StatusOK {
		got.version, err = versionOf(resp.Body)
	} else {
		got.loggedBody, err = readAnswer(resp, request)
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError {
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		got.retryAfter = time.Duration(seconds) * time.Second
	}
	return got, causeOf(ctx, err)
}

// readAnswer reads the body of an answer to its end, and returns what the log keeps of it.
func readAnswer(resp *http.Response, request Request) (text string, err error) {
	if request.Read == nil || resp.StatusCode >= http.StatusMultipleChoices {
		_, err = io.Copy(io.Discard, resp.Body)
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	return request.Read(body), nil
}

// roundTrip sends a request on the agent's connection, or on a new one if the server was closing that one.
// http.Transport, which client-go uses, does the same. API servers close connections that were idle for 90 s.
func (s *Storm) roundTrip(ctx context.Context, agent int, request Request) (*http.Response, error) {
	cc, err := s.Pool.connect(ctx, agent)
	if err != nil {
		return nil, err
	}
	r := s.newRequest(request).WithContext(ctx)
	resp, err := cc.RoundTrip(r)
	for tries := 0; err != nil && unprocessed(err) && tries < renewals; tries++ {
		if cc, err = s.Pool.reconnect(ctx, agent, cc); err != nil {
			continue
		}
		if len(request.Body) > 0 {
			r.Body = io.NopCloser(bytes.NewReader(request.Body))
		}
		resp, err = cc.RoundTrip(r)
	}
	return resp, err
}

func (s *Storm) newRequest(request Request) *http.Request {
	host, method := s.Pool.host, http.MethodGet
	var body io.ReadCloser
	if len(request.Body) > 0 {
		method, body = http.MethodPost, io.NopCloser(bytes.NewReader(request.Body))
	}
	return &http.Request{
		Method: method, Host: host.Host, Header: request.Header, Body: body, ContentLength: int64(len(request.Body)),
		URL:   &url.URL{Scheme: host.Scheme, Host: host.Host, Path: request.Path, RawQuery: request.Query},
		Proto: "HTTP/2.0", ProtoMajor: 2,
	}
}

// describeStatus returns a status. For 429 it adds how far the request came. Priority and fairness refuses in plain text a
// request that was impersonated and not yet authorized. A storage cache that is not filled yet, as after a restart,
// refuses with an object of the API, after all checks. A request that did not reach priority and fairness lacks its
// header.
func describeStatus(resp *http.Response) string {
	switch status := strconv.Itoa(resp.StatusCode); {
	case resp.StatusCode != http.StatusTooManyRequests:
		return status
	case resp.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) == "":
		return status + " early"
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain"):
		return run.Throttled
	}
	return run.Unready
}

func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

type following struct {
	body   io.ReadCloser
	cancel context.CancelCauseFunc
}

// follow reads a watch to its end, which is the end of the block at the latest.
func (s *Storm) follow(ctx context.Context, f *following) {
	stop := context.AfterFunc(ctx, func() { f.cancel(nil) })
	timer := time.AfterFunc(time.Until(s.Start.Add(s.Plan.Length)), func() { f.cancel(nil) })
	_, _ = io.Copy(io.Discard, f.body)
	_ = f.body.Close()
	timer.Stop()
	stop()
	f.cancel(nil)
}
