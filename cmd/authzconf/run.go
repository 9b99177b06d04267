package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/conformance/upgrade"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
)

// recordedFlags say what becomes of a run; run, matrix and upgrade share them.
type recordedFlags struct {
	filedFlags
	seed            int64
	dryRun, verbose bool
	inputs          inputs
	held            *heldRun // set where a report is held to its command line
}

func (f *recordedFlags) register(c *cobra.Command, what string) {
	fl := c.Flags()
	f.filedFlags.register(fl, "report.yaml, report.html, junit.xml, summary.md and evidence/")
	seedFlag(c, &f.seed, "the names that are made unique (default: random, printed)")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print "+what+", and stop")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "print every scenario as it ends")
}

func (f *recordedFlags) common() conformance.Common {
	return conformance.Common{Version: suiteVersion(), Command: called, Seed: f.seed}
}

func (f *recordedFlags) writable(texts reports.Texts) error {
	if f.reportDir == "" {
		return nil
	}
	return errors.Join(reports.Folder.CheckWritable(f.reportDir), reports.CheckTexts(texts))
}

func (f *recordedFlags) write(run *conformance.Recorded, texts reports.Texts) error {
	return written(f.reportDir, func(dir string) error {
		if err := reports.Write(dir, run.Report, run.Evidence, texts); err != nil {
			return err
		}
		return f.sign(reports.Folder.Marker, run.Report.Outcome)
	})
}

// conformanceFlags say how cells are judged; run and matrix share them.
type conformanceFlags struct {
	selectionFlags
	recordedFlags
	knownFailing string
	require      []string
	parallel     int
}

func (f *conformanceFlags) register(c *cobra.Command) {
	f.selectionFlags.register(c)
	f.recordedFlags.register(c, "what would run")
	fl := c.Flags()
	fl.StringVar(&f.knownFailing, "known-failing", "", "file of scenarios that must fail, each with its reason")
	fl.StringSliceVar(&f.require, "require", nil, "levels of which nothing may be left out: exit 3 if a scenario that applies did not run")
	fl.IntVar(&f.parallel, "parallel", 0, "how many control planes run at once (default: as many as there are processors and memory for)")
}

func newRun(flags *conformanceFlags) *cobra.Command {
	var cells matrixFlags
	var foreign existingFlags
	c := plainCommand("run", func(c *cobra.Command) error {
		return flags.run(c, func() ([]server.Options, error) {
			m, err := cells.resolve()
			if err != nil {
				return nil, err
			}
			switch {
			case m.Capabilities().Foreign && flags.held != nil:
				return flags.held.existing(), nil
			case m.Capabilities().Foreign:
				return foreign.cells(c, existing.Running()...)
			}
			m.Binaries = binaries(c)
			return m.Cells()
		})
	})
	cells.register(c, "default")
	foreign.add(c.Flags())
	c.Flags().Lookup("provider").Usage = "where clusters come from: " + providers + "; or existing, the one of --kubeconfig"
	flags.register(c)
	return c
}

func (f *conformanceFlags) run(c *cobra.Command, cells func() ([]server.Options, error)) error {
	o, err := f.options(c, cells)
	if err != nil {
		return err
	}
	if f.held != nil {
		f.held.plan(o)
		return nil
	}
	if f.dryRun {
		return render(c.OutOrStdout(), "plan", o.Plan)
	}
	if err := f.writable(o.Texts); err != nil {
		return err
	}
	if err := render(c.ErrOrStderr(), "made", o.Plan); err != nil {
		return invalid(err)
	}
	total := seq.Sum(o.Plan, func(p conformance.CellPlan) int { return p.Count(conformance.Run) })
	show := newProgress(c.ErrOrStderr(), total, f.verbose)
	o.Events = show.event
	run, err := conformance.Execute(c.Context(), o)
	show.end()
	if err != nil {
		return invalid(err)
	}
	return f.finish(c, o, run)
}

// options reads everything that can be wrong before anything is started.
func (f *conformanceFlags) options(c *cobra.Command, expand func() ([]server.Options, error)) (o conformance.Options, err error) {
	o = conformance.Options{Common: f.common(), Parallel: f.parallel}
	if c.Flags().Changed("parallel") && f.parallel < 1 {
		return o, fmt.Errorf("--parallel %d: the number of control planes is at least 1", f.parallel)
	}
	if f.held != nil { // to the scenarios of the report
		o.Texts.Set = f.held.set
	} else if o.Texts, err = f.load(); err != nil {
		return o, err
	}
	if o.Require, err = levels("require", f.require); err != nil {
		return o, err
	}
	if f.held == nil {
		if err = f.readKey(); err != nil {
			return o, err
		}
	}
	sel, err := f.selection()
	if err != nil {
		return o, err
	}
	cells, err := expand()
	if err != nil {
		return o, err
	}
	if f.knownFailing != "" {
		data, err := f.inputs.read(f.knownFailing)
		if err != nil {
			return o, err
		}
		if o.KnownFailing, err = reports.LoadKnownFailing(f.knownFailing, data); err != nil {
			return o, err
		}
	}
	o.Inputs = f.inputs
	o.Plan, err = conformance.Plan(o.Texts.Set, cells, sel)
	return o, err
}

