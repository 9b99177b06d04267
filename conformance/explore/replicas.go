package explore

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/balancer"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// A server remembers what it was asked since it started, and nothing of what another one was asked. So the requests of a
// walk that goes to two API servers are parts, one of each server from one start to the next, and every part is a scenario
// with all changes of permissions and its own requests: the model predicts it by itself, and it is judged, run alone and
// made small like any other. They are sent in the order of the walk.

// place is where a part of a walk is sent: a server, from a start to the next. Every second start the gate is the other.
type place struct{ server, start int }

func (at place) String() string {
	if at == (place{}) {
		return ""
	}
	return fmt.Sprintf(", the requests to server %d since start %d", at.server+1, at.start+1)
}

// walk is a case as it is sent, with its parts.
type walk struct {
	turns []turn
	next  int
	parts []*prepared
}

// turn is a step of a part. Where there is no part something comes first that is about the whole batch. fresh says that
// the request has a new connection.
type turn struct {
	part  *prepared
	step  int
	fresh bool
}

func (w *walk) ended() bool { return w.next == len(w.turns) }

const flips = 2

// walk puts the steps of a case in the order of sending; where the batch is special the last request comes once more.
func (l *lane) walk(c cases.Case, b *batch) *walk {
	w, s, special := &walk{}, c.Scenario, b.special
	rng := rand.New(rand.NewPCG(uint64(l.o.Seed), uint64(c.Number)))
	places := []place{{}}
	switch last := s.Steps[len(s.Steps)-1]; special {
	case beside, balanced:
		places = []place{{}, {server: 1}}
	case flipped:
		places = []place{{}, {server: 1}, {server: 1, start: 1}, {server: 1, start: 2}}
		s.Steps = append(s.Steps, slices.Repeat([]scenarios.Step{last}, flips)...)
	}
	for _, at := range places {
		own := *s
		own.Steps = nil
		if at != (place{}) {
			own.ID += fmt.Sprintf("/server-%d-start-%d", at.server+1, at.start+1)
		}
		w.parts = append(w.parts, &prepared{at: at, asked: flip(l.cell, at).Wanted(), scenario: &own})
	}
	all, seen, phase := requests(s), 0, 0
	for i, st := range s.Steps {
		p, fresh := w.parts[0], false
		switch {
		case special == flipped && st.Request != nil && seen*(flips+1)/all > phase:
			phase++
			w.turns = append(w.turns, turn{})
			p.scenario.Steps = append(p.scenario.Steps, scenarios.Step{Wait: scenarios.Duration(expiry)})
		case st.Wait > 0, special == reloaded && i == len(s.Steps)-1:
			w.turns = append(w.turns, turn{})
		}
		if st.Request == nil {
			for _, p := range w.parts {
				p.scenario.Steps = append(p.scenario.Steps, st)
			}
		} else {
			switch seen++; {
			case special == balanced:
				fresh = b.turn(rng, st.Request)
				p = w.parts[(b.turns-1)%len(w.parts)]
			case len(w.parts) > 1 && rng.IntN(2) == 1:
				p = w.parts[1+phase]
			}
			p.scenario.Steps = append(p.scenario.Steps, st)
		}
		if st.Request != nil || len(w.parts) == 1 { // with a role, which several servers do not have
			w.turns = append(w.turns, turn{p, len(p.scenario.Steps) - 1, fresh})
		}
	}
	w.parts = slices.DeleteFunc(w.parts, func(p *prepared) bool { return requests(p.scenario) == 0 })
	return w
}

// turn says whether a request has a connection of its own, which the balancer gives to the next server: the first one has,
// the one behind a watch, for a connection ends with it, and of the others every third.
func (b *batch) turn(rng *rand.Rand, r *scenarios.Request) (fresh bool) {
	if fresh = b.turns == 0 || b.watched || rng.IntN(3) == 0; fresh {
		b.turns++
	}
	b.watched = r.Verb == "watch"
	return fresh
}

