package explore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/clusters/balancer"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// prepared is a case for this cell.
type prepared struct {
	number int
	choice cases.Choice
	// scenario has the expectations that the model predicts; bound is the same under unique names.
	scenario, bound *scenarios.Scenario
	at              place // where it is sent, and asked what that is to be
	asked           reports.Found
	suffix          string
	names           map[string]string
	played          []oracle.Played
	// objects says that its grants are RBAC objects, and granted holds them.
	objects bool
	granted *replay.Granted

	sent   []sent
	result verdicts.Result
}

// What is special about a batch, whose grants are no RBAC objects then: of expired and reloaded each case has its last
// request once more, when what was remembered has expired, or the authorizer chain was changed and changed back; restarted
// is before once more, under the same names, for a new process. Of edged, beside, balanced and flipped see replicas.go.
const (
	expired, reloaded, before, restarted = "-expired", "-reloaded", "-before", "-restarted"
	edged, beside, balanced, flipped     = "-edged", "-beside", "-balanced", "-flipped"
	specialEvery                         = 40 // batches, for they take seconds
	expiry                               = remembered + 500*time.Millisecond
	fresh                                = 2 * time.Second // of requests before a reload: those after it find them remembered
)

// specials are what the first batches are made of. Roles are made while the batch before is sent, of which no server may
// be restarted then: so those of flipped and restarted are not before one with roles.
var specials = [][]string{{""}, {expired}, {before, restarted}, {reloaded}, {flipped}, {edged}}

// specialsOf are what a batch is made of: of the others every second is beside, or balanced.
func specialsOf(n int) []string {
	if first := n % specialEvery; first < len(specials) {
		return specials[first]
	}
	return []string{[]string{"", beside, "", balanced}[n%4]}
}

type batch struct {
	name, special   string
	walks           []*walk
	cases           []*prepared // the parts of all walks
	pairs, allPairs int
	seen            [2]*server.Batched // by server
	// balancer is that of balanced, which has had so many turns; watched says that the request before was a watch.
	balancer *balancer.Balancer
	turns    int
	watched  bool
}

// expect fills in what the model predicts of a scenario without expectations.
func (l *lane) expect(s *scenarios.Scenario, f scenarios.Facts) (*scenarios.Scenario, []oracle.Played, error) {
	out := cases.WithoutExpectations(s)
	out.Requires.Gate = f.Gate
	played, err := oracle.Play(out, f, fixtures.FS)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: the model: %w", s.ID, err)
	}
	l.state(out, played)
	return out, played, nil
}

func (l *lane) state(s *scenarios.Scenario, played []oracle.Played) {
	for _, p := range played {
		s.Steps[p.Step].Expect = p.Prediction.Expect()
	}
	if l.o.tamper != nil {
		l.o.tamper(s)
	}
}

func (l *lane) prepareBatch(b *batch, own []cases.Case) (err error) {
	for _, c := range own {
		s := c.Scenario
		switch last := s.Steps[len(s.Steps)-1]; b.special {
		case expired:
			s.Steps = append(s.Steps, scenarios.Step{Wait: scenarios.Duration(expiry)}, last)
		case edged:
			for range edges {
				s.Steps = append(s.Steps, scenarios.Step{Wait: scenarios.Duration(remembered)}, last)
			}
		case reloaded:
			s.Steps = append(s.Steps, last)
		}
		w := l.walk(c, b)
		for _, p := range w.parts {
			p.number, p.choice = c.Number, c.Choice
			if p.scenario, p.played, err = l.expect(p.scenario, p.asked.Facts); err != nil {
				return err
			}
			p.bind(scenarios.Suffix(l.o.Seed, l.found.Name, strconv.Itoa(c.Number)))
			p.objects = c.Number%rbacShare == 0 && b.special == "" && canBeObjects(p.bound)
		}
		b.walks, b.cases = append(b.walks, w), append(b.cases, w.parts...)
	}
	return nil
}

func (p *prepared) bind(suffix string) {
	p.suffix = suffix
	p.bound, p.names = p.scenario.Bind(suffix)
}

// canBeObjects tells whether the grants of a scenario can be RBAC objects that
// touch no other, and whose changes can be seen: not where the rule that shows them is on an extra key without a name, which
// no resource of a rule matches.
func canBeObjects(bound *scenarios.Scenario) bool {
	return cases.IsUnique(bound) && !slices.ContainsFunc(scenarios.RenderRBAC(bound), func(o scenarios.RBACObject) bool {
		shown := o.Grants[0].Resources
		return o.Grant != "" && !o.Exclusive || len(shown) > 0 && strings.HasSuffix(shown[0], "/")
	})
}

