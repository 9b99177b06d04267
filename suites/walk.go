package suites

import (
	"context"
	"io"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/formatter"

	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/engine/path"
	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/suites/upgrade"
	"github.com/authzconf/authzconf/verdicts"
)

// WalkOptions are what one upgrade path needs.
type WalkOptions struct {
	// Path is what to walk.
	Path *path.Path
	// Texts are all scenarios that were loaded, and their files. Those without a
	// setup of the path have no part in it.
	Texts reports.Texts
	// Base is what the stages have in common: the provider, node images, programs.
	Base matrix.Matrix
	// Seed makes names unique.
	Seed int64
	// Events receives progress; it must be set.
	Events func(session.Event)
	// Version is authzconf's own, Command the command line, for the report.
	Version string
	Command []string
}

// Plan checks everything that can be wrong before anything is started, and says
// how many scenarios will run.
func (o *WalkOptions) Plan() (walk *upgrade.Upgrade, runs int, err error) {
	if o.Texts.Set, err = upgrade.Setups(o.Path, o.Texts.Set); err != nil {
		return nil, 0, err
	}
	if walk, err = upgrade.New(o.Path, o.Texts.Set, o.Base, o.Seed, o.Events); err != nil {
		return nil, 0, err
	}
	for _, stage := range walk.Stages {
		for _, item := range stage.Items {
			if item.Runs {
				runs++
			}
		}
	}
	return walk, runs, nil
}

// Walk goes along a path and makes the report. As Execute, it may be called once
// in a process.
func Walk(ctx context.Context, o WalkOptions, walk *upgrade.Upgrade) (*Run, error) {
	started := time.Now()
	upgrade.Describe(ctx, walk)
	formatter.ColorableStdOut = io.Discard // progress is shown by Events
	suite, reporter := ginkgo.GinkgoConfiguration()
	ginkgo.RunSpecs(failNoter{}, "authzconf", suite, reporter)
	walk.Finish(ctx)
	if walk.Err != nil {
		return nil, walk.Err
	}
	run := &Run{Report: &reports.ConformanceReport{
		SuiteVersion: o.Version, Command: o.Command, Seed: o.Seed, Started: started,
		Implementation: reports.Implementation{Name: "kube-apiserver", Provider: walk.Stages[0].Target.Cell.Provider},
		Path:           &reports.PathReport{Name: o.Path.Name, Description: o.Path.Description, HighAvailability: o.Path.HighAvailability},
	}}
	for _, stage := range walk.Stages {
		cell, evidence := reportStage(stage)
		run.Report.Cells = append(run.Report.Cells, cell)
		run.Evidence = append(run.Evidence, evidence...)
		run.Report.Path.Stages = append(run.Report.Path.Stages, reports.PathStage{
			Cell: cell.Name, Fault: string(stage.Fault), Made: stage.Made, DownSeconds: stage.Down.Seconds(),
		})
		if stage.Evidence != nil {
			run.Report.Path.Evidence = append(run.Report.Path.Evidence, stage.Evidence)
		}
	}
	run.Report.Finished = time.Now()
	run.Median = median(o.Texts.Set, run.Evidence)
	run.Report.Complete(o.Texts.Set, run.Evidence, nil)
	return run, nil
}

// reportStage turns a stage into a cell of the report. What was to be run and was not
// is invalid, for the reason that ended the path.
func reportStage(stage *upgrade.Stage) (reports.Cell, []*verdicts.Evidence) {
	cell := reports.Cell{
		Cell: stage.Target.Cell, Facts: reports.Facts(target.ExpectedFacts(stage.Target)), Witness: stage.Witness,
		ReadySeconds: (stage.Ready + stage.Down).Seconds(), WallSeconds: stage.Took.Seconds(),
	}
	if stage.Problem != nil {
		cell.Problem = stage.Problem.Error()
	}
	runs := map[string]upgrade.Run{}
	for _, r := range stage.Runs {
		runs[r.Result.Scenario] = r
	}
	var evidence []*verdicts.Evidence
	for _, item := range stage.Items {
		s := item.Scenario
		run, ran := runs[s.ID]
		switch {
		case !item.Runs:
			cell.NotRun = append(cell.NotRun, reports.NotRun{Scenario: s.ID, Cause: item.Cause, Why: item.Why})
			continue
		case !ran:
			run.Evidence = &verdicts.Evidence{
				Scenario: s.ID, Digest: s.Digest, Cell: cell.Cell,
				Problems: []verdicts.Problem{{Blame: verdicts.BlameEnvironment, Text: cell.Problem}},
			}
			run.Result = verdicts.Judge(s, run.Evidence)
		}
		cell.Results = append(cell.Results, run.Result)
		evidence = append(evidence, run.Evidence)
	}
	return cell, evidence
}
