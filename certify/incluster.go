package certify

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// ClusterOptions say in what kind of cluster a webhook is certified.
type ClusterOptions struct {
	// Release and Binaries are those of the API server.
	Release  local.Release
	Binaries *local.Binaries
	// Load gives the authorizer another policy. It is nil if the authorizer takes none, and then nothing is said about
	// revocation.
	Load func(context.Context, *policy.Policy) error
	// OwnCache is how long the authorizer itself may remember its decisions, according to its vendor.
	OwnCache time.Duration

	// gate is the state of the gate with which the API server is really started, for a test in which that is
	// unexpected. If it is empty, the expected one is used.
	gate scenarios.Gate
	// isSelected reports whether a check of the chain is carried out, for a test. If it leaves any out, the level is not
	// granted.
	isSelected func(clusterCheck) bool
}

// These are the names of the webhooks in a cluster.
const (
	testedWebhook  = "tested"
	controlWebhook = "reference"
)

// cluster is an API server with a webhook that can be cut off from it.
type cluster struct {
	o        ClusterOptions
	plan     *Plan // the plan whose policy the webhook has
	webhook  *Webhook
	name     string // of the webhook in the chain
	target   *server.Server
	replayer *replay.Replayer
	relays   map[string]relay
	control  *cluster // the same API server with the reference authorizer
	stops    []func() error
	reloads  int // how often the chain was reloaded
	answers  []Answer
}