func (l *lane) provision(ctx context.Context, b *batch) error {
	const atOnce = 4 // more would only keep the API server from answering the others
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, p := range b.cases {
		if p.objects {
			group.Go(func() (err error) {
				if p.granted, err = l.hosts[0].replay.Provision(ctx, p.bound); err != nil {
					return fmt.Errorf("case %d: provisioning: %w", p.number, err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

func (l *lane) send(ctx context.Context, b *batch) error {
	if b.special == restarted {
		h := l.hosts[0]
		utilnet.CloseIdleConnectionsFor(h.front)
		if err := errors.Join(h.target.Renew(ctx), h.target.Rebase(ctx)); err != nil {
			return err
		}
	}
	rest, err := b.walks, l.open(ctx, b, 0)
	if err == nil && b.special == edged {
		rest, err = nil, l.sendEdges(ctx, b)
	}
	for n := 0; len(rest) > 0 && err == nil; rest, n = rest[n:], 0 {
		for begun := time.Now(); err == nil && n < len(rest) && (b.special != reloaded || time.Since(begun) < fresh); n++ {
			err = l.sendOn(ctx, b, rest[n])
		}
		for phase := 1; err == nil && !rest[0].ended(); phase++ {
			err = l.pass(ctx, b, phase)
			for _, w := range rest[:n] {
				if err == nil {
					err = l.sendOn(ctx, b, w)
				}
			}
		}
	}
	return errors.Join(err, l.close(ctx, b, 0), l.close(ctx, b, 1))
}

// pass is what comes between two phases of a batch.
func (l *lane) pass(ctx context.Context, b *batch, phase int) error {
	until, cancel := context.WithTimeout(ctx, expiry)
	defer cancel()
	switch main := l.hosts[0].target; b.special {
	case reloaded:
		return errors.Join(main.Reload(ctx, "webhook-last"), main.Reload(ctx, l.cell.Chain))
	case flipped:
		if err := errors.Join(l.close(ctx, b, 1), l.open(ctx, b, phase)); err != nil {
			return err
		}
	}
	<-until.Done()
	return ctx.Err()
}

// sendOn plays a walk on, to where something else comes first.
func (l *lane) sendOn(ctx context.Context, b *batch, w *walk) error {
	defer l.grants.Store(nil)
	defer hangUp(w.parts)
	for ; !w.ended(); w.next++ {
		at := w.turns[w.next]
		p, i := at.part, at.step
		if p == nil {
			w.next++
			return nil
		}
		h := l.hosts[p.at.server]
		switch st := &p.bound.Steps[i]; {
		case st.Request != nil:
			if !p.objects {
				l.grantsOf(p.bound, i)
			}
			address := h.target.Host()
			if b.balancer != nil {
				address = "https://" + b.balancer.Addr()
			}
			if at.fresh {
				utilnet.CloseIdleConnectionsFor(h.front)
			}
			s := sent{step: i, from: h.batch.Mark()}
			var err error
			if s.observation, s.hangUp, err = l.request(ctx, h, address, p.bound, i); err != nil {
				return errors.Join(err, h.target.Err())
			}
			s.to = h.batch.Mark()
			p.sent = append(p.sent, s)
			if l.o.Sent != nil {
				l.o.Sent(p.number, p.choice)
			}
		case p.objects:
			if err := p.granted.Change(ctx, st); err != nil {
				return err
			}
		}
	}
	return nil
}

// hangUp ends the watches that were kept open.
func hangUp(parts []*prepared) {
	for _, p := range parts {
		for i := range p.sent {
			if s := &p.sent[i]; s.hangUp != nil {
				s.observation.Response.Held, s.hangUp = s.hangUp(), nil
			}
		}
	}
}

// seenOf is everything that was seen of a case in a batch. Metrics are the batch's, so that they are not among it.
func (l *lane) seenOf(ctx context.Context, p *prepared, b *batch) *verdicts.Evidence {
	seen := b.seen[p.at.server]
	ev := l.emptyEvidence(p)
	ev.Capabilities = withoutMetrics(ev.Capabilities)
	for _, s := range p.sent {
		o := s.observation
		from, _ := slices.BinarySearch(seen.Seqs, s.from+1)
		to, _ := slices.BinarySearch(seen.Seqs, s.to+1)
		o.Reviews = seen.Reviews[from:to]
		if err := l.hosts[p.at.server].target.AuditEarlier(ctx, &o); err != nil {
			ev.Problems = append(ev.Problems, verdicts.Problem{Blame: verdicts.BlameHarness, Text: err.Error()})
		}
		ev.Steps = append(ev.Steps, o)
	}
	return ev
}

func withoutMetrics(list []scenarios.Capability) []scenarios.Capability {
	return slices.DeleteFunc(slices.Clone(list), func(c scenarios.Capability) bool { return c == scenarios.Metrics })
}

func (l *lane) emptyEvidence(p *prepared) *verdicts.Evidence {
	return &verdicts.Evidence{
		Scenario: p.scenario.ID, Cell: p.asked.Cell, Capabilities: p.asked.Facts.Capabilities,
		Suffix: p.suffix, Names: p.names, Authorizer: !p.objects,
	}
}

const timeout = 60 * time.Second

// sent is one request that was answered. Its reviews came after the place from, up to the place to.
type sent struct {
	step        int
	observation verdicts.Observation
	from, to    uint64
	hangUp      func() string // set while it is a watch that is kept open
}

func (l *lane) request(ctx context.Context, h *host, address string, bound *scenarios.Scenario, step int) (o verdicts.Observation, hangUp func() string, err error) {
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
	rt := transport.NewAuthProxyRoundTripper(q.User, q.UID, q.Groups, q.Extra, server.Tapped(h.front, func(sent *http.Request) {
		replay.Record(&o.Request, sent)
	}))
	if imp := r.Impersonate; imp != nil {
		rt = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
			UserName: imp.User, UID: imp.UID, Groups: imp.Groups, Extra: imp.Extra,
		}, rt)
	}
	o.Sent = time.Now()
	if client := (&http.Client{Transport: rt}); r.Hold {
		o.Response, hangUp, err = replay.Hold(client, req)
	} else {
		o.Response, err = replay.RoundTrip(client, req, r.Verb == "watch")
	}
	o.Answered = time.Now()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", req.Method, req.URL.RequestURI(), err)
	}
	return o, hangUp, err
}
