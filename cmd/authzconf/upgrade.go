package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/engine/upgrade"
	"github.com/authzconf/authzconf/engine/upgradepath"
	"github.com/authzconf/authzconf/reports"
)

type upgradeFlags struct {
	recordedFlags
	cells            matrixFlags
	path, file       string
	highAvailability bool
}

func newUpgrade(flags *upgradeFlags) *cobra.Command {
	c := plainCommand("upgrade", flags.run)
	fl := c.Flags()
	fl.StringVar(&flags.path, "path", "", "the stages, separated by commas")
	fl.StringVar(&flags.file, "file", "", "a path file, such as ci/paths/kep-recipe.yaml")
	fl.BoolVar(&flags.highAvailability, "high-availability", false, "two API servers behind a balancer, replaced one after the other under load")
	flags.cells.registerCommon(c)
	flags.register(c, "the stages and what would run on each")
	return c
}

func (f *upgradeFlags) load() (*upgradepath.Path, error) {
	switch {
	case (f.path == "") == (f.file == ""):
		return nil, errors.New("one of --path and --file is needed, such as --path 1.35+gate,1.36,1.35+gate")
	case f.file != "" && f.highAvailability:
		return nil, errors.New("--high-availability goes with --path; in a path file write highAvailability: true")
	case f.path != "":
		return upgradepath.Parse(f.path, f.highAvailability)
	}
	data, err := f.inputs.read(f.file)
	if err != nil {
		return nil, err
	}
	return upgradepath.Load(f.file, data)
}

// base is what all stages have in common.
func (f *upgradeFlags) base(c *cobra.Command, p *upgradepath.Path) (matrix.Matrix, error) {
	for _, stage := range p.Stages {
		f.cells.matrix.Kubernetes = append(f.cells.matrix.Kubernetes, stage.Kubernetes)
	}
	slices.Sort(f.cells.matrix.Kubernetes)
	f.cells.matrix.Kubernetes = slices.Compact(f.cells.matrix.Kubernetes)
	base, err := f.cells.resolve()
	base.Binaries = binaries(c)
	return base, err
}

func (f *upgradeFlags) run(c *cobra.Command) error {
	p, err := f.load()
	if err != nil {
		return err
	}
	base, err := f.base(c, p)
	if err != nil {
		return err
	}
	o := upgrade.Options{Common: f.common(), Path: p, Base: base}
	o.Inputs = f.inputs
	if f.held != nil {
		return f.held.walk(o)
	}
	if err = f.readKey(); err != nil {
		return err
	}
	if o.Texts, err = new(selectionFlags).load(); err != nil {
		return err
	}
	show := newProgress(c.ErrOrStderr(), 0, f.verbose)
	o.Events = show.event
	walk, runs, err := o.Plan()
	if err != nil {
		return err
	}
	show.total = runs
	if f.dryRun {
		show.end()
		return render(c.OutOrStdout(), "stage plans", walk)
	}
	if err := f.writable(o.Texts); err != nil {
		return err
	}
	run, err := upgrade.Execute(c.Context(), o, walk)
	show.end()
	if err != nil {
		return invalid(err)
	}
	return f.finish(c.OutOrStdout(), o.Texts, run)
}

func (f *upgradeFlags) finish(out io.Writer, texts reports.Texts, run *session.Recorded) error {
	unwritten := f.write(run, texts)
	if err := errors.Join(renderTable(out, "stages", run.Report, 0), render(out, "claims", run.Report), render(out, "outcome", run.Report)); err != nil {
		return invalid(err)
	}
	_, _ = fmt.Fprintf(out, "seed %d, %.1f s in all\n", run.Report.Seed, run.Report.Finished.Sub(run.Report.Started).Seconds())
	return concludeRun(out, run.Report, f.reportDir, unwritten)
}