// startCluster starts an API server that knows the webhook and the reference. Neither is in its chain yet.
func startCluster(ctx context.Context, b *Plan, w *Webhook, o ClusterOptions) (_ *cluster, err error) {
	c := &cluster{o: o, plan: b, webhook: w, name: testedWebhook, relays: map[string]relay{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	// The reference has the policy of another seed, so that its scenarios are new to the API server.
	other, err := makePlan(b.scenarios, b.Policy.Seed+1)
	if err != nil {
		return nil, err
	}
	holder := policy.NewHolder(other.Policy)
	ref, stop, err := Serve(reference.Handler(holder.Decide))
	if err != nil {
		return nil, err
	}
	c.stops = append(c.stops, stop)
	webhooks := map[string][]byte{}
	for name, w := range map[string]*Webhook{testedWebhook: w, controlWebhook: ref} {
		var r relay
		if r, webhooks[name], err = w.startRelay(); err != nil {
			return nil, err
		}
		c.relays[name] = r
		c.stops = append(c.stops, r.Close)
	}
	if err := c.start(ctx, webhooks); err != nil {
		return nil, err
	}
	other.setCell(b.cell)
	control := *c
	control.plan, control.webhook, control.name, control.stops, control.answers = other, ref, controlWebhook, nil, nil
	control.o.OwnCache, control.o.Load = 0, func(_ context.Context, p *policy.Policy) error { holder.Store(p); return nil }
	c.control = &control
	for _, c := range []*cluster{c, c.control} {
		if err := c.createRole(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// cellFor returns the cell that a release is tested as.
func cellFor(release local.Release) verdicts.Cell {
	gate := scenarios.GateDefault
	if server.HasGate(release.Minor) {
		gate = scenarios.GateOn
	}
	return verdicts.Cell{Name: release.Minor + "-certify", Provider: server.Local, Kubernetes: release.Version, Gate: gate}
}

// start starts the API server, which knows the given webhooks by their kubeconfigs.
func (c *cluster) start(ctx context.Context, webhooks map[string][]byte) (err error) {
	release := cmp.Or(c.o.Release, local.Newest())
	cell := cellFor(release)
	c.plan.setCell(cell)
	cell.Gate = cmp.Or(c.o.gate, cell.Gate)
	c.target, err = server.Start(ctx, server.Options{Cell: cell, Release: release, Binaries: c.o.Binaries, Webhooks: webhooks})
	if err != nil {
		return err
	}
	c.stops = append(c.stops, c.target.Stop)
	c.replayer, err = replay.New(c.target)
	return err
}

// createRole creates the only role that RBAC has in these checks. It allows two users to read config maps of one
// namespace: one whom the authorizer under test does not know, and one whom it does.
func (c *cluster) createRole(ctx context.Context) error {
	s := &scenarios.Scenario{ID: "certify", Suffix: c.plan.roleUser()}
	for _, user := range []string{c.plan.roleUser(), c.plan.Policy.Identities.Reader} {
		s.Grants = append(s.Grants, scenarios.Grant{
			Subject: scenarios.Subject{User: user}, Verbs: []string{"get"}, APIGroups: []string{""},
			Resources: []string{"configmaps"}, Namespace: c.plan.Policy.Identities.Namespace,
		})
	}
	return c.replayer.Grant(ctx, s)
}

// stop stops everything that was started, in the reverse order.
func (c *cluster) stop() error {
	var err error
	for _, stop := range slices.Backward(c.stops) {
		err = errors.Join(err, stop())
	}
	c.stops = nil
	return err
}

// authorizerAt returns the configuration of the webhook in a place. Its timeout differs a little each time, because an
// API server ignores a chain that it has already, and keeps what it remembers of it.
func (c *cluster) authorizerAt(p chainPlace) server.Authorizer {
	c.reloads++
	return server.Authorizer{
		Webhook: c.name, Position: p.position, Deny: p.deny, Timeout: webhookTimeout + time.Duration(c.reloads)*time.Millisecond,
		AuthorizedTTL: authorizedTTL, UnauthorizedTTL: unauthorizedTTL,
	}
}

// runChecks carries out the selected checks of a plan, one place after the other.
func (c *cluster) runChecks(ctx context.Context, plan []clusterCheck, progress func(string, int)) error {
	for _, p := range chainPlaces() {
		checks := seq.Filter(plan, func(check clusterCheck) bool { return check.Place == p })
		if len(checks) == 0 {
			continue
		}
		progress(inCluster+" "+p.String(), len(checks))
		if err := c.target.ReloadAuthorizer(ctx, c.authorizerAt(p)); err != nil {
			return err
		}
		if err := c.runChecksAt(ctx, checks); err != nil {
			return err
		}
	}
	return nil
}

// runChecksAt carries out the checks of one place. Scenarios come first, and then the questions, phase by phase.
func (c *cluster) runChecksAt(ctx context.Context, checks []clusterCheck) error {
	for _, check := range checks {
		if check.Scenario != nil {
			c.answers = append(c.answers, Answer{Check: inCluster, Vector: check.ID, ClusterObservation: &ClusterObservation{
				Scenario: c.replayer.ReplayAuthorized(ctx, check.Scenario, c.plan.suffixOf(check.Scenario)),
			}})
		}
	}
	relay := c.relays[c.name]
	for _, ph := range []phase{phaseUp, phaseRepeated, phaseDown, phaseRestored} { // in the order of time
		switch ph {
		case phaseDown:
			relay.Set() // to nowhere
			relay.Cut()
		case phaseRestored:
			relay.Set(relay.target)
		}
		for _, check := range checks {
			if check.Scenario == nil && check.Phase == ph {
				c.answers = append(c.answers, c.askQuestion(ctx, check))
			}
		}
		if err := errors.Join(ctx.Err(), c.target.Err()); err != nil {
			return err
		}
	}
	return nil
}

const (
	// maxRecovery is how long an API server may take to reach a webhook that is available again.
	maxRecovery  = 5 * time.Second
	pollInterval = 50 * time.Millisecond
)

// askQuestion asks the API server a question. In phaseRestored it repeats it until the answer is the expected one or
// the time is over.
func (c *cluster) askQuestion(ctx context.Context, check clusterCheck) Answer {
	began := time.Now()
	for {
		observation := c.askReview(ctx, check.Spec)
		isWaiting := check.Phase == phaseRestored && observation.Answer != string(check.Expect) && time.Since(began) < maxRecovery
		if !isWaiting || ctx.Err() != nil {
			return Answer{Check: inCluster, Vector: check.ID, ClusterObservation: observation, Millis: time.Since(began).Milliseconds()}
		}
		clusters.Pause(ctx, pollInterval)
	}
}

// askReview asks the API server a SubjectAccessReview as an administrator.
func (c *cluster) askReview(ctx context.Context, s spec) *ClusterObservation {
	observation := &ClusterObservation{}
	answer, err := c.replayer.Admin().
		AuthorizationV1().
		SubjectAccessReviews().
		Create(ctx, &authorizationv1.SubjectAccessReview{Spec: s}, metav1.CreateOptions{})
	if err != nil {
		observation.Error = cutWord(firstLine(err))
		return observation
	}
	observation.Answer = string(Answer{Denied: answer.Status.Denied, Allowed: answer.Status.Allowed}.decision())
	return observation
}

// inCluster carries out the checks that need an API server.
func (r *runner) inCluster(ctx context.Context) (err error) {
	r.Runner.Progress("starting an API server", 0)
	c, err := startCluster(ctx, r.Plan, r.Webhook, *r.Cluster)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	plan := seq.Filter(r.Plan.clusterPlan(), func(check clusterCheck) bool {
		isWanted := c.o.isSelected == nil || c.o.isSelected(check)
		return isWanted && r.isTried(check.part())
	})
	r.Step(inCluster, func() {
		err = c.runChecks(ctx, plan, r.Runner.Progress)
		r.Answers = append(r.Answers, c.answers...)
	})
	if err != nil {
		return err
	}
	if c.o.Load != nil {
		before := len(c.answers)
		r.Step(revocation, func() {
			err = c.measureRevocation(ctx, r.Runner.Progress)
			r.Answers = append(r.Answers, c.answers[before:]...)
		})
		if err != nil {
			return err
		}
	}
	return c.askControls(ctx, r)
}

// askControls asks the reference, in the same chain, what went wrong.
func (c *cluster) askControls(ctx context.Context, r *runner) error {
	wrong, windowsToo := map[string]bool{}, false
	for _, a := range c.answers {
		if r.Plan.isWrong(a) {
			wrong[a.Vector] = true
			windowsToo = windowsToo || a.Check == revocation
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	progress := func(step string, n int) { r.Runner.Progress("control: "+step, n) }
	plan := slices.DeleteFunc(c.control.plan.clusterPlan(), func(check clusterCheck) bool { return !wrong[check.ID] })
	if err := c.control.runChecks(ctx, plan, progress); err != nil {
		return err
	}
	if windowsToo {
		if err := c.control.measureRevocation(ctx, progress); err != nil {
			return err
		}
	}
	r.Step(controlStep+"-"+inCluster, func() { r.keepControls(c.answers, c.control.answers) })
	return nil
}
