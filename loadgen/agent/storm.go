package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/reports/load/histogram"
	"github.com/authzconf/authzconf/reports/load/run"
)

// Request is what an agent asks.
type Request struct {
	// Path and Query are those of the URL.
	Path, Query string
	Header      http.Header
	// Watch says that the answer goes on: its latency is that of its beginning.
	Watch bool
}

// Storm is the requests of one shard in one block.
type Storm struct {
	Pool          *Pool
	Plan          pacer.Plan
	Shard, Shards int
	// Start is time 0 of the schedule.
	Start time.Time
	// Kinds name the kinds of requests. Request makes one; turn counts those of the agent. It is called from
	// several goroutines.
	Kinds   []string
	Request func(agent, kind, turn int) Request
	// Expect is the status that all answers should have.
	Expect int
	// Tolerance is how late a request may leave, Timeout how long its answer may take.
	Tolerance, Timeout time.Duration
	// Reconnect closes all connections before the block, so that each agent opens its own with its first request.
	Reconnect bool
	// Room is how many requests may be under way at once; one that has no room is dropped. The default is 4 for
	// each agent, and at least 4096.
	Room int

	tally *tally
	alarm *alarm // of an open loop
	room  atomic.Int64
	group sync.WaitGroup
}

// task is one request: turn counts those of its agent in the schedule, so that what is asked follows from the
// schedule alone.
type task struct {
	pacer.Send
	turn int
}

// settle is how long requests under way have after the user has ended a run.
const settle = 200 * time.Millisecond

// Prepare makes the schedule, so that Run can begin on time.
func (s *Storm) Prepare() ([]pacer.Send, error) {
	if err := s.Plan.Check(); err != nil {
		return nil, err
	}
	s.tally = &tally{start: s.Start, tolerance: s.Tolerance, expect: s.Expect, kinds: make([]histogram.Histogram, len(s.Kinds))}
	if s.Room == 0 {
		s.Room = max(4096, 4*s.Plan.Agents)
	}
	if s.Reconnect {
		s.Pool.Close()
	}
	if !s.Plan.Closed {
		var err error
		if s.alarm, err = newAlarm(); err != nil {
			return nil, err
		}
	}
	return s.Plan.Stripe(s.Shard, s.Shards), nil
}

// Live is how it is going. It may be called while Run runs.
func (s *Storm) Live() Live { return s.tally.live() }

// Run sends a schedule that Prepare made, and returns when every request has its answer or its error: at most
// Timeout after the end. When ctx ends it stops early, and what is under way is counted as canceled.
func (s *Storm) Run(ctx context.Context, schedule []pacer.Send) *run.Block {
	opened := s.Pool.opened.Load()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(settle, cancel) })
	defer stop()
	if s.Plan.Closed {
		s.closed(ctx, inner, schedule)
	} else {
		s.open(ctx, inner, schedule)
	}
	s.group.Wait()
	t := s.tally
	b := &t.block
	b.Started, b.Length = s.Start, run.Duration(s.Plan.Length)
	b.Agents = s.Plan.Agents
	b.Reconnects = s.Pool.opened.Load() - opened
	b.Kinds = map[string]histogram.Histogram{}
	for i, h := range t.kinds {
		if h.Count() > 0 {
			b.Kinds[s.Kinds[i]] = h
		}
	}
	return b
}

// open sends at the times of the schedule, whatever the server does. One goroutine lets all requests go: each more
// that a request needs is another turn of the scheduler.
func (s *Storm) open(ctx, inner context.Context, schedule []pacer.Send) {
	defer s.alarm.close()
	stop := context.AfterFunc(ctx, s.alarm.stop)
	defer stop()
	turns := make([]int, s.Plan.Agents/s.Shards+1) // by the agent's index within the shard
	for _, send := range schedule {
		if !s.alarm.wait(s.Start.Add(send.At)) {
			return
		}
		s.tally.block.Planned++
		turn := &turns[int(send.Agent)/s.Shards]
		due := task{send, *turn}
		*turn++
		if s.room.Add(1) > int64(s.Room) {
			s.room.Add(-1)
			s.tally.drop()
			continue
		}
		s.group.Add(1)
		go func() {
			defer s.group.Done()
			s.one(inner, due)
			s.room.Add(-1)
		}()
	}
	// A watch goes on to the end of the block.
	s.alarm.wait(s.Start.Add(s.Plan.Length))
}

