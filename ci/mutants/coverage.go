package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/ci/mutants/program"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// coverageResults are what a coverage run found, held to the arguments.
type coverageResults struct {
	release   local.Release
	scenarios int
	report    *program.Report
	argued    map[program.Block]program.Argument
	missing   []program.Block
	wrong     []program.Argument
}

type coverageFlags struct{ folder, output, docs, scenarios string }

func newCoverage() *cobra.Command {
	var f coverageFlags
	c := &cobra.Command{
		Use:   "coverage",
		Short: "Count which statements of the impersonation package the suite reaches",
		Long: `Build the newest kube-apiserver such that it counts the statements of its
impersonation package that are reached, run the whole suite on it, gate on and
gate off, and print the counts of each function.

Exit codes: 0 every statement was reached, or is argued to be unreachable; 1 one
is not, or an argument is wrong; 2 bad usage or input; 3 the environment broke.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	fl := c.Flags()
	fl.StringVar(&f.folder, "folder", filepath.Join("ci", "mutants"), "folder with unreachable.yaml")
	fl.StringVar(&f.output, "output", filepath.Join("_output", "server-coverage"), "folder for profile.txt and index.html")
	fl.StringVar(&f.docs, "docs", filepath.Join("docs", "server-coverage.md"), "the published table")
	fl.StringVar(&f.scenarios, "scenarios", "", "folder of scenario files to use instead of the built-in ones")
	return c
}

func (f *coverageFlags) run(c *cobra.Command) error {
	if info, err := os.Stat(f.folder); err != nil || !info.IsDir() {
		return fmt.Errorf("--folder %s: there is no such folder", f.folder)
	}
	plan, err := completeSuite(f.scenarios)
	if err != nil {
		return err
	}
	ctx, release := c.Context(), newest()
	binaries := &local.Binaries{Progress: c.ErrOrStderr()}
	sources, err := program.LoadPinned(ctx, binaries, release)
	if err != nil {
		return invalid(err)
	}
	arguments, err := program.LoadArguments(filepath.Join(f.folder, "unreachable.yaml"), sources.FileSet, sources.Files)
	if err != nil {
		return err
	}
	path, err := program.BuildCoverage(ctx, binaries, release)
	if err != nil {
		return invalid(err)
	}
	for i := range plan {
		plan[i].Target.KubeAPIServerPath = path
	}
	counts, err := os.MkdirTemp("", "authzconf-coverage-")
	if err != nil {
		return invalid(err)
	}
	defer func() { _ = os.RemoveAll(counts) }()
	// With it set, control planes are ended in order, and write their counts.
	if err := os.Setenv("GOCOVERDIR", counts); err != nil {
		return invalid(err)
	}
	ran, err := runSuite(ctx, plan, c.ErrOrStderr())
	if err != nil {
		return err
	}
	report, err := f.read(ctx, binaries, sources, counts)
	if err != nil {
		return invalid(err)
	}
	argued, missing, wrong := report.Argue(arguments)
	return f.finish(c, &coverageResults{release, ran, report, argued, missing, wrong})
}

// runSuite runs the plan, and returns how many scenarios passed. All have to.
func runSuite(ctx context.Context, plan []session.CellPlan, progress io.Writer) (passed int, err error) {
	s := session.New(plan, rand.Int64N(1_000_000), func(e session.Event) {
		if e.Text != "" {
			_, _ = fmt.Fprintln(progress, e.Text)
		}
	})
	// The counts are written when the targets stop.
	defer func() {
		if stopErr := s.Stop(); stopErr != nil {
			err = errors.Join(err, invalid(stopErr))
		}
	}()
	if err := s.Start(ctx); err != nil {
		return 0, err
	}
	var bad []string
	for _, cell := range s.Cells {
		_, results := cell.Outcomes()
		for _, r := range results {
			if r.Verdict == verdicts.Passed {
				passed++
			} else {
				bad = append(bad, fmt.Sprintf("%s on %s: %s: %s", r.Scenario, r.Cell, r.Verdict, r.Reason))
			}
		}
	}
	if ctx.Err() != nil {
		return 0, invalid(context.Cause(ctx))
	}
	if len(bad) > 0 {
		return 0, invalid(fmt.Errorf("the counts mean nothing, for %d scenarios did not pass:\n  %s", len(bad), strings.Join(bad, "\n  ")))
	}
	for _, cell := range s.Cells {
		if err := verbose(ctx, cell); err != nil {
			return 0, invalid(err)
		}
	}
	_, _ = fmt.Fprintf(progress, "%d scenarios passed\n", passed)
	return passed, nil
}

// verbose runs the cell's first scenarios once more while the server writes a detailed log, as whoever may PUT
// /debug/flags/v can have it: some statements only write to that log.
func verbose(ctx context.Context, cell *session.Cell) error {
	const few, loud, quiet = 5, "5", "0"
	if err := setLogLevel(ctx, cell.Target, loud); err != nil {
		return err
	}
	run, err := replay.New(cell.Target)
	if err != nil {
		return err
	}
	left := few
	for _, item := range cell.Plan.Items {
		if item.Fate != session.Run || item.Scenario.Waits() > 0 || left == 0 {
			continue
		}
		left--
		evidence := run.Replay(ctx, item.Scenario, scenarios.Suffix(rand.Int64(), item.Scenario.ID))
		if r := verdicts.Judge(item.Scenario, evidence); r.Verdict != verdicts.Passed {
			return fmt.Errorf("with a detailed log, %s: %s: %s", r.Scenario, r.Verdict, r.Reason)
		}
	}
	return setLogLevel(ctx, cell.Target, quiet)
}

func setLogLevel(ctx context.Context, t *target.Target, level string) error {
	client, err := kubernetes.NewForConfig(t.Admin())
	if err != nil {
		return err
	}
	return client.RESTClient().Put().AbsPath("/debug/flags/v").Body([]byte(level)).Do(ctx).Error()
}

// read turns the counts into a profile, a page, and the report.
func (f *coverageFlags) read(ctx context.Context, b *local.Binaries, s *program.Sources, counts string) (*program.Report, error) {
	output, err := filepath.Abs(f.output)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(output, 0o755); err != nil {
		return nil, err
	}
	// In the module that was built, cover finds the sources.
	module, err := b.PinnedModule(ctx, newest())
	if err != nil {
		return nil, err
	}
	profile := filepath.Join(output, "profile.txt")
	packages := program.Package + "," + program.Package + "/metrics"
	if _, err := b.GoOutput(ctx, module, "tool", "covdata", "textfmt", "-i="+counts, "-pkg="+packages, "-o="+profile); err != nil {
		return nil, err
	}
	if _, err := b.GoOutput(ctx, module, "tool", "cover", "-html="+profile, "-o="+filepath.Join(output, "index.html")); err != nil {
		return nil, err
	}
	file, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return program.ReadProfile(file, program.Package, s.FileSet, s.Files, program.OnlyTests())
}

// finish prints the counts of each function and writes the page to docs.
func (f *coverageFlags) finish(c *cobra.Command, r *coverageResults) error {
	if err := os.WriteFile(f.docs, []byte(r.markdown()), 0o644); err != nil {
		return invalid(err)
	}
	out := c.OutOrStdout()
	for _, fn := range r.report.Functions {
		_, _ = fmt.Fprintf(out, "%-30s %-55s %4d of %4d  %8s\n", fn.File, fn.Name, fn.Covered, fn.Statements, percent(fn.Covered, fn.Statements))
	}
	_, _ = fmt.Fprintf(out, "%s\npage: %s\n", r.total(), filepath.Join(f.output, "index.html"))
	var errs []error
	for _, b := range r.missing {
		errs = append(errs, fmt.Errorf("%s:%d, %s: not reached, and no argument why: %s", b.File, b.From, b.Function, b.Code))
	}
	for _, a := range r.wrong {
		errs = append(errs, fmt.Errorf("%s:%d, %s: argued to be unreachable, but reached: %s", a.File, a.From, a.Function, a.Code))
	}
	if len(errs) > 0 {
		return failed(errors.Join(errs...))
	}
	return nil
}
