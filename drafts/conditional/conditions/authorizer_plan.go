package conditions

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// webhookGroup is the group of a webhook that is asked which revision of the wire it speaks.
const webhookGroup = "webhook"

// authorizerPlan asks webhook vectors, in one group for each revision of the wire.
type authorizerPlan struct {
	vectorCases
	subject string
	seed    int64
	bound   *certification.Plan
	// ask sends the questions of a plan in a group.
	ask    func(ctx context.Context, group string, plan *certification.Plan) ([]certification.Exchange, error)
	groups []string
}

func newAuthorizerPlan(set *vectorSet, seed int64, subject string, groups ...string) (*authorizerPlan, error) {
	bound, err := certification.NewPlan(set.all, seed)
	if err != nil {
		return nil, err
	}
	p := &authorizerPlan{vectorCases: newVectorCases(set), subject: subject, seed: seed, bound: bound, groups: groups}
	for _, group := range groups {
		w, _ := wire.Named(group) // there is no revision named as the group of a webhook
		p.add(group, func(v *vectors.Vector) string {
			if v.Webhook == nil {
				return "it judges an API server, and this is an authorizer"
			}
			return cannotSay(w, v)
		})
	}
	return p, set.checkRuns(p.cases, subject)
}

// cannotSay returns why a vector is not applicable to a revision of the wire. It is empty if the vector is applicable,
// or if the revision is nil.
func cannotSay(w *wire.Revision, v *vectors.Vector) string {
	if w == nil {
		return ""
	}
	if what := w.Cannot(v); what != "" {
		return "the wire cannot say it: " + what
	}
	return ""
}

// newReferencePlan makes a plan that asks the reference authorizer in each revision of the wire, or in one.
func newReferencePlan(set *vectorSet, seed int64, only *wire.Revision) (*authorizerPlan, error) {
	var groups []string
	for _, w := range wire.Revisions() {
		if only == nil || w == only {
			groups = append(groups, w.Name)
		}
	}
	p, err := newAuthorizerPlan(set, seed, referenceSubject, groups...)
	if err != nil {
		return nil, err
	}
	p.ask = askReference
	return p, nil
}

func askReference(ctx context.Context, group string, plan *certification.Plan) ([]certification.Exchange, error) {
	w, err := wire.Named(group)
	if err != nil {
		return nil, err
	}
	a := reference.New(w, &reference.Snapshot{})
	load := func(_ context.Context, all []vectors.Policy) error {
		s, err := reference.NewSnapshot(all)
		if err == nil {
			a.Use(s)
		}
		return err
	}
	run, err := certification.CertifyHandler(ctx, reference.Handler(w, a), certification.Options{Plan: plan, Load: load, Wire: w})
	if err != nil {
		return nil, err
	}
	return run.Answers, nil
}

// newWebhookPlan makes a plan that asks a webhook of the user.
func newWebhookPlan(set *vectorSet, seed int64, subject string, o certification.Options) (*authorizerPlan, error) {
	group := webhookGroup
	if o.Wire != nil {
		group = o.Wire.Name
	}
	p, err := newAuthorizerPlan(set, seed, subject, group)
	if err != nil {
		return nil, err
	}
	p.ask = func(ctx context.Context, _ string, plan *certification.Plan) ([]certification.Exchange, error) {
		o.Plan = plan
		run, err := certification.Certify(ctx, o)
		if err != nil {
			return nil, err
		}
		return run.Answers, nil
	}
	return p, nil
}

// vectorSeen is the evidence of a vector: what was asked and answered.
type vectorSeen struct {
	Exchanges []certification.Exchange `json:"exchanges"`
}

// Run implements product.Plan.
func (p *authorizerPlan) Run(ctx context.Context, log *record.Log, o product.Observer) error {
	for _, group := range p.groups {
		if err := p.runGroup(ctx, group, log, o); err != nil {
			return err
		}
	}
	return nil
}

// runGroup asks the vectors of a group that are run. A vector that was not asked has no evidence: the run of the
// authorizer had ended before.
func (p *authorizerPlan) runGroup(ctx context.Context, group string, log *record.Log, o product.Observer) error {
	all := p.runningIn(group)
	if len(all) == 0 || ctx.Err() != nil {
		return nil //nolint:nilerr // Execute records an interruption, and cases without evidence are invalid
	}
	plan, err := certification.NewPlan(all, p.seed)
	if err != nil {
		return err
	}
	exchanges, err := p.ask(ctx, group, plan)
	if err := cmp.Or(err, ctx.Err()); err != nil { // an interrupted run is incomplete
		return err
	}
	byVector := map[string][]certification.Exchange{}
	for _, x := range exchanges {
		byVector[x.Vector] = append(byVector[x.Vector], x)
	}
	for _, v := range all {
		id := group + "/" + v.ID
		if err := log.Append(id, vectorSeen{byVector[v.ID]}); err != nil {
			return err
		}
		o.Done(id)
	}
	return nil
}

// Judge implements product.Plan.
func (p *authorizerPlan) Judge(id string, evidence record.View) reports.Result {
	observation, err := record.Read[vectorSeen](evidence, id)
	if err != nil {
		return invalid(err)
	}
	for _, x := range observation.Exchanges {
		if v := p.byID[id]; x.Vector != v.ID {
			return invalid(fmt.Errorf("there is evidence of %s, and this is %s", x.Vector, v.ID))
		}
	}
	if len(observation.Exchanges) == 0 {
		group, _, _ := strings.Cut(id, "/")
		spoken, _ := wire.Named(p.spoken(group, evidence))
		if why := cannotSay(spoken, p.byID[id]); why != "" {
			return reports.Result{Verdict: verdicts.NotSupported, Reason: why}
		}
	}
	r, err := p.bound.JudgeVector(observation.Exchanges)
	if err != nil {
		return invalid(err)
	}
	return newResult(r, len(observation.Exchanges), evidence, id)
}

// Conclude implements product.Plan.
func (p *authorizerPlan) Conclude(results []reports.Result, evidence record.View) (*reports.Report, error) {
	r, err := p.report(p.subject, results)
	if err != nil {
		return nil, err
	}
	for i, group := range p.groups {
		if w := p.spoken(group, evidence); w != "" {
			r.Groups[i].Facts = append(r.Groups[i].Facts, reports.Fact{Name: "revision of the wire", Value: w})
		}
	}
	return r, nil
}

// spoken returns the revision of the wire in which a group was asked. It is empty if nothing was asked.
func (p *authorizerPlan) spoken(group string, evidence record.View) string {
	for _, v := range p.runningIn(group) {
		observation, err := record.Read[vectorSeen](evidence, group+"/"+v.ID)
		if err != nil {
			continue
		}
		for _, x := range observation.Exchanges {
			if x.Variant != certification.Probe {
				return x.Wire
			}
		}
	}
	return ""
}
