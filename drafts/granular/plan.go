package granular

import (
	"context"
	"errors"
	"os"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// plan has a case for each attempt. All cases are in one group, which is the kind of enforcement.
type plan struct {
	on     server.Options
	by     Enforcement
	trials []trial
	cases  []product.Case
	byID   map[string]trial // by the IDs of cases
}

func newPlan(on server.Options, enforcement Enforcement, all []*Scenario) *plan {
	p := &plan{on: on, by: enforcement, trials: trialsOf(all), byID: map[string]trial{}}
	for _, t := range p.trials {
		// No case has the level core: a draft requires nothing.
		c := product.NewCase(enforcement.Kind, t.ID(), scenarios.Extended, "sig-auth", "KEP-3617", string(t.attempt.Outcome))
		if !t.attempt.applies(enforcement.Kind) {
			c.NotRun = &product.NotRun{
				Cause: reports.CauseTarget,
				Why:   "without the ordinary permission the API server refuses before admission",
			}
		}
		p.cases = append(p.cases, c)
		p.byID[c.ID] = t
	}
	return p
}

// Cases implements product.Plan.
func (p *plan) Cases() []product.Case { return p.cases }

// Select implements product.Plan.
func (p *plan) Select(leaveOut func(product.Case) string) {
	for i, c := range p.cases {
		if why := leaveOut(c); why != "" && c.NotRun == nil {
			p.cases[i].NotRun = &product.NotRun{Cause: reports.CauseUser, Why: why}
		}
	}
}

// group is the evidence about the group as a whole.
type group struct {
	Server reports.FoundTarget `json:"server"`
	// Strays are reviews of granular verbs about users who are not the actor of an attempt.
	Strays []verdicts.Review `json:"strays,omitempty"`
}

// groupKey is the key of the evidence about the group.
const groupKey = "server"

// Run implements product.Plan.
func (p *plan) Run(ctx context.Context, log *record.Log, o product.Observer) (err error) {
	o.Say(notices[p.by.Kind])
	if p.by.Kubeconfig != "" {
		defer func() { _ = os.Remove(p.by.Kubeconfig) }() // it is useless without the API server
	}
	bench, err := Start(ctx, p.on)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bench.Close()) }()
	if err := server.CheckTarget(bench.server.FoundTarget(), p.on.AskedTarget()); err != nil {
		return err
	}
	return p.record(ctx, bench, log, o)
}

// record makes the trials that are run, and records their evidence.
func (p *plan) record(ctx context.Context, bench *Bench, log *record.Log, o product.Observer) error {
	var ids []string
	var trials []trial
	for _, c := range p.cases {
		if c.NotRun == nil {
			ids, trials = append(ids, c.ID), append(trials, p.byID[c.ID])
		}
	}
	all, err := bench.observe(ctx, p.by, trials)
	if err != nil {
		return err
	}
	if err := log.Append(groupKey, group{Server: bench.server.FoundTarget(), Strays: all.strays}); err != nil {
		return err
	}
	for i, id := range ids {
		if all.trials[i] == nil {
			continue
		}
		if err := log.Append(id, all.trials[i]); err != nil {
			return err
		}
		o.Done(id)
	}
	return nil
}

// Judge implements product.Plan.
func (p *plan) Judge(id string, evidence record.View) reports.Result {
	trialEvidence, err := record.Read[TrialEvidence](evidence, id)
	if err != nil {
		return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameEnvironment, Reason: err.Error()}
	}
	r := newResult(p.by, p.byID[id], trialEvidence)
	r.Evidence = []string{evidence.EvidenceFile(id)}
	return r
}

// newResult judges a trial by its evidence.
func newResult(enforcement Enforcement, t trial, evidence *TrialEvidence) reports.Result {
	r := reports.Result{Verdict: verdicts.Passed, Seconds: evidence.Seconds}
	if evidence.Invalid != "" {
		r.Verdict, r.Blame, r.Reason = verdicts.Invalid, verdicts.BlameEnvironment, evidence.Invalid
		return r
	}
	j := judge(enforcement, t, evidence)
	r.Judged = j.compared
	if len(j.problems) > 0 {
		r.Verdict, r.Reason, r.Details = verdicts.Failed, j.problems[0], j.problems[1:]
	}
	return r
}
