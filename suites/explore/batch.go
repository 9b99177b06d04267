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

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/target"
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
// is before once more, under the same names, for a new process. Of beside and flipped see replicas.go.
const (
	expired, reloaded, before, restarted = "-expired", "-reloaded", "-before", "-restarted"
	beside, flipped                      = "-beside", "-flipped"
	specialEvery                         = 40 // batches, for they take seconds
	expiry                               = 10500 * time.Millisecond
	fresh                                = 2 * time.Second // of requests before a reload: those after it find them remembered
)

// specials are what the first batches are made of. Roles are made while the batch before is sent, of which no server may
// be restarted then: so those of flipped and restarted are not before one with roles.
var specials = [][]string{{""}, {expired}, {before, restarted}, {reloaded}, {flipped}}

// specialsOf are what a batch is made of: of the others every second is beside.
func specialsOf(n int) []string {
	if first := n % specialEvery; first < len(specials) {
		return specials[first]
	}
	return []string{[]string{"", beside}[n%2]}
}

type batch struct {
	name, special   string
	walks           []*walk
	cases           []*prepared // the parts of all walks
	pairs, allPairs int
	seen            [2]*target.Batched // by server
}

// expect fills in what the model predicts of a scenario without expectations.
func (l *lane) expect(s *scenarios.Scenario, f scenarios.Facts) (*scenarios.Scenario, []oracle.Played, error) {
	out := cases.Bare(s)
	out.Requires.Gate = f.Gate
	played, err := oracle.Play(out, f, fixtures.FS)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: the model: %w", s.ID, err)
	}
	for _, p := range played {
		out.Steps[p.Step].Expect = p.Prediction.Expect()
	}
	if l.o.tamper != nil {
		l.o.tamper(out)
	}
	return out, played, nil
}

func (l *lane) prepareBatch(b *batch, own []cases.Case) (err error) {
	for _, c := range own {
		s := c.Scenario
		switch last := s.Steps[len(s.Steps)-1]; b.special {
		case expired:
			s.Steps = append(s.Steps, scenarios.Step{Wait: scenarios.Duration(expiry)}, last)
		case reloaded:
			s.Steps = append(s.Steps, last)
		}
		w := l.walk(c, b.special)
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
	return cases.Unique(bound) && !slices.ContainsFunc(scenarios.RenderRBAC(bound), func(o scenarios.RBACObject) bool {
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
	err := l.open(ctx, b, 0)
	for rest, n := b.walks, 0; len(rest) > 0 && err == nil; rest, n = rest[n:], 0 {
		for begun := time.Now(); err == nil && n < len(rest) && (b.special != reloaded || time.Since(begun) < fresh); n++ {
			err = l.sendOn(ctx, rest[n])
		}
		for phase := 1; err == nil && !rest[0].ended(); phase++ {
			err = l.pass(ctx, b, phase)
			for _, w := range rest[:n] {
				if err == nil {
					err = l.sendOn(ctx, w)
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
func (l *lane) sendOn(ctx context.Context, w *walk) error {
	defer l.grants.Store(nil)
	for ; !w.ended(); w.next++ {
		p, i := w.turns[w.next].part, w.turns[w.next].step
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
			s := sent{step: i, from: h.batch.Mark()}
			var err error
			if s.observation, err = l.request(ctx, h, p.bound, i); err != nil {
				return errors.Join(err, h.target.Err())
			}
			s.to = h.batch.Mark()
			p.sent = append(p.sent, s)
		case p.objects:
			if err := p.granted.Change(ctx, st); err != nil {
				return err
			}
		}
	}
	return nil
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
		var err error
		if o.Audit, err = l.hosts[p.at.server].target.Audit(ctx, o.Response.AuditID); err != nil {
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
}

func (l *lane) request(ctx context.Context, h *host, bound *scenarios.Scenario, step int) (verdicts.Observation, error) {
	r := bound.Steps[step].Request
	q := bound.Requestors[r.By]
	o := verdicts.Observation{Step: step, Request: verdicts.SentRequest{Requestor: q.Username()}, Metrics: []verdicts.MetricSample{}}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := replay.NewRequest(ctx, h.target.Host(), r)
	if err != nil {
		return o, err
	}
	rt := transport.NewAuthProxyRoundTripper(q.User, q.UID, q.Groups, q.Extra, target.Tapped(h.front, func(sent *http.Request) {
		replay.Record(&o.Request, sent)
	}))
	if imp := r.Impersonate; imp != nil {
		rt = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
			UserName: imp.User, UID: imp.UID, Groups: imp.Groups, Extra: imp.Extra,
		}, rt)
	}
	o.Sent = time.Now()
	o.Response, err = replay.RoundTrip(&http.Client{Transport: rt}, req, r.Verb == "watch")
	o.Answered = time.Now()
	if err != nil {
		return o, fmt.Errorf("%s %s: %w", req.Method, req.URL.RequestURI(), err)
	}
	return o, nil
}
