// Package suites runs scenarios through Ginkgo and makes the report. It is what
// the command line calls; the suites themselves are one folder per subject.
package suites

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/formatter"

	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/suites/impersonation"
	"github.com/authzconf/authzconf/verdicts"
)

// Options are what one run needs.
type Options struct {
	// Texts are all scenarios that were loaded, and their files; Plan says which
	// of them run where.
	Texts reports.Texts
	Plan  []session.CellPlan
	// Parallel is how many cells run at once; 0 is as many as the machine has
	// processors and memory for.
	Parallel int
	// Seed makes names unique. The same seed gives the same names.
	Seed int64
	// KnownFailing must fail, for their stated reasons.
	KnownFailing []reports.KnownFailing
	// Events receives progress, from several goroutines; it must be set.
	Events func(session.Event)
	// Version is authzconf's own, Command the command line, for the report.
	Version string
	Command []string
}

// Run is what came out.
type Run struct {
	Report   *reports.ConformanceReport
	Evidence []*verdicts.Evidence
	// Median is the median time of a scenario, waits apart.
	Median time.Duration
}

// failNoter is the testing.T that RunSpecs wants. That specs failed is known
// from the verdicts.
type failNoter struct{}

func (failNoter) Fail() {}

// Execute runs the plan and makes the report. It may be called once in a
// process: Ginkgo has one spec tree. An error is the user's to mend; everything
// else is in the report. When ctx ends, what was seen so far is reported, and
// the rest is invalid.
func Execute(ctx context.Context, o Options) (*Run, error) {
	started := time.Now()
	s := session.New(o.Plan, o.Seed, o.Events)
	s.Parallel = min(cmp.Or(o.Parallel, session.Fitting(o.Plan[0].Target.Cell.Provider)), len(o.Plan))
	defer func() { _ = s.Stop() }() // Ginkgo's cleanup is cut short by a second interrupt
	impersonation.Describe(ctx, s)
	formatter.ColorableStdOut = io.Discard // progress is shown by Events
	suite, reporter := ginkgo.GinkgoConfiguration()
	ginkgo.RunSpecs(failNoter{}, "authzconf", suite, reporter)
	// Ginkgo runs no spec at all if it is interrupted before the first; then this
	// is the first call, and says so of every scenario.
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	if err := s.Wait(); err != nil {
		return nil, err
	}
	run := &Run{Report: &reports.ConformanceReport{
		SuiteVersion: o.Version, Command: o.Command, Seed: o.Seed, Started: started,
		Parallel: s.Parallel, PeakMemoryBytes: s.PeakMemory(),
		Implementation: reports.Implementation{Name: "kube-apiserver", Provider: o.Plan[0].Target.Cell.Provider},
	}}
	for _, c := range s.Cells {
		cell, evidence := reportCell(c)
		run.Report.Cells = append(run.Report.Cells, cell)
		run.Evidence = append(run.Evidence, evidence...)
	}
	run.Report.Finished = time.Now()
	run.Median = median(o.Texts.Set, run.Evidence)
	run.Report.Complete(o.Texts.Set, run.Evidence, o.KnownFailing)
	return run, nil
}

// reportCell turns what a session holds of a cell into its part of the report.
func reportCell(c *session.Cell) (reports.Cell, []*verdicts.Evidence) {
	evidence, results := c.Outcomes()
	cell := reports.Cell{
		Cell: c.Plan.Target.Cell, Facts: reports.Facts(target.ExpectedFacts(c.Plan.Target)), Witness: c.Witness, ReadySeconds: c.Ready.Seconds(), WallSeconds: c.Took.Seconds(), Results: results,
	}
	cell.Agents = c.Agents
	if c.Err != nil {
		cell.Problem = c.Err.Error()
	}
	for _, item := range c.Plan.Items {
		not := reports.NotRun{Scenario: item.Scenario.ID, Why: item.Why}
		switch item.Fate {
		case session.NotSelected:
			not.Cause = reports.CauseTarget
		case session.LeftOut:
			not.Cause = reports.CauseUser
		case session.Unsupported:
			cell.Results = append(cell.Results, verdicts.Result{
				Scenario: item.Scenario.ID, Level: item.Scenario.Level, Cell: cell.Name,
				Verdict: verdicts.NotSupported, Reason: item.Why,
			})
			continue
		default:
			continue
		}
		cell.NotRun = append(cell.NotRun, not)
	}
	return cell, evidence
}

// median is the median time that scenarios took, their waits apart.
func median(set *scenarios.Set, evidence []*verdicts.Evidence) time.Duration {
	var took []time.Duration
	for _, e := range evidence {
		if s, ok := set.Get(e.Scenario); ok {
			took = append(took, e.Ended.Sub(e.Started)-s.Waits())
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// Describe says what a plan will do, for --dry-run.
func Describe(w io.Writer, plan []session.CellPlan) error {
	for _, p := range plan {
		c := p.Target.Cell
		if _, err := fmt.Fprintf(w, "%s: Kubernetes %s, gate %s: %d to run, %d for other versions or gates, %d left out, %d not supported\n",
			c.Name, c.Kubernetes, c.Gate, p.Count(session.Run), p.Count(session.NotSelected), p.Count(session.LeftOut), p.Count(session.Unsupported)); err != nil {
			return err
		}
		for _, item := range p.Items {
			if item.Fate == session.LeftOut {
				continue
			}
			line := "  " + string(item.Fate) + "  " + item.Scenario.ID
			if item.Why != "" {
				line += "  (" + item.Why + ")"
			}
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}
