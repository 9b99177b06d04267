package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/granular"
	"github.com/authzconf/authzconf/granular/catalogue"
	"github.com/authzconf/authzconf/granular/enforcer"
	"github.com/authzconf/authzconf/granular/model"
)

// parallel is how many attempts are under way at once: they wait more than they work.
const parallel = 8

// Result is what became of an attempt.
type Result struct {
	Scenario string `json:"scenario"`
	Section  string `json:"section"`
	Attempt  string `json:"attempt"`
	// Problems are the differences between what was expected and what was seen; none
	// is a pass.
	Problems []string `json:"problems,omitempty"`
	// Invalid says that it could not be judged.
	Invalid string           `json:"invalid,omitempty"`
	Checks  []enforcer.Check `json:"checks"`
	Fields  int              `json:"fields"`
	Took    time.Duration    `json:"took"`
}

// Passed says whether an attempt was as expected.
func (r *Result) Passed() bool { return len(r.Problems) == 0 && r.Invalid == "" }

// Run runs every attempt of scenarios through an enforcer with the given steps. The
// results are in the order of the scenarios.
func (b *Bench) Run(ctx context.Context, steps enforcer.Steps, scenarios []*catalogue.Scenario) ([]*Result, error) {
	gate, err := b.open(steps)
	if err != nil {
		return nil, err
	}
	defer func() { _ = gate.server.Close() }()
	var results []*Result
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, s := range scenarios {
		for _, a := range s.Attempts {
			r := &Result{Scenario: s.ID, Section: s.Section, Attempt: a.Name, Fields: -1}
			results = append(results, r)
			group.Go(func() error {
				start := time.Now()
				if err := b.attempt(ctx, gate, s, a, r); err != nil {
					r.Invalid = err.Error()
				}
				r.Took = time.Since(start)
				return ctx.Err()
			})
		}
	}
	return results, errors.Join(group.Wait(), b.healthy())
}

// gate is an enforcer that is being served, and what it has decided, by user.
type gate struct {
	server *enforcer.Server

	mu        sync.Mutex
	decisions map[string][]enforcer.Decision
}

func (b *Bench) open(steps enforcer.Steps) (*gate, error) {
	g := &gate{decisions: map[string][]enforcer.Decision{}}
	e, err := enforcer.New(enforcer.Options{Backend: b.Plane.Admin(), Group: executors, Descriptions: b.Descriptions, Steps: steps, Record: g.record})
	if err != nil {
		return nil, err
	}
	g.server, err = enforcer.Serve(e)
	return g, err
}

func (g *gate) record(d enforcer.Decision) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.decisions[d.User] = append(g.decisions[d.User], d)
}

// take is what was decided for a user, which is forgotten.
func (g *gate) take(user string) []enforcer.Decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := g.decisions[user]
	delete(g.decisions, user)
	return out
}

// observation is everything that an attempt has shown.
type observation struct {
	actor    actor
	resource schema.GroupVersionResource
	code     int
	message  string
	decision *enforcer.Decision
	// asked is what the recorder has seen of granular verbs.
	asked         []recorder.Record
	before, after map[string]any
	// chains is what the model predicts; predicted says whether it could.
	chains    []granular.Chain
	predicted bool
}

func (b *Bench) attempt(ctx context.Context, g *gate, s *catalogue.Scenario, a *catalogue.Attempt, r *Result) error {
	wanted := s.Wanted(a)
	object := s.Object
	if object == nil {
		object, _ = wanted.Change.(map[string]any)
	}
	gvr, err := resourceOf(object, wanted.Version)
	if err != nil {
		return err
	}
	who, err := b.actor(ctx, s.ID+"/"+a.Name, gvr, a.Grants, a.Names)
	if err != nil {
		return err
	}
	first, err := resourceOf(object, "")
	if err == nil {
		err = b.restore(ctx, first, s.Object, who.namespace)
	}
	if err != nil {
		return fmt.Errorf("restoring the object: %w", err)
	}
	o := &observation{actor: who, resource: gvr}
	if err := b.observe(ctx, g, wanted, o); err != nil {
		return err
	}
	if o.decision != nil {
		r.Checks, r.Fields = o.decision.Checks, o.decision.Fields
	}
	r.Problems = judge(a, wanted, o)
	return nil
}

func (b *Bench) observe(ctx context.Context, g *gate, wanted *catalogue.Request, o *observation) (err error) {
	admin := b.admin.Resource(o.resource).Namespace(o.actor.namespace)
	if o.before, err = stored(ctx, admin); err != nil {
		return err
	}
	s := &sending{Request: wanted, live: o.before, namespace: o.actor.namespace}
	b.predict(ctx, s, admin, o)

	client, err := dynamic.NewForConfig(g.server.Client(o.actor.token))
	if err != nil {
		return err
	}
	g.take(o.actor.user)
	mark := b.recorder.Mark()
	_, failure := s.send(ctx, client.Resource(o.resource).Namespace(o.actor.namespace), wanted.DryRun)
	o.code = http.StatusOK
	if failure != nil {
		var status apierrors.APIStatus
		if !errors.As(failure, &status) {
			return failure
		}
		o.code, o.message = int(status.Status().Code), status.Status().Message
	}
	for _, record := range b.recorder.Since(mark, o.actor.user) {
		if a := record.Spec.ResourceAttributes; a != nil && strings.HasPrefix(a.Verb, granular.GeneralVerb) {
			o.asked = append(o.asked, record)
		}
	}
	if d := g.take(o.actor.user); len(d) == 1 {
		o.decision = &d[0]
	}
	o.after, err = stored(ctx, admin)
	return err
}

// predict lets the model say which permissions the request needs, from what a dry run
// by the admin, who needs none, makes of the object.
func (b *Bench) predict(ctx context.Context, s *sending, admin dynamic.ResourceInterface, o *observation) {
	result, err := s.send(ctx, admin, true)
	if err != nil {
		return // what the server refuses changes nothing
	}
	root := b.Descriptions.Tree(o.resource.Group, o.resource.Version, o.resource.Resource)
	o.predicted = true
	if o.before != nil {
		o.chains = model.Update(root, o.before, result.Object)
		return
	}
	sent, err := s.body()
	if err != nil || sent == nil {
		sent = &unstructured.Unstructured{}
	}
	o.chains = model.Create(root, sent.Object, result.Object)
}