// finish writes the report, prints what was found even if that fails, and turns the outcome into the exit code.
func (f *conformanceFlags) finish(c *cobra.Command, o conformance.Options, run *conformance.Recorded) error {
	out, unwritten := c.OutOrStdout(), f.write(run, o.Texts)
	if err := errors.Join(renderTable(out, "counts", run.Report, tabwriter.AlignRight), render(out, "outcome", run.Report)); err != nil {
		return invalid(err)
	}
	_, _ = fmt.Fprintf(out, "seed %d, median %.1f ms per scenario (waits apart), %.1f s in all, %s\n",
		run.Report.Seed, float64(run.Median.Microseconds())/1000, run.Report.Finished.Sub(run.Report.Started).Seconds(), run.Report.Load())
	return concludeRun(out, run.Report, f.reportDir, unwritten)
}

// expansion says which cells a matrix has.
type expansion struct {
	matrixFlags
	kubernetes, gates []string
	real, emulated    bool
	file              string
}

func newMatrix(flags *conformanceFlags) *cobra.Command {
	var cells expansion
	c := plainCommand("matrix", func(c *cobra.Command) error {
		return flags.run(c, func() ([]server.Options, error) { return cells.expand(c, &flags.inputs) })
	})
	fl := c.Flags()
	fl.StringSliceVar(&cells.kubernetes, "kubernetes", nil, "versions, of "+matrix.Known()+" (default: all, or all that can be emulated)")
	fl.StringSliceVar(&cells.gates, "gate", []string{"all"}, "states of ConstrainedImpersonation: on, off, default, absent, or all that each version has")
	fl.BoolVar(&cells.real, "real", false, "run the versions themselves (the default)")
	fl.BoolVar(&cells.emulated, "emulated", false, "have Kubernetes "+matrix.Newest()+" emulate the versions")
	fl.StringVar(&cells.file, "file", "", "take the cells from a matrix file")
	cells.registerCommon(c)
	flags.register(c)
	return c
}

func (e *expansion) expand(c *cobra.Command, files *inputs) (cells []server.Options, _ error) {
	m, err := e.resolve()
	if err != nil {
		return nil, err
	}
	m.Binaries = binaries(c)
	if e.file != "" {
		data, err := files.read(e.file)
		if err != nil {
			return nil, err
		}
		return matrix.Load(e.file, data, m)
	}
	m.Gate = strings.Join(e.gates, ",")
	given := c.Flags().Changed("kubernetes")
	if e.real || !e.emulated {
		if m.Kubernetes = e.kubernetes; !given {
			m.Kubernetes = matrix.Minors()
		}
		if cells, err = m.Cells(); err != nil {
			return nil, err
		}
	}
	if e.emulated {
		versions := e.kubernetes
		if !given {
			versions = matrix.Emulated()
		}
		m.Kubernetes = []string{matrix.Newest()}
		more, err := m.Emulating(versions)
		if err != nil {
			return nil, err
		}
		cells = append(cells, more...)
	}
	return cells, nil
}

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
	case f.path != "":
		return upgradepath.Parse(f.path, f.highAvailability)
	}
	data, err := f.inputs.read(f.file)
	if err != nil {
		return nil, err
	}
	return upgradepath.Load(f.file, data)
}

func (f *upgradeFlags) base(c *cobra.Command, p *upgradepath.Path) (matrix.Matrix, error) {
	f.cells.matrix.Kubernetes = sets.List(sets.New(seq.Map(p.Stages, func(s upgradepath.Stage) string { return s.Kubernetes })...))
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

func (f *upgradeFlags) finish(out io.Writer, texts reports.Texts, run *conformance.Recorded) error {
	unwritten := f.write(run, texts)
	if err := errors.Join(renderTable(out, "stages", run.Report, 0), render(out, "claims", run.Report), render(out, "outcome", run.Report)); err != nil {
		return invalid(err)
	}
	_, _ = fmt.Fprintf(out, "seed %d, %.1f s in all\n", run.Report.Seed, run.Report.Finished.Sub(run.Report.Started).Seconds())
	return concludeRun(out, run.Report, f.reportDir, unwritten)
}
