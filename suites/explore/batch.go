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
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// prepared is a case for this cell.
type prepared struct {
	number int
	choice cases.Choice
	// scenario has the expectations that the model predicts; bound is the same under unique names.
	scenario, bound *scenarios.Scenario
	suffix          string
	names           map[string]string
	played          []oracle.Played
	// objects says that its grants are RBAC objects, and granted holds them.
	objects bool
	granted *replay.Granted

	next   int // step
	sent   []sent
	result verdicts.Result
}

// What is special about a batch, whose grants are no RBAC objects then: of expired and reloaded each case has its last
// request once more, when what was remembered has expired, or the authorizer chain was changed and changed back; restarted
// is before once more, under the same names, for a new process.
const (
	expired, reloaded, before, restarted = "-expired", "-reloaded", "-before", "-restarted"
	specialEvery                         = 40 // batches, for they take seconds
	expiry                               = 10500 * time.Millisecond
	fresh                                = 2 * time.Second // of requests before a reload: those after it find them remembered
)

// specials are what the first batches are made of, and the last of them is what all others are.
var specials = [][]string{{""}, {expired}, {before, restarted}, {reloaded}, {""}}

// batch is what is sent in one go.
type batch struct {
	name, special   string
	cases           []*prepared
	pairs, allPairs int
	seen            *target.Batched
}

// expect fills in what the model predicts of a scenario without expectations.
func (l *lane) expect(s *scenarios.Scenario) (*scenarios.Scenario, []oracle.Played, error) {
	f := l.asked.Facts
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
		p, s := &prepared{number: c.Number, choice: c.Choice}, c.Scenario
		switch last := s.Steps[len(s.Steps)-1]; b.special {
		case expired:
			s.Steps = append(s.Steps, scenarios.Step{Wait: scenarios.Duration(expiry)}, last)
		case reloaded:
			s.Steps = append(s.Steps, last)
		}
		if p.scenario, p.played, err = l.expect(s); err != nil {
			return err
		}
		p.bind(scenarios.Suffix(l.o.Seed, l.found.Name, strconv.Itoa(c.Number)))
		p.objects = c.Number%rbacShare == 0 && b.special == "" && canBeObjects(p.bound)
		b.cases = append(b.cases, p)
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

// provision creates the RBAC objects of a batch, while another one is sent.
func (l *lane) provision(ctx context.Context, b *batch) error {
	const atOnce = 4 // more would only keep the API server from answering the others
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, p := range b.cases {
		if p.objects {
			group.Go(func() (err error) {
				if p.granted, err = l.replay.Provision(ctx, p.bound); err != nil {
					return fmt.Errorf("case %d: provisioning: %w", p.number, err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// send sends all requests of a batch, one at a time.
func (l *lane) send(ctx context.Context, b *batch) error {
	if b.special == restarted {
		utilnet.CloseIdleConnectionsFor(l.front)
		if err := errors.Join(l.target.Renew(ctx), l.target.Rebase(ctx)); err != nil {
			return err
		}
	}
	open, err := l.target.OpenBatch()
	if err != nil {
		return err
	}
	left := map[string]int{expired: 1, reloaded: 1}[b.special]
	for rest, n := b.cases, 0; len(rest) > 0 && err == nil; rest, n = rest[n:], 0 {
		for begun := time.Now(); err == nil && n < len(rest) && (b.special != reloaded || time.Since(begun) < fresh); n++ {
			err = l.sendCase(ctx, open, rest[n], left)
		}
		if left > 0 && err == nil {
			err = l.pass(ctx, b.special)
		}
		for _, p := range rest[:n] {
			if err == nil {
				err = l.sendCase(ctx, open, p, 0)
			}
		}
	}
	seen, closed := open.Close(ctx)
	b.seen = seen
	return errors.Join(err, closed)
}

// pass is what comes before the last request.
func (l *lane) pass(ctx context.Context, special string) error {
	if special == reloaded {
		return errors.Join(l.target.Reload(ctx, "webhook-last"), l.target.Reload(ctx, l.cell.Chain))
	}
	until, cancel := context.WithTimeout(ctx, expiry)
	defer cancel()
	<-until.Done()
	return ctx.Err()
}

// sendCase plays a case on, until so many steps are left.
func (l *lane) sendCase(ctx context.Context, open *target.Batch, p *prepared, left int) error {
	defer l.grants.Store(nil)
	for ; p.next < len(p.bound.Steps)-left; p.next++ {
		i, st := p.next, &p.bound.Steps[p.next]
		switch {
		case st.Request != nil:
			if !p.objects {
				l.grantsOf(p.bound, i)
			}
			s := sent{step: i, from: open.Mark()}
			var err error
			if s.observation, err = l.request(ctx, p.bound, i); err != nil {
				return errors.Join(err, l.target.Err())
			}
			s.to = open.Mark()
			p.sent = append(p.sent, s)
		case p.objects:
			if err := p.granted.Change(ctx, st); err != nil {
				return err
			}
		}
	}
	return nil
}

// seenOf is everything that was seen of a case in a batch. Metrics are those of
// the batch, so they are not among what the target can show of a case.
func (l *lane) seenOf(ctx context.Context, p *prepared, seen *target.Batched) *verdicts.Evidence {
	ev := l.emptyEvidence(p)
	ev.Capabilities = withoutMetrics(ev.Capabilities)
	for _, s := range p.sent {
		o := s.observation
		from, _ := slices.BinarySearch(seen.Seqs, s.from+1)
		to, _ := slices.BinarySearch(seen.Seqs, s.to+1)
		o.Reviews = seen.Reviews[from:to]
		var err error
		if o.Audit, err = l.target.Audit(ctx, o.Response.AuditID); err != nil {
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
		Scenario: p.scenario.ID, Cell: l.asked.Cell, Capabilities: l.asked.Facts.Capabilities,
		Suffix: p.suffix, Names: p.names, Authorizer: !p.objects,
	}
}

// timeout ends a request that is not answered.
const timeout = 60 * time.Second

// sent is one request that was answered. Its reviews came after the place from, up to the place to.
type sent struct {
	step        int
	observation verdicts.Observation
	from, to    uint64
}

// request sends the request of a step, as any user over one connection.
func (l *lane) request(ctx context.Context, bound *scenarios.Scenario, step int) (verdicts.Observation, error) {
	r := bound.Steps[step].Request
	q := bound.Requestors[r.By]
	o := verdicts.Observation{Step: step, Request: verdicts.SentRequest{Requestor: q.Username()}, Metrics: []verdicts.MetricSample{}}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := replay.NewRequest(ctx, l.target.Host(), r)
	if err != nil {
		return o, err
	}
	rt := transport.NewAuthProxyRoundTripper(q.User, q.UID, q.Groups, q.Extra, target.Tapped(l.front, func(sent *http.Request) {
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
