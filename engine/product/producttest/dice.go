// Package producttest runs products in tests: in those of authors outside (RequirePass, behind deputytest and
// conformancetest), and in ours, for which it has a small product that needs no cluster.
package producttest

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Token looks like a credential. Dice records it with every throw, so that a test can see that it is redacted.
const Token = "abcdefghijklmnopqrstuvwxyz0123456789"

// Dice records the numbers 1, 2, 3, … and judges that they are not above a limit.
var Dice = product.Product{Name: "dice", Command: "dice", New: func(fs *pflag.FlagSet) product.Flags {
	f := &diceFlags{}
	fs.IntVar(&f.throws, "throws", 3, "how many dice are thrown")
	fs.IntVar(&f.limit, "limit", 4, "the highest number that passes")
	fs.BoolVar(&f.idle, "idle", false, "record nothing")
	return f
}}

type diceFlags struct {
	throws, limit int
	idle          bool
}

func (f *diceFlags) Plan(*product.Invocation) (product.Plan, error) {
	if f.throws < 1 {
		return nil, fmt.Errorf("--throws %d: expected at least 1", f.throws)
	}
	p := NewPlan(f.throws, f.limit)
	p.Idle = f.idle
	return p, nil
}

// Plan is a plan of Dice, with faults that a test can switch on.
type Plan struct {
	// Idle records nothing. Lost is the ID of a case of which nothing is recorded. Panics has the judge panic. Broken is the
	// error with which a run ends.
	Idle   bool
	Lost   string
	Panics bool
	Broken error

	cases []product.Case
	limit int
}

// NewPlan returns a plan with one case for each throw.
func NewPlan(throws, limit int) *Plan {
	p := &Plan{limit: limit}
	for n := range throws {
		parity := "odd"
		if n%2 == 1 {
			parity = "even"
		}
		p.cases = append(p.cases, product.NewCase("table", fmt.Sprintf("throw-%d", n), scenarios.Core, parity))
	}
	return p
}

// Cases returns a case for each throw.
func (p *Plan) Cases() []product.Case { return p.cases }

// Select leaves out cases.
func (p *Plan) Select(leaveOut func(product.Case) string) {
	for i, c := range p.cases {
		if why := leaveOut(c); why != "" {
			p.cases[i].NotRun = &product.NotRun{Cause: reports.CauseUser, Why: why}
		}
	}
}

type throw struct {
	Number int    `json:"number"`
	Secret string `json:"secret"`
}

// Run records a number for each case.
func (p *Plan) Run(_ context.Context, log *record.Log, o product.Observer) error {
	o.Say("rolling")
	for n, c := range p.cases {
		if c.NotRun != nil || p.Idle || c.ID == p.Lost {
			continue
		}
		if err := log.Append(c.ID, throw{Number: n + 1, Secret: "Bearer " + Token}); err != nil {
			return err
		}
		o.Done(c.ID)
	}
	return p.Broken
}

// Judge compares a number with the limit.
func (p *Plan) Judge(id string, evidence record.View) reports.Result {
	if p.Panics {
		panic("the judge broke")
	}
	e, err := record.Read[throw](evidence, id)
	if err != nil {
		return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameEnvironment, Reason: err.Error()}
	}
	if e.Number <= p.limit {
		return reports.Result{Verdict: verdicts.Passed, Judged: 1}
	}
	return reports.Result{
		Verdict: verdicts.Failed, Judged: 1, Blame: verdicts.BlameAPIServer, Reason: fmt.Sprintf("%d is more than %d", e.Number, p.limit),
		Tables: []reports.Table{{
			Title:   "Expected and observed numbers",
			Columns: []string{"expected at most", "observed"},
			Rows:    []reports.Row{{Cells: []string{fmt.Sprint(p.limit), fmt.Sprint(e.Number)}}},
		}},
	}
}

// Conclude puts the results into one group.
func (p *Plan) Conclude(results []reports.Result, _ record.View) (*reports.Report, error) {
	groups := product.Group(p.cases, results)
	for i := range groups {
		groups[i].Facts = []reports.Fact{{Name: "sides", Value: "6"}}
	}
	return &reports.Report{
		Subject: reports.Subject{Name: "a die"},
		Groups:  groups,
		Figures: []reports.Figure{{Name: "throws", Value: float64(len(results))}},
	}, nil
}