func requests(s *scenarios.Scenario) (n int) {
	return seq.Count(s.Steps, func(st scenarios.Step) bool { return st.Request != nil })
}

func (p *prepared) counted() bool {
	return slices.Contains(p.asked.Facts.Capabilities, scenarios.Metrics)
}

type host struct {
	target *server.Server
	replay *replay.Replayer
	front  http.RoundTripper
	batch  *server.Batch // nil unless one is open
}

func start(ctx context.Context, o server.Options) (h *host, err error) {
	h = &host{}
	if h.target, err = server.Start(ctx, o); err != nil {
		return nil, err
	}
	if h.replay, err = replay.New(h.target); err == nil {
		h.front, err = h.target.FrontProxy()
	}
	return h, err
}

func (l *lane) options(at place) server.Options {
	o := l.cell
	o.Front = l.allow
	o.Recorder.HTTP1 = true
	// Requests come one at a time, so memory that is collected late costs little.
	o.KubeAPIServerEnv = append([]string{"GOGC=400"}, o.KubeAPIServerEnv...)
	if at.server > 0 {
		o.Join = l.hosts[0].target
	}
	return flip(o, at)
}

// flip is the other cell where the gate is switched: off if it was on, and the other way round, if the version has it.
func flip(o server.Options, at place) server.Options {
	if at.start%2 == 0 {
		return o
	}
	o.Cell.Name += "-flipped"
	switch version := o.Effective(); {
	case server.GateState(version, server.Asked(o.Cell.Gate)) == scenarios.GateOn:
		o.Cell.Gate = string(server.AskOff)
	case server.GateKnown(version):
		o.Cell.Gate = string(server.AskOn)
	}
	return o
}

// hostFor is the server of a place. The one beside is started when it is first needed, and anew for another gate.
func (l *lane) hostFor(ctx context.Context, at place) (h *host, err error) {
	if h = l.hosts[at.server]; at.server == 0 {
		return h, nil
	}
	o := l.options(at)
	switch {
	case h == nil:
		if h, err = start(ctx, o); h != nil {
			l.hosts[at.server] = h
		}
	case h.target.Cell.Name != o.Cell.Name:
		utilnet.CloseIdleConnectionsFor(h.front)
		if err = h.target.Restart(ctx, o); err == nil {
			h.replay, err = replay.New(h.target)
		}
	}
	if err == nil {
		l.beside[o.Cell.Name] = h.target.Found()
	}
	return h, err
}

// open begins to look at what servers see: at first all that a batch has, in later phases the one that was restarted.
func (l *lane) open(ctx context.Context, b *batch, phase int) (err error) {
	for _, at := range []place{{}, {1, phase}} {
		if at.server == 0 && phase > 0 || at.server > 0 && !slices.Contains([]string{beside, balanced, flipped}, b.special) {
			continue
		}
		h, err := l.hostFor(ctx, at)
		if err == nil {
			h.batch, err = h.target.OpenBatch()
		}
		if err != nil {
			return err
		}
	}
	if b.special == balanced {
		b.balancer, err = balancer.Start(address(l.hosts[0]), address(l.hosts[1]))
	}
	return err
}

func address(h *host) string { return strings.TrimPrefix(h.target.Host(), "https://") }

// close adds what a server has seen since open to what it saw of the batch before.
func (l *lane) close(ctx context.Context, b *batch, replica int) error {
	if b.balancer != nil && replica == 0 {
		_ = b.balancer.Close()
	}
	h := l.hosts[replica]
	if h == nil || h.batch == nil {
		return nil
	}
	more, err := h.batch.Close(ctx)
	h.batch = nil
	if seen := b.seen[replica]; err == nil && seen != nil {
		more.Reviews, more.Seqs = slices.Concat(seen.Reviews, more.Reviews), slices.Concat(seen.Seqs, more.Seqs)
		more.Metrics = together(seen.Metrics, more.Metrics)
	}
	b.seen[replica] = more
	return err
}

