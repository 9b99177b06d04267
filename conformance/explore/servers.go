package explore

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/authzconf/authzconf/clusters/balancer"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// host is an API server that is explored.
type host struct {
	target *server.Server
	replay *replay.Replayer
	front  http.RoundTripper
	batch  *server.Batch // nil unless one is open
}

func startHost(ctx context.Context, o server.Options) (h *host, err error) {
	h = &host{}
	if h.target, err = server.Start(ctx, o); err != nil {
		return nil, err
	}
	if h.replay, err = replay.New(h.target); err == nil {
		h.front, err = h.target.FrontProxy()
	}
	return h, err
}

// servers are the API server of a sequence and, if it was needed, the one beside it.
type servers struct {
	base   server.Options // how the cell has its API servers
	hosts  [2]*host
	others map[string]reports.FoundTarget // what the one beside it was, by the names of its cells
	grants grantsInForce
}

// grantsInForce are those of the cases that are being sent, by their suffixes: of one, or of those of a crowd.
type grantsInForce struct {
	mu       sync.RWMutex
	bySuffix map[string][]scenarios.Grant
}

// put puts the grants of a step in force, in place of those of an earlier step.
func (g *grantsInForce) put(bound *scenarios.Scenario, step int) {
	grants := bound.GrantsAt(step)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bySuffix == nil {
		g.bySuffix = map[string][]scenarios.Grant{}
	}
	g.bySuffix[bound.Suffix] = grants
}

// end ends the grants of a case.
func (g *grantsInForce) end(bound *scenarios.Scenario) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.bySuffix, bound.Suffix)
}

func (g *grantsInForce) cover(spec authorizationv1.SubjectAccessReviewSpec) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, grants := range g.bySuffix {
		if scenarios.Covered(grants, spec) {
			return true
		}
	}
	return false
}

// allow implements recorder.Script with the grants of the cases that are being sent; the rest is left to those behind.
func (s *servers) allow(spec authorizationv1.SubjectAccessReviewSpec) recorder.ScriptedReply {
	return recorder.ScriptedReply{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: s.grants.cover(spec)}}
}

// optionsAt returns how the server of a place is started.
func (s *servers) optionsAt(at place) server.Options {
	o := s.base
	o.Front = s.allow
	o.Recorder.HTTP1 = true
	// Requests come one at a time, so memory that is collected late costs little.
	o.KubeAPIServerEnv = append([]string{"GOGC=400"}, o.KubeAPIServerEnv...)
	if at.server > 0 {
		o.Join = s.hosts[0].target
	}
	return nameAt(o, at)
}

// hostAt returns the server of a place. The one beside is started when it is first needed, and anew for another gate.
func (s *servers) hostAt(ctx context.Context, at place) (h *host, err error) {
	if h = s.hosts[at.server]; at.server == 0 {
		return h, nil
	}
	o := s.optionsAt(at)
	switch {
	case h == nil:
		if h, err = startHost(ctx, o); h != nil {
			s.hosts[at.server] = h
		}
	case h.target.Cell.Name != o.Cell.Name:
		utilnet.CloseIdleConnectionsFor(h.front)
		if err = h.target.Restart(ctx, o); err == nil {
			h.replay, err = replay.New(h.target)
		}
	}
	if err != nil {
		return h, err
	}
	found := h.target.FoundTarget()
	s.others[o.Cell.Name] = found
	return h, server.CheckTarget(found, flip(s.base, at).AskedTarget())
}

// open begins to look at what servers see: at first all that a batch has, in later phases the one that was restarted.
func (s *servers) open(ctx context.Context, b *batch, phase int) (err error) {
	hasSecond := slices.Contains([]string{besideSuffix, balancedSuffix, flippedSuffix}, b.special)
	var places []place
	if phase == 0 {
		places = append(places, place{})
	}
	if hasSecond {
		places = append(places, place{1, phase})
	}
	for _, at := range places {
		h, err := s.hostAt(ctx, at)
		if err != nil {
			return err
		}
		if h.batch, err = h.target.OpenBatch(); err != nil {
			return err
		}
	}
	if b.special == balancedSuffix {
		b.balancer, err = balancer.Start(addressOf(s.hosts[0]), addressOf(s.hosts[1]))
	}
	return err
}

func addressOf(h *host) string { return strings.TrimPrefix(h.target.Host(), "https://") }

// close adds what a server has seen since open to what it saw of the batch before.
func (s *servers) close(ctx context.Context, b *batch, replica int) error {
	if b.balancer != nil && replica == 0 {
		_ = b.balancer.Close()
	}
	h := s.hosts[replica]
	if h == nil || h.batch == nil {
		return nil
	}
	more, err := h.batch.Close(ctx)
	h.batch = nil
	if observations := b.observations[replica]; err == nil && observations != nil {
		more.Reviews, more.Seqs = slices.Concat(observations.Reviews, more.Reviews), slices.Concat(observations.Seqs, more.Seqs)
		more.Metrics = joinMetrics(observations.Metrics, more.Metrics)
	}
	b.observations[replica] = more
	return err
}

// joinMetrics returns all increases, and nil if neither server counts.
func joinMetrics(a, b []verdicts.MetricSample) []verdicts.MetricSample {
	if a == nil {
		return b
	}
	return append(a, b...)
}
