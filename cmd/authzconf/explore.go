package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/suites/explore"
)

type exploreFlags struct {
	filedFlags
	matrix matrix.Matrix
	cases  int
	seed   int64
}

func newExplore(flags *exploreFlags) *cobra.Command {
	c := plainCommand("explore", flags.run)
	fl := c.Flags()
	fl.IntVar(&flags.cases, "cases", 1000, "how many cases each version and gate gets")
	seedFlag(c, &flags.seed, "the cases (default: random, printed)")
	fl.StringSliceVar(&flags.matrix.Kubernetes, "kubernetes", []string{matrix.Newest()}, "versions to explore, of "+matrix.Known())
	fl.StringVar(&flags.matrix.Gate, "gate", "on", "ConstrainedImpersonation: on, off, default, absent, both (on and off) or all")
	programFlags(fl)
	flags.register(fl, "explore.yaml, its evidence and the scenario files of disagreements")
	return c
}

// options reads everything that can be wrong before anything is started.
func (f *exploreFlags) options(c *cobra.Command) (o explore.Options, err error) {
	if f.cases < 1 {
		return o, fmt.Errorf("--cases %d: the number of cases is at least 1", f.cases)
	}
	f.matrix.Provider = "local"
	f.matrix.Binaries = binaries(c)
	o = explore.Options{Cases: f.cases, Seed: f.seed}
	o.Cells, err = f.matrix.Cells()
	return o, err
}

func (f *exploreFlags) run(c *cobra.Command) error {
	o, err := f.options(c)
	if err != nil {
		return err
	}
	if err := f.ready(&explore.Folder); err != nil {
		return err
	}
	show := newDisplay(c.ErrOrStderr())
	o.Events = func(e explore.Event) {
		if e.Text != "" {
			show.line(e.Text)
			return
		}
		show.status(fmt.Sprintf("%s: %d/%d cases, %.0f cases/s, %d disagreements", e.Cell, e.Done, e.Cases, e.PerSecond, e.Disagreements))
	}
	report, pieces, err := explore.Run(c.Context(), o)
	show.end()
	if err != nil {
		return err
	}
	unwritten := errors.Join(f.file(&explore.Folder, report, pieces), render(c.OutOrStdout(), "explored", report))
	return concluded(unwritten, report.Disagreed(), report.Broken())
}

func (f *exploreFlags) again(c *cobra.Command, r *explore.Report, p *reports.Pieces, _ *verifyFlags) (*explore.Report, error) {
	reseed(c, &f.seed, r.Seed)
	o, err := f.options(c)
	if err != nil {
		return nil, err
	}
	return explore.Judge(o, p)
}

// concluded is how an exploration ends: a disagreement is one, whatever broke beside it.
func concluded(unwritten error, disagreed bool, broken error) error {
	switch {
	case unwritten != nil:
		return unwritten
	case disagreed:
		return exitWith(exitFailed)
	}
	return invalid(broken)
}