// together are all increases, and nil if neither server counts.
func together(a, b []verdicts.MetricSample) []verdicts.MetricSample {
	if a == nil {
		return b
	}
	return append(a, b...)
}

// A success is remembered for ten seconds. In an edged batch the last request of each case comes again when what its
// requests left is about to be forgotten, or just was: within edgeMargin of it. What the model predicts then follows from
// the times that the requests had, and so it does where a request is further than punctual from the time that the waits
// say, for a busy machine stalls. A request during which something was forgotten can go either way: neither it is judged
// nor what comes after it, which depends on it.
const (
	remembered = 10 * time.Second
	edges      = 3 // how often the last request comes again
	edgeMargin = 25 * time.Millisecond
	punctual   = remembered / 40
)

// sendEdges sends walks as long as the first is remembered, and then what is left of all, each request at a random time
// around those at which what its walk left is forgotten.
func (l *lane) sendEdges(ctx context.Context, b *batch) (err error) {
	type due struct {
		at time.Time
		w  *walk
	}
	for rest := b.walks; len(rest) > 0 && err == nil; {
		var later []due
		for begun := time.Now(); err == nil && len(rest) > 0 && time.Since(begun) < remembered-time.Second; rest = rest[1:] {
			first := time.Now()
			err = l.sendOn(ctx, b, rest[0])
			spread := time.Since(first) + 2*edgeMargin
			for range edges {
				later = append(later, due{first.Add(remembered - edgeMargin + rand.N(spread)), rest[0]})
			}
		}
		slices.SortFunc(later, func(x, y due) int { return cmp.Compare(x.at.UnixNano(), y.at.UnixNano()) })
		for _, d := range later {
			if err == nil && clusters.Pause(ctx, time.Until(d.at)) {
				err = l.sendOn(ctx, b, d.w)
			}
		}
	}
	return cmp.Or(err, ctx.Err())
}

// inTime says whether all requests were sent, and answered, about when the waits say.
func inTime(s *scenarios.Scenario, times []oracle.Span) bool {
	var due time.Duration
	for _, st := range s.Steps {
		if due += time.Duration(st.Wait); st.Request != nil {
			if times[0].Sent < due-punctual || times[0].Answered > due+punctual {
				return false
			}
			times = times[1:]
		}
	}
	return true
}

// verdict judges a case by its evidence, and says of how many requests it does not tell, for their times do not.
func (l *lane) verdict(p *prepared, ev *verdicts.Evidence) (r verdicts.Result, undecided int, err error) {
	times := seq.Map(ev.Steps, func(o verdicts.Observation) oracle.Span {
		return oracle.Span{Sent: o.Sent.Sub(ev.Steps[0].Sent), Answered: o.Answered.Sub(ev.Steps[0].Sent)}
	})
	if len(times) != requests(p.scenario) || inTime(p.scenario, times) {
		return verdicts.Judge(p.scenario, ev), 0, nil
	}
	played, sure, err := oracle.PlayAt(p.scenario, p.asked.Facts, fixtures.FS, times)
	if err != nil {
		return r, 0, fmt.Errorf("%s: the model: %w", p.scenario.ID, err)
	}
	p.played = played
	l.state(p.scenario, played)
	for i := range played[1:] { // as they were, for whoever sends them again
		if before := &p.scenario.Steps[played[i+1].Step-1]; before.Wait > 0 {
			before.Wait = scenarios.Duration(max(times[i+1].Sent-times[i].Answered, 1))
		}
	}
	if undecided = len(times) - sure; undecided > 0 {
		own, seen := *p.scenario, *ev
		own.Steps, seen.Steps = own.Steps[:played[sure].Step], seen.Steps[:sure]
		return verdicts.Judge(&own, &seen), undecided, nil
	}
	return verdicts.Judge(p.scenario, ev), 0, nil
}
