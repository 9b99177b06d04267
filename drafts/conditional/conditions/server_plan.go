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
)

// serverGroup is the one group of a serverPlan.
const serverGroup = "api-server"

// serverPlan plays API-server vectors on a kube-apiserver that has the gate.
type serverPlan struct {
	played
	options gate.Options
	// reading is the one that the API server has of chains, which follows from all evidence.
	reading func(record.View) vectors.Reading
}

func newServerPlan(set *vectorSet, o gate.Options) (*serverPlan, error) {
	p := &serverPlan{played: newPlayed(set), options: o}
	p.add(serverGroup, func(v *vectors.Vector) string { return gate.Cannot(v, o.Wire) })
	var once sync.Once
	var reading vectors.Reading
	p.reading = func(evidence record.View) vectors.Reading {
		once.Do(func() { reading = p.chooseReading(evidence) })
		return reading
	}
	return p, set.checkRuns(p.cases, "a kube-apiserver with the gate "+gate.Gate)
}

// program is the evidence of what was judged.
type program struct {
	Server string `json:"server"`
}

// Run implements product.Plan. Which reading of chains the API server has is known in the end, and so are the verdicts.
func (p *serverPlan) Run(ctx context.Context, log *record.Log, o product.Observer) error {
	all, n := p.runningIn(serverGroup), 0
	p.options.Played = func() {
		n++
		o.Status(fmt.Sprintf("%d/%d vectors played", n, len(all)))
	}
	play, err := gate.Run(ctx, all, p.options)
	if err := cmp.Or(err, ctx.Err()); err != nil { // What was played before an interruption is not whole.
		return err
	}
	if err := log.Append(serverGroup, program{play.Server}); err != nil {
		return err
	}
	for _, seen := range play.Seen {
		if err := log.Append(serverGroup+"/"+seen.Vector, seen); err != nil {
			return err
		}
	}
	for _, c := range p.running() {
		o.Done(c.ID)
	}
	return nil
}

func (p *serverPlan) chooseReading(evidence record.View) vectors.Reading {
	all, seen := p.runningIn(serverGroup), map[string]*gate.Seen{}
	for _, v := range all {
		if one, err := record.Read[gate.Seen](evidence, serverGroup+"/"+v.ID); err == nil {
			seen[v.ID] = one
		}
	}
	return gate.ChooseReading(all, seen)
}

// Judge implements product.Plan.
func (p *serverPlan) Judge(id string, evidence record.View) reports.Result {
	seen, err := record.Read[gate.Seen](evidence, id)
	if err != nil {
		return invalid(err)
	}
	r, compared := seen.Judge(p.byID[id], p.reading(evidence))
	return newResult(r, compared, evidence, id)
}

// Conclude implements product.Plan.
func (p *serverPlan) Conclude(results []reports.Result, evidence record.View) (*reports.Report, error) {
	judged, err := record.Read[program](evidence, serverGroup)
	if err != nil {
		judged = &program{"a kube-apiserver with the gate " + gate.Gate}
	}
	r, err := p.report(judged.Server, results)
	if err != nil {
		return nil, err
	}
	g := &r.Groups[0]
	g.Facts = append(g.Facts, reports.Fact{Name: "revision of the wire", Value: p.options.Wire.Name}, reports.Fact{Name: "how it reads chains", Value: string(p.reading(evidence))})
	return r, nil
}
