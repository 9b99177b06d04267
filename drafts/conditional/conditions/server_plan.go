package conditions

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/authzconf/authzconf/drafts/conditional/gate"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
)

// serverGroup has the vectors of a serverPlan, and checkGroup the checks of the API server as a whole.
const (
	serverGroup = "api-server"
	checkGroup  = "server"
)

// serverPlan runs API-server vectors on a kube-apiserver that has the gate.
type serverPlan struct {
	vectorCases
	options gate.Options
	// checks are the checks of checkGroup, by the IDs of cases. There are none if the user gives a folder of vectors.
	checks map[string]gate.Check
	// reading returns the reading of chains that the API server has, which follows from all evidence.
	reading func(record.View) vectors.Reading
}

func newServerPlan(set *vectorSet, o gate.Options) (*serverPlan, error) {
	p := &serverPlan{vectorCases: newVectorCases(set), options: o, checks: map[string]gate.Check{}}
	p.add(serverGroup, func(v *vectors.Vector) string { return gate.Cannot(v, o.Wire) })
	var once sync.Once
	var reading vectors.Reading
	p.reading = func(evidence record.View) vectors.Reading {
		once.Do(func() { reading = p.chooseReading(evidence) })
		return reading
	}
	if err := set.checkRuns(p.cases, "a kube-apiserver with the gate "+gate.Gate); err != nil || set.folder != "" {
		return p, err
	}
	for _, check := range gate.Checks() {
		c := product.NewCase(checkGroup, check.ID, scenarios.Extended, labels...)
		p.cases, p.checks[c.ID] = append(p.cases, c), check
	}
	return p, nil
}

// program is the evidence about the program that was judged.
type program struct {
	Server string `json:"server"`
	// Form is the form in which the configuration names the kubeconfig's context for conditions.
	Form string `json:"form"`
}

// Run implements product.Plan. Which reading of chains the API server has is known in the end, and so are the verdicts.
func (p *serverPlan) Run(ctx context.Context, log *record.Log, o product.Observer) error {
	all, checks, n := p.runningIn(serverGroup), p.runningChecks(), 0
	p.options.Played = func() {
		n++
		o.Status(fmt.Sprintf("%d/%d vectors and checks played", n, len(all)+len(checks)))
	}
	play, err := gate.Run(ctx, all, p.options)
	if err := cmp.Or(err, ctx.Err()); err != nil { // an interrupted run is incomplete
		return err
	}
	seenOfChecks, err := gate.RunChecks(ctx, checks, p.options)
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	if err := log.Append(serverGroup, program{play.Server, play.Form}); err != nil {
		return err
	}
	for _, observation := range seenOfChecks {
		if err := log.Append(checkGroup+"/"+observation.Check, observation); err != nil {
			return err
		}
	}
	for _, observation := range play.Seen {
		if err := log.Append(serverGroup+"/"+observation.Vector, observation); err != nil {
			return err
		}
	}
	for _, c := range p.running() {
		o.Done(c.ID)
	}
	return nil
}

// runningChecks returns the checks that are run, in order.
func (p *serverPlan) runningChecks() (all []gate.Check) {
	for _, c := range p.running() {
		if c.Group == checkGroup {
			all = append(all, p.checks[c.ID])
		}
	}
	return all
}

func (p *serverPlan) chooseReading(evidence record.View) vectors.Reading {
	all, observations := p.runningIn(serverGroup), map[string]*gate.VectorEvidence{}
	for _, v := range all {
		if one, err := record.Read[gate.VectorEvidence](evidence, serverGroup+"/"+v.ID); err == nil {
			observations[v.ID] = one
		}
	}
	return gate.ChooseReading(all, observations)
}

// Judge implements product.Plan.
func (p *serverPlan) Judge(id string, evidence record.View) reports.Result {
	if check, isCheck := p.checks[id]; isCheck {
		observation, err := record.Read[gate.CheckEvidence](evidence, id)
		if err != nil {
			return invalid(err)
		}
		return newResult(check.Judge(observation), len(check.Want), evidence, id)
	}
	observation, err := record.Read[gate.VectorEvidence](evidence, id)
	if err != nil {
		return invalid(err)
	}
	r, comparisons := observation.Judge(p.byID[id], p.reading(evidence))
	return newResult(r, comparisons, evidence, id)
}

// Conclude implements product.Plan.
func (p *serverPlan) Conclude(results []reports.Result, evidence record.View) (*reports.Report, error) {
	subject, err := record.Read[program](evidence, serverGroup)
	if err != nil {
		subject = &program{Server: "a kube-apiserver with the gate " + gate.Gate}
	}
	r, err := p.report(subject.Server, results)
	if err != nil {
		return nil, err
	}
	for i := range r.Groups {
		if g := &r.Groups[i]; g.Name == checkGroup {
			g.Facts = []reports.Fact{{Name: "field of its configuration", Value: subject.Form}}
			continue
		}
		r.Groups[i].Facts = append(r.Groups[i].Facts,
			reports.Fact{Name: "revision of the wire", Value: p.options.Wire.Name},
			reports.Fact{Name: "how it reads chains", Value: string(p.reading(evidence))},
		)
	}
	return r, nil
}
