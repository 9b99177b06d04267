// Package replay runs one scenario on one target and brings back the evidence. Judging is for package verdicts.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

type run struct {
	target *server.Server
	admin  *provisioner
	bound  *scenarios.Scenario
	suffix string
	// isGrantedElsewhere says that another authorizer than RBAC holds the grants.
	isGrantedElsewhere bool
	tokens             map[string]string // by requestor alias
	// certificates are those of requestors with one of their own, by alias.
	certificates map[string]certificate
	grants       map[string][]scenarios.RBACObject
	shells       map[string]*shell // by requestor alias
	held         []openWatch
}

// Replayer replays scenarios on one target. It may be used from several goroutines.
type Replayer struct {
	target *server.Server
	admin  *provisioner
}

// New returns a replayer for a target. It is an error if that is another one than was asked for.
func New(t *server.Server) (*Replayer, error) {
	if m := t.Witness.Mismatches; len(m) > 0 {
		return nil, fmt.Errorf("the target is not what was asked for: %s", m[0])
	}
	config := t.Admin()
	if config.ContentType == "" { // where objects are labelled on their way it is JSON
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.AcceptContentTypes = config.ContentType + ",application/json"
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	return &Replayer{target: t, admin: &provisioner{client: client, mapper: mapper, accounts: t.LacksAccounts()}}, nil
}

// Admin is the client by which objects are made.
func (r *Replayer) Admin() kubernetes.Interface { return r.admin.client }

// Replay provisions what scenario s needs under names made unique by suffix, sends its requests, and returns everything
// that was seen. It does not fail: what goes wrong outside the API server's answers is a Problem in the evidence.
func (r *Replayer) Replay(ctx context.Context, s *scenarios.Scenario, suffix string) *verdicts.Evidence {
	return r.Prepare(ctx, s, suffix).Send(ctx)
}

// ReplayAuthorized is Replay where another authorizer holds the grants, under the names that suffix makes: without roles.
func (r *Replayer) ReplayAuthorized(ctx context.Context, s *scenarios.Scenario, suffix string) *verdicts.Evidence {
	return r.prepareFrom(ctx, s, suffix, source{authorizer: true}).Send(ctx)
}

// PreparedScenario is a scenario that has on the target what its requests need, or whose evidence says why it has not.
type PreparedScenario struct {
	replayer *Replayer
	evidence *verdicts.Evidence
	run      *run
	// isKept is set if what the scenario has was made for an earlier one.
	isKept bool
}

// Prepare provisions what scenario s needs under names made unique by suffix, and sends nothing. Names are unique, so that
// several scenarios can be prepared at once, and also while the requests of another are sent. Send has to be called.
func (r *Replayer) Prepare(ctx context.Context, s *scenarios.Scenario, suffix string) *PreparedScenario {
	return r.prepareFrom(ctx, s, suffix, source{})
}

// source is where what a scenario needs comes from, if it is not made for it.
type source struct {
	// kept has everything already.
	kept *KeptSetup
	// authorizer is set if another authorizer than RBAC holds the grants.
	authorizer bool
}

func (r *Replayer) prepareFrom(ctx context.Context, s *scenarios.Scenario, suffix string, from source) *PreparedScenario {
	began := time.Now()
	nodes, nodesErr := r.admin.realNodes(ctx, s)
	bound, names := s.BindOn(suffix, nodes)
	p := &PreparedScenario{replayer: r, evidence: &verdicts.Evidence{
		Scenario: s.ID, Digest: s.Digest, Cell: r.target.Cell,
		Capabilities: r.target.Facts.Capabilities, Suffix: suffix, Names: names, Nodes: nodes, Authorizer: from.authorizer,
	}}
	release := r.target.UseBesideOthers()
	defer release()
	defer func() { p.evidence.ProvisionSeconds = time.Since(began).Seconds() }()
	if err := errors.Join(r.target.Err(), ctx.Err(), nodesErr); err != nil {
		p.evidence.Problems = append(p.evidence.Problems, problem(r.target, err))
		return p
	}
	if r.target.Substitutes() {
		accounts, why := bound.Substitute()
		if why != "" {
			p.evidence.Problems = append(p.evidence.Problems, verdicts.Problem{Blame: verdicts.BlameHarness, Text: why})
			return p
		}
		bound, p.evidence.Substitutes = accounts, true
	}
	p.run = &run{
		target:             r.target,
		admin:              r.admin,
		bound:              bound,
		suffix:             suffix,
		isGrantedElsewhere: from.authorizer,
		shells:             map[string]*shell{},
	}
	if from.kept != nil {
		p.isKept = true
		p.run.tokens, p.run.certificates = from.kept.tokens, from.kept.certificates
		return p
	}
	if err := p.run.provision(ctx); err != nil {
		p.run.broke(p.evidence, 0, fmt.Errorf("provisioning: %w", err))
	}
	return p
}

// Send sends the requests of the scenario, removes its pods, and returns everything that was seen.
func (p *PreparedScenario) Send(ctx context.Context) *verdicts.Evidence {
	e := p.evidence
	e.Started = time.Now()
	defer func() { e.Ended = time.Now() }()
	if p.run == nil {
		return e
	}
	defer p.run.closeShells()
	defer p.replayer.admin.removePods(context.WithoutCancel(ctx), p.run.bound)
	isBroken := len(e.Problems) > 0 || e.UnappliedGrant != nil
	if isBroken {
		return e
	}
	release := p.run.target.Use(p.run.bound)
	defer release()
	if err := p.checkBeforeSending(ctx); err != nil {
		e.Problems = append(e.Problems, problem(p.run.target, err))
		return e
	}
	e.Started = time.Now()
	p.run.steps(ctx, e)
	return e
}

// checkBeforeSending returns why the requests cannot be sent now. It gives tokens the times that the scenario states.
func (p *PreparedScenario) checkBeforeSending(ctx context.Context) error {
	if err := errors.Join(p.run.target.Err(), ctx.Err()); err != nil || p.isKept {
		return err
	}
	return p.run.dateTokens()
}

func (run *run) steps(ctx context.Context, e *verdicts.Evidence) {
	last := time.Now()
	defer run.hangUp(ctx, e)
	for i := 0; i < len(run.bound.Steps); {
		steps := run.bound.ConcurrentSteps(i)
		if steps[0].Wait > 0 {
			run.hangUp(ctx, e)
		}
		observations, err := run.step(ctx, i, steps, last)
		if err != nil {
			run.broke(e, i, err)
			return
		}
		for _, o := range observations {
			e.Steps = append(e.Steps, o)
			last = o.Answered
		}
		i += len(steps)
	}
}

// openWatch is a watch of a step that is kept open.
type openWatch struct {
	step   int
	hangUp func() string
}

// hangUp ends the watches that were kept open, and adds what there is to see only then.
func (run *run) hangUp(ctx context.Context, e *verdicts.Evidence) {
	list := run.held
	run.held = nil
	for _, h := range list {
		for i := range e.Steps {
			o := &e.Steps[i]
			if o.Step != h.step {
				continue
			}
			o.Response.Held = h.hangUp()
			if err := run.target.AuditEarlier(ctx, o); err != nil {
				run.broke(e, h.step, err)
			}
		}
	}
}

// broke notes why a step could not be carried out. That a live API server does not heed its own roles is evidence.
func (run *run) broke(e *verdicts.Evidence, step int, err error) {
	if u, ok := errors.AsType[*unappliedGrantError](err); ok && run.target.Err() == nil {
		e.UnappliedGrant, u.Step = &u.UnappliedGrant, step
		return
	}
	e.Problems = append(e.Problems, problem(run.target, err))
}

// How long, and how often, a request is sent that an API server has to become ready for.
const (
	awaitTimeout = 15 * time.Second
	awaitPoll    = 20 * time.Millisecond
)

// deathGrace is how long it may take until a process whose connections broke is known to have ended.
const deathGrace = 500 * time.Millisecond

// problem blames the environment for what died by itself, the harness for the rest.
func problem(t *server.Server, err error) verdicts.Problem {
	if !errors.Is(err, context.Canceled) {
		for deadline := time.Now().Add(deathGrace); t.Err() == nil && time.Now().Before(deadline); {
			time.Sleep(deathGrace / 50)
		}
	}
	if died := t.Err(); died != nil {
		if !errors.Is(err, died) {
			err = fmt.Errorf("%w: %w", died, err)
		}
		return verdicts.Problem{Blame: verdicts.BlameEnvironment, Text: err.Error()}
	}
	if errors.Is(err, context.Canceled) {
		return verdicts.Problem{Blame: verdicts.BlameEnvironment, Text: "interrupted: " + err.Error()}
	}
	p := verdicts.Problem{Blame: verdicts.BlameHarness, Text: err.Error()}
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok {
		p.Answer = &answer.ErrStatus
	}
	return p
}

// step carries out a step with those beside it. last is when the previous request was answered.
func (run *run) step(ctx context.Context, i int, steps []scenarios.Step, last time.Time) ([]verdicts.Observation, error) {
	st := &steps[0]
	switch {
	case st.Request != nil:
		var observations []verdicts.Observation
		var failed error
		_ = wait.PollUntilContextTimeout(ctx, awaitPoll, awaitTimeout, true, func(context.Context) (bool, error) {
			if observations, failed = run.send(ctx, i, steps); failed != nil {
				return false, failed
			}
			return !st.Await || observations[0].Response.Code == st.Expect.Code, nil
		})
		return observations, cmp.Or(failed, ctx.Err())
	case st.Kubectl != nil:
		o, err := run.kubectl(ctx, i, st.Kubectl)
		return []verdicts.Observation{o}, err
	case st.Wait > 0:
		return nil, run.wait(ctx, last.Add(time.Duration(st.Wait)))
	case st.Grant != "":
		return nil, run.admin.grant(ctx, run.grants[st.Grant])
	case st.Reload != "":
		return nil, run.target.Reload(ctx, st.Reload)
	default:
		return nil, run.admin.revoke(ctx, run.grants[st.Revoke])
	}
}

// breakCheck is how often a waiting scenario looks whether its target is well.
const breakCheck = 200 * time.Millisecond

func (run *run) wait(ctx context.Context, until time.Time) error {
	err := wait.PollUntilContextTimeout(ctx, breakCheck, time.Until(until), true, func(context.Context) (bool, error) {
		return false, run.target.Err()
	})
	if wait.Interrupted(err) {
		return ctx.Err() // else the time has come
	}
	return err
}

// ProvisionedScenario is a bound scenario whose grants are in force as RBAC.
type ProvisionedScenario struct{ run *run }

// Provision brings a bound scenario's grants into force, but those of its steps, without sending anything.
func (r *Replayer) Provision(ctx context.Context, bound *scenarios.Scenario) (*ProvisionedScenario, error) {
	run := &run{target: r.target, admin: r.admin, bound: bound, suffix: bound.Suffix}
	if err := run.provision(ctx); err != nil {
		return &ProvisionedScenario{run}, err
	}
	return &ProvisionedScenario{run}, run.dateTokens()
}

// Change carries out a step that grants or revokes.
func (g *ProvisionedScenario) Change(ctx context.Context, st *scenarios.Step) error {
	if st.Grant != "" {
		return g.run.admin.grant(ctx, g.run.grants[st.Grant])
	}
	return g.run.admin.revoke(ctx, g.run.grants[st.Revoke])
}

// Token is the token of a requestor that is a service account, by its alias.
func (g *ProvisionedScenario) Token(alias string) string { return g.run.tokens[alias] }

// Grant makes the roles of a bound scenario's grants and waits until they are in force, and makes nothing else.
func (r *Replayer) Grant(ctx context.Context, bound *scenarios.Scenario) error {
	if err := r.admin.places(ctx, placesOf(&scenarios.Scenario{Grants: bound.Grants})); err != nil {
		return err
	}
	return r.admin.grant(ctx, scenarios.RenderRBAC(bound))
}

// KeptSetup is what the scenarios of one setup have on a cluster, used again after the API server was replaced.
type KeptSetup struct {
	// Suffix made the setup's names unique.
	Suffix string

	tokens map[string]string // by requestor alias
	paths  []string          // of the objects
	// certificates are those of requestors with one of their own, by alias.
	certificates map[string]certificate
}

// Object is an API object as the API server writes it.
type Object struct {
	// Path is where it was read, for example /apis/rbac.authorization.k8s.io/v1/clusterroles/a.
	Path string
	Body []byte // the JSON, byte for byte
}

// Keep makes everything that a scenario with a setup needs, without sending its requests.
func (r *Replayer) Keep(ctx context.Context, s *scenarios.Scenario, suffix string) (*KeptSetup, error) {
	bound, _ := s.Bind(suffix)
	run := &run{target: r.target, admin: r.admin, bound: bound, suffix: suffix}
	if err := run.provision(ctx); err != nil {
		return nil, fmt.Errorf("making the setup %s: %w", s.Setup, err)
	}
	if err := run.dateTokens(); err != nil {
		return nil, fmt.Errorf("making the setup %s: %w", s.Setup, err)
	}
	return &KeptSetup{Suffix: suffix, tokens: run.tokens, certificates: run.certificates, paths: KeptPaths(bound)}, nil
}

// KeptPaths are the objects that Keep makes of a scenario whose names were made unique, in the order of Read.
func KeptPaths(bound *scenarios.Scenario) []string {
	where := placesOf(bound)
	paths := slices.Concat(slices.Sorted(maps.Keys(where.outside)), slices.Sorted(maps.Keys(where.within)))
	for _, o := range scenarios.RenderRBAC(bound) {
		paths = append(paths, o.Paths()...)
	}
	for _, m := range slices.Concat(bound.Manifests, bound.Objects) {
		u := &unstructured.Unstructured{Object: m}
		resource, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
		at := scenarios.Request{
			APIGroup:  resource.Group,
			Version:   resource.Version,
			Resource:  resource.Resource,
			Name:      u.GetName(),
			Namespace: u.GetNamespace(),
		}
		if strings.HasPrefix(u.GetKind(), "Cluster") { // the documents give some of these a namespace
			at.Namespace = ""
		}
		paths = append(paths, at.URI())
	}
	return paths
}

// ReplayKept is Replay with what Keep made, also on another API server than it was made on: with its tokens and objects.
func (r *Replayer) ReplayKept(ctx context.Context, s *scenarios.Scenario, kept *KeptSetup) *verdicts.Evidence {
	return r.prepareFrom(ctx, s, kept.Suffix, source{kept: kept}).Send(ctx)
}

// Send sends the only request of a scenario with what its setup has, over a connection of its own, to host, which
// may be a balancer. Nothing but the answer is looked at.
func (r *Replayer) Send(ctx context.Context, s *scenarios.Scenario, kept *KeptSetup, host string) (o verdicts.Observation, err error) {
	bound, _ := s.Bind(kept.Suffix)
	run := &run{target: r.target, admin: r.admin, bound: bound, suffix: kept.Suffix, tokens: kept.tokens, certificates: kept.certificates}
	client, req, err := run.prepare(ctx, host, bound.Steps[0].Request, &o.Request)
	if err != nil {
		return o, err
	}
	req.Close = true
	o.Sent = time.Now()
	o.Response, err = RoundTrip(client, req, false)
	o.Answered = time.Now()
	return o, err
}

// Read reads the objects of a setup, as they are written by the API server that runs now.
func (r *Replayer) Read(ctx context.Context, kept *KeptSetup) (out []Object, _ error) {
	for _, path := range kept.paths {
		body, err := r.admin.client.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("GET %s: %w", path, err)
		}
		out = append(out, Object{Path: path, Body: body})
	}
	return out, nil
}