// closed has every agent wait for its answer, and then think.
func (s *Storm) closed(ctx, inner context.Context, schedule []pacer.Send) {
	var planned atomic.Int64
	var agents sync.WaitGroup
	for _, first := range schedule {
		agents.Go(func() {
			thinker, at, kind := s.Plan.Thinker(int(first.Agent)), first.At, first.Kind
			for turn := 0; at < s.Plan.Length; turn++ {
				timer := time.NewTimer(time.Until(s.Start.Add(at)))
				select {
				case <-ctx.Done():
					timer.Stop()
					return
				case <-timer.C:
				}
				planned.Add(1)
				s.one(inner, task{pacer.Send{At: at, Agent: first.Agent, Kind: kind}, turn})
				var pause time.Duration
				pause, kind = thinker.Next()
				at = time.Since(s.Start) + pause
			}
		})
	}
	agents.Wait()
	s.tally.block.Planned = planned.Load()
}

// one sends a request, again if it is told to, and counts what becomes of it.
func (s *Storm) one(ctx context.Context, next task) {
	agent, kind := int(next.Agent), next.Kind
	intended, actual := s.Start.Add(next.At), time.Now()
	s.tally.sent(intended, actual)
	asked := s.Request(agent, int(kind), next.turn)
	for {
		status, after, body, err := s.send(ctx, agent, asked)
		if err == nil && status == http.StatusTooManyRequests && s.wait(ctx, after) {
			s.tally.retry(status)
			continue
		}
		s.tally.finish(kind, intended, actual, time.Now(), status, err)
		if body != nil {
			s.follow(ctx, body)
		}
		return
	}
}

// wait does as a Retry-After says, unless the block is over by then.
func (s *Storm) wait(ctx context.Context, after time.Duration) bool {
	if after <= 0 || time.Since(s.Start)+after > s.Plan.Length {
		return false
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// send sends once. The answer's body is read and thrown away; that of a watch is returned.
func (s *Storm) send(ctx context.Context, agent int, asked Request) (status int, after time.Duration, watch *following, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(s.Timeout, func() { cancel(context.DeadlineExceeded) })
	keep := false
	defer func() {
		timer.Stop()
		if !keep {
			cancel(nil)
		}
	}()
	cc, err := s.Pool.of(ctx, agent)
	if err != nil {
		return 0, 0, nil, causeOf(ctx, err)
	}
	host := s.Pool.host
	r := (&http.Request{
		Method: http.MethodGet, Host: host.Host, Header: asked.Header,
		URL:   &url.URL{Scheme: host.Scheme, Host: host.Host, Path: asked.Path, RawQuery: asked.Query},
		Proto: "HTTP/2.0", ProtoMajor: 2,
	}).WithContext(ctx)
	resp, err := cc.RoundTrip(r)
	// As http.Transport does, which client-go uses: API servers close connections that were idle for 90 s.
	for tries := 0; err != nil && unprocessed(err) && tries < renewals; tries++ {
		if cc, err = s.Pool.renewed(ctx, agent, cc); err == nil {
			resp, err = cc.RoundTrip(r) //nolint:bodyclose // closed below; one with an error has none
		}
	}
	if err != nil {
		return 0, 0, nil, causeOf(ctx, err)
	}
	if asked.Watch && resp.StatusCode == http.StatusOK {
		keep = true
		return resp.StatusCode, 0, &following{body: resp.Body, cancel: cancel}, nil
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests {
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		after = time.Duration(seconds) * time.Second
	}
	return resp.StatusCode, after, nil, causeOf(ctx, err)
}

// causeOf is why a request was given up, if it was.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

// following is a watch that goes on.
type following struct {
	body   io.ReadCloser
	cancel context.CancelCauseFunc
}

// follow reads a watch to its end, which is that of the block at the latest.
func (s *Storm) follow(ctx context.Context, f *following) {
	stop := context.AfterFunc(ctx, func() { f.cancel(nil) })
	timer := time.AfterFunc(time.Until(s.Start.Add(s.Plan.Length)), func() { f.cancel(nil) })
	_, _ = io.Copy(io.Discard, f.body)
	_ = f.body.Close()
	timer.Stop()
	stop()
	f.cancel(nil)
}
