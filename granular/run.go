package granular

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/granular/enforcer"
	"github.com/authzconf/authzconf/granular/model"
	"github.com/authzconf/authzconf/granular/permissions"
	"github.com/authzconf/authzconf/verdicts"
)

// parallel is how many attempts are under way at once: they wait more than they work.
const parallel = 8

// Result is what became of an attempt.
type Result struct {
	Scenario string `json:"scenario"`
	Section  string `json:"section"`
	Attempt  string `json:"attempt"`
	// Problems are the differences between what was expected and what was seen; none is a pass.
	Problems []string `json:"problems,omitempty"`
	// Invalid says that it could not be judged.
	Invalid string           `json:"invalid,omitempty"`
	Checks  []enforcer.Check `json:"checks"`
	Fields  int              `json:"fields"`
	Took    time.Duration    `json:"took"`
}

// Passed says whether an attempt was as expected.
func (r *Result) Passed() bool { return len(r.Problems) == 0 && r.Invalid == "" }

// attempted is an attempt at a scenario with everything that it has shown.
type attempted struct {
	scenario *Scenario
	*Attempt
	result *Result
	observation
}

// Run runs every attempt of scenarios through an enforcer with the given steps, and judges them afterwards by what was
// recorded. The results are in the order of the scenarios.
func (b *Bench) Run(ctx context.Context, steps enforcer.Steps, scenarios []*Scenario) ([]*Result, error) {
	g, err := b.open(ctx, steps)
	if err != nil {
		return nil, err
	}
	defer func() { _ = g.Close() }()
	batch, err := b.target.OpenBatch()
	if err != nil {
		return nil, err
	}
	var all []*attempted
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, s := range scenarios {
		for _, a := range s.Attempts {
			one := &attempted{scenario: s, Attempt: a, result: &Result{Scenario: s.ID, Section: s.Section, Attempt: a.Name, Fields: -1}}
			all = append(all, one)
			group.Go(func() error {
				start := time.Now()
				if err := b.attempt(groupCtx, g, one); err != nil {
					one.result.Invalid = err.Error()
				}
				one.result.Took = time.Since(start)
				return groupCtx.Err()
			})
		}
	}
	err = group.Wait()
	recorded, closeErr := batch.Close(ctx)
	if err := errors.Join(err, closeErr, b.target.Err()); err != nil {
		return nil, err
	}
	return judgeAll(all, recorded.Reviews), nil
}

// judgeAll judges every attempt that could be made by itself and by what the recorder has seen of granular verbs.
func judgeAll(all []*attempted, reviews []verdicts.Review) (results []*Result) {
	asked := map[string][]*authorizationv1.ResourceAttributes{} // by user: each attempt has one of its own
	for _, r := range reviews {
		a := r.Spec.ResourceAttributes
		if r.Point == verdicts.Front && a != nil && strings.HasPrefix(a.Verb, permissions.GeneralVerb) {
			asked[r.Spec.User] = append(asked[r.Spec.User], a)
		}
	}
	for _, one := range all {
		results = append(results, one.result)
		if one.result.Invalid != "" {
			continue
		}
		o := &one.observation
		o.asked = asked[o.actor.user]
		if o.decision != nil {
			one.result.Checks, one.result.Fields = o.decision.Checks, o.decision.Fields
		}
		one.result.Problems = judge(one.Attempt, one.scenario.Wanted(one.Attempt), o)
	}
	return results
}

// gate is an enforcer that is being served, and what it has decided, by user.
type gate struct {
	*target.Loopback

	mu        sync.Mutex
	decisions map[string][]enforcer.Decision
}

func (b *Bench) open(ctx context.Context, steps enforcer.Steps) (*gate, error) {
	g := &gate{decisions: map[string][]enforcer.Decision{}}
	e, err := enforcer.New(enforcer.Options{Backend: b.target.Admin(), Group: executors, Descriptions: b.descriptions, Steps: steps, Record: g.record})
	if err != nil {
		return nil, err
	}
	g.Loopback, err = target.ServeLoopback(ctx, e, nil)
	return g, err
}

// config is a client configuration with a token.
func (g *gate) config(token string) *rest.Config {
	return &rest.Config{Host: g.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: g.CA}, QPS: -1}
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
	asked         []*authorizationv1.ResourceAttributes
	before, after map[string]any
	// chains is what the model predicts; predicted says whether it could.
	chains    []permissions.Chain
	predicted bool
}

func (b *Bench) attempt(ctx context.Context, g *gate, one *attempted) (err error) {
	s, wanted, o := one.scenario, one.scenario.Wanted(one.Attempt), &one.observation
	object := s.Object
	if object == nil {
		object, _ = wanted.Change.(map[string]any)
	}
	if o.resource, err = resourceOf(object, wanted.Version); err != nil {
		return err
	}
	if o.actor, err = b.actor(ctx, s.ID+"/"+one.Name, o.resource, one.Grants, one.Names); err != nil {
		return err
	}
	first, err := resourceOf(object, "")
	if err == nil {
		err = b.restore(ctx, first, s.Object, o.actor.namespace)
	}
	if err != nil {
		return fmt.Errorf("restoring the object: %w", err)
	}
	return b.observe(ctx, g, wanted, o)
}

func (b *Bench) observe(ctx context.Context, g *gate, wanted *Request, o *observation) (err error) {
	admin := b.admin.Resource(o.resource).Namespace(o.actor.namespace)
	if o.before, err = stored(ctx, admin); err != nil {
		return err
	}
	s := &sending{Request: wanted, live: o.before, namespace: o.actor.namespace}
	b.predict(ctx, s, admin, o)

	client, err := dynamic.NewForConfig(g.config(o.actor.token))
	if err != nil {
		return err
	}
	g.take(o.actor.user)
	_, failure := s.send(ctx, client.Resource(o.resource).Namespace(o.actor.namespace), wanted.DryRun)
	o.code = http.StatusOK
	if failure != nil {
		var status apierrors.APIStatus
		if !errors.As(failure, &status) {
			return failure
		}
		o.code, o.message = int(status.Status().Code), status.Status().Message
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
	root := b.descriptions.Tree(o.resource.Group, o.resource.Version, o.resource.Resource)
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
