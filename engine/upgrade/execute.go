package upgrade

import (
	"context"

	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/engine/upgradepath"
	"github.com/authzconf/authzconf/reports"
)

// Options are what one upgrade path needs.
type Options struct {
	session.Common
	// Path is what to walk. Scenarios without a setup of the path have no part in it.
	Path *upgradepath.Path
	// Base is what the stages have in common: the provider, node images, programs.
	Base matrix.Matrix
}

// Plan checks everything that can be wrong before anything is started, and says how many scenarios will run.
func (o *Options) Plan() (walk *Upgrade, runs int, err error) {
	if o.Texts.Set, err = Setups(o.Path, o.Texts.Set); err != nil {
		return nil, 0, err
	}
	if walk, err = New(o.Path, o.Texts.Set, o.Base, o.Seed, o.Events); err != nil {
		return nil, 0, err
	}
	for _, stage := range walk.Stages {
		runs += stage.Plan.Count(session.Run)
	}
	return walk, runs, nil
}

// Execute goes along a planned path and makes the report. What was to be run and was not is invalid, for the reason that
// ended the path.
func Execute(ctx context.Context, o Options, walk *Upgrade) (*session.Recorded, error) {
	r := o.Begin(walk.Stages[0].Plan.Target.Cell.Provider)
	walk.Walk(ctx)
	if walk.Err != nil {
		return nil, walk.Err
	}
	path := &reports.PathReport{Name: o.Path.Name, Description: o.Path.Description, HighAvailability: o.Path.HighAvailability}
	for _, stage := range walk.Stages {
		cell, evidence := stage.Report()
		cell.ReadySeconds += stage.Down.Seconds()
		r.Add(cell, evidence)
		path.Stages = append(path.Stages, reports.PathStage{
			Cell: cell.Name, Fault: string(stage.Fault), Made: stage.Made, DownSeconds: stage.Down.Seconds(),
		})
		if stage.Evidence != nil {
			path.Evidence = append(path.Evidence, stage.Evidence)
		}
	}
	r.Report.Path = path
	o.Complete(r, nil)
	return r, nil
}
