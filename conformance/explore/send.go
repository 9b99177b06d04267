package explore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// timeout is how long a request may take.
const timeout = 60 * time.Second

// sentRequest is one request that was answered. Its reviews came after the place from, up to the place to.
type sentRequest struct {
	step        int
	observation verdicts.Observation
	from, to    uint64
	hangUp      func() string // set while it is a watch that is kept open
}

// sender sends the batches of a sequence.
type sender struct {
	*sequence
	servers
}

// provision makes the grants of the cases that have RBAC objects.
func (r *sender) provision(ctx context.Context, b *batch) error {
	const atOnce = 4 // more would only keep the API server from answering the others
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, p := range b.cases {
		if p.objects {
			group.Go(func() (err error) {
				if p.provisioned, err = r.hosts[0].replay.Provision(ctx, p.bound); err != nil {
					return fmt.Errorf("case %d: provisioning: %w", p.number, err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// send sends a batch.
func (r *sender) send(ctx context.Context, b *batch) error {
	if b.special == restarted {
		h := r.hosts[0]
		utilnet.CloseIdleConnectionsFor(h.front)
		if err := errors.Join(h.target.Renew(ctx), h.target.Rebase(ctx)); err != nil {
			return err
		}
	}
	err := r.open(ctx, b, 0)
	switch {
	case err != nil:
	case b.special == edgedSuffix:
		err = r.sendEdges(ctx, b)
	case b.special == crowded:
		err = r.sendCrowd(ctx, b)
	default:
		err = r.sendWalks(ctx, b)
	}
	return errors.Join(err, r.close(ctx, b, 0), r.close(ctx, b, 1))
}

// sendWalks sends all walks in portions, each to its end before the next.
func (r *sender) sendWalks(ctx context.Context, b *batch) error {
	for rest := b.walks; len(rest) > 0; {
		count, err := r.sendPortion(ctx, b, rest)
		if err != nil {
			return err
		}
		rest = rest[count:]
	}
	return nil
}

// sendPortion sends all walks, or before a reload as many as have their requests remembered then, and returns how many.
func (r *sender) sendPortion(ctx context.Context, b *batch, walks []*walk) (count int, err error) {
	begun := time.Now()
	for count < len(walks) {
		isFull := b.special == reloaded && time.Since(begun) >= freshTime
		if isFull {
			break
		}
		if err := r.sendOn(ctx, b, walks[count]); err != nil {
			return count, err
		}
		count++
	}
	for phase := 1; !walks[0].ended(); phase++ {
		if err := r.pass(ctx, b, phase); err != nil {
			return count, err
		}
		for _, w := range walks[:count] {
			if err := r.sendOn(ctx, b, w); err != nil {
				return count, err
			}
		}
	}
	return count, nil
}

// pass does what comes between two phases of a batch.
func (r *sender) pass(ctx context.Context, b *batch, phase int) error {
	until, cancel := context.WithTimeout(ctx, expiry)
	defer cancel()
	switch main := r.hosts[0].target; b.special {
	case reloaded:
		return errors.Join(main.Reload(ctx, "webhook-last"), main.Reload(ctx, r.cell.options.Chain))
	case flippedSuffix:
		if err := errors.Join(r.close(ctx, b, 1), r.open(ctx, b, phase)); err != nil {
			return err
		}
	}
	<-until.Done()
	return ctx.Err()
}

// sendOn plays a walk on, to where something else comes first.
func (r *sender) sendOn(ctx context.Context, b *batch, w *walk) error {
	defer r.grants.end(w.parts[0].bound)
	defer hangUp(w.parts)
	for ; !w.ended(); w.next++ {
		at := w.turns[w.next]
		if at.part == nil {
			w.next++
			return nil
		}
		if err := r.take(ctx, b, at); err != nil {
			return err
		}
	}
	return nil
}

// take does a step of a walk.
func (r *sender) take(ctx context.Context, b *batch, at turn) error {
	p := at.part
	st := &p.bound.Steps[at.step]
	switch {
	case st.Request != nil:
		return r.sendStep(ctx, b, at)
	case p.objects:
		return p.provisioned.Change(ctx, st)
	}
	return nil
}

// sendStep sends the request of a step.
func (r *sender) sendStep(ctx context.Context, b *batch, at turn) error {
	p := at.part
	h := r.hosts[p.at.server]
	if !p.objects {
		r.grants.put(p.bound, at.step)
	}
	address := h.target.Host()
	if b.balancer != nil {
		address = "https://" + b.balancer.Addr()
	}
	if at.fresh {
		utilnet.CloseIdleConnectionsFor(h.front)
	}
	s := sentRequest{step: at.step, from: h.batch.Mark()}
	front := h.front
	if p.front != nil {
		front = p.front
	}
	var err error
	if s.observation, s.hangUp, err = request(ctx, front, address, p.bound, at.step); err != nil {
		return errors.Join(err, h.target.Err())
	}
	s.to = h.batch.Mark()
	p.sent = append(p.sent, s)
	if notify := r.cell.plan.o.Sent; notify != nil {
		notify(p.number, p.choice)
	}
	return nil
}

// hangUp ends the watches that were kept open.
func hangUp(parts []*preparedCase) {
	for _, p := range parts {
		for i := range p.sent {
			if s := &p.sent[i]; s.hangUp != nil {
				s.observation.Response.Held, s.hangUp = s.hangUp(), nil
			}
		}
	}
}

// collect returns everything that was seen of a batch.
func (r *sender) collect(ctx context.Context, b *batch) (*batchEvidence, error) {
	e := &batchEvidence{}
	for _, observations := range b.observations {
		if observations != nil {
			dropDisturbances(observations)
			e.Arrived += len(observations.Reviews)
			e.Metrics = joinMetrics(e.Metrics, observations.Metrics)
		}
	}
	if b.special == crowded {
		e.Metrics = nil // what a request counts that was ended is open
	}
	for _, p := range b.cases {
		evidence, err := redactEvidence(r.collectCase(ctx, p, b))
		if err := errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		e.Cases = append(e.Cases, evidence)
		p.sent, p.bound = nil, nil
	}
	b.observations = [2]*server.BatchObservations{}
	return e, nil
}

// collectCase returns everything that was seen of a case in a batch. Metrics are the batch's, so that they are not among
// it.
func (r *sender) collectCase(ctx context.Context, p *preparedCase, b *batch) *verdicts.Evidence {
	observations := b.observations[p.at.server]
	e := r.emptyEvidence(p)
	e.Capabilities = slices.DeleteFunc(slices.Clone(e.Capabilities), func(c scenarios.Capability) bool { return c == scenarios.Metrics })
	for _, s := range p.sent {
		o := s.observation
		from, _ := slices.BinarySearch(observations.Seqs, s.from+1)
		to, _ := slices.BinarySearch(observations.Seqs, s.to+1)
		o.Reviews = observations.Reviews[from:to]
		if p.isApart {
			o.Reviews = seq.Filter(o.Reviews, p.isAbout)
		}
		if err := r.hosts[p.at.server].target.AuditEarlier(ctx, &o); err != nil {
			e.Problems = append(e.Problems, verdicts.Problem{Blame: verdicts.BlameHarness, Text: err.Error()})
		}
		e.Steps = append(e.Steps, o)
	}
	return e
}

// sendAlone runs a case by itself.
func (r *sender) sendAlone(ctx context.Context, p *preparedCase, objects bool) (*verdicts.Evidence, error) {
	h, err := r.hostAt(ctx, p.at)
	if err != nil {
		return nil, err
	}
	if !objects {
		return r.sendSteps(ctx, h, p)
	}
	e := h.replay.Replay(ctx, p.scenario, p.suffix)
	return e, errors.Join(ctx.Err(), h.target.Err())
}

// sendSteps sends a scenario whose grants the recorder answers.
func (r *sender) sendSteps(ctx context.Context, h *host, p *preparedCase) (*verdicts.Evidence, error) {
	e := r.emptyEvidence(p)
	defer r.grants.end(p.bound)
	defer hangUp([]*preparedCase{p})
	for i, st := range p.bound.Steps {
		if st.Wait > 0 {
			hangUp([]*preparedCase{p})
			clusters.Pause(ctx, time.Duration(st.Wait)) // who interrupts it interrupts the next request
		}
		if st.Request == nil {
			continue
		}
		r.grants.put(p.bound, i)
		p.sent = append(p.sent, sentRequest{step: i})
		s := &p.sent[len(p.sent)-1]
		err := h.target.Observe(ctx, &s.observation, func() (err error) {
			s.observation, s.hangUp, err = request(ctx, h.front, h.target.Host(), p.bound, i)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	hangUp([]*preparedCase{p})
	for _, s := range p.sent {
		if s.observation.Response.Held != "" {
			if err := h.target.AuditEarlier(ctx, &s.observation); err != nil {
				return nil, err
			}
		}
		e.Steps = append(e.Steps, s.observation)
	}
	return e, nil
}

// request sends the request of a step by the connections of front, which authenticates requestors.
func request(
	ctx context.Context,
	front http.RoundTripper,
	address string,
	bound *scenarios.Scenario,
	step int,
) (o verdicts.Observation, hangUp func() string, err error) {
	r := bound.Steps[step].Request
	q := bound.Requestors[r.By]
	o = verdicts.Observation{Step: step, Request: verdicts.SentRequest{Requestor: q.Username()}, Metrics: []verdicts.MetricSample{}}
	if !r.Hold {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	req, err := replay.NewRequest(ctx, address, r)
	if err != nil {
		return o, nil, err
	}
	rt := transport.NewAuthProxyRoundTripper(q.User, q.UID, q.Groups, q.Extra, server.Tapped(front, func(req *http.Request) {
		replay.Record(&o.Request, req)
	}))
	if imp := r.Impersonate; imp != nil {
		rt = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
			UserName: imp.User, UID: imp.UID, Groups: imp.Groups, Extra: imp.Extra,
		}, rt)
	}
	o.Sent = time.Now()
	if client := (&http.Client{Transport: rt}); r.Hold {
		o.Response, hangUp, err = replay.OpenWatch(client, req)
	} else {
		o.Response, err = replay.RoundTrip(client, req, r.Verb == "watch")
	}
	o.Answered = time.Now()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", req.Method, req.URL.RequestURI(), err)
	}
	return o, hangUp, err
}

// redactEvidence returns evidence as it is recorded, so that the verdict is that of what a reader has.
func redactEvidence(e *verdicts.Evidence) (*verdicts.Evidence, error) {
	return record.RedactedCopy(e, "the evidence of "+e.Scenario+" on "+e.Cell.Name)
}
