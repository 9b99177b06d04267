package explore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
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

	sent   []sent
	result verdicts.Result
}

// batch is what is sent in one go.
type batch struct {
	name            string
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

func (l *lane) prepare(c cases.Case) (p *prepared, err error) {
	p = &prepared{number: c.Number, choice: c.Choice}
	if p.scenario, p.played, err = l.expect(c.Scenario); err != nil {
		return nil, err
	}
	p.bind(scenarios.Suffix(l.o.Seed, l.found.Name, strconv.Itoa(c.Number)))
	p.objects = c.Number%rbacShare == 0 && canBeObjects(p.bound)
	return p, nil
}

func (p *prepared) bind(suffix string) {
	p.suffix = suffix
	p.bound, p.names = p.scenario.Bind(suffix)
}

// canBeObjects tells whether the grants of a scenario can be RBAC objects that
// touch no other, and whose changes can be seen.
func canBeObjects(bound *scenarios.Scenario) bool {
	return cases.Unique(bound) && !slices.ContainsFunc(scenarios.RenderRBAC(bound), func(o scenarios.RBACObject) bool { return o.Grant != "" && !o.Exclusive })
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
	open, err := l.target.OpenBatch()
	if err != nil {
		return err
	}
	for _, p := range b.cases {
		if err = l.sendCase(ctx, open, p); err != nil {
			err = fmt.Errorf("case %d: %w", p.number, err)
			break
		}
	}
	seen, closed := open.Close(ctx)
	b.seen = seen
	return errors.Join(err, closed)
}

// sendCase plays a case from its first step to its last.
func (l *lane) sendCase(ctx context.Context, open *target.Batch, p *prepared) error {
	defer l.grants.Store(nil)
	for i := range p.bound.Steps {
		st := &p.bound.Steps[i]
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
