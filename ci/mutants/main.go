// Command mutants measures the suite itself: how much it reaches of the code that an impersonated request goes
// through, and how many deliberately broken API servers it catches.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/authzconf/authzconf/ci/mutants/campaign"
	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/ci/mutants/program"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/suites"
)

// Exit codes, as those of authzconf.
const (
	exitPassed  = 0
	exitFailed  = 1
	exitUsage   = 2
	exitInvalid = 3
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// exitError ends the command with a code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

// failed is for a result that is not good enough, invalid for an environment that broke; every other error is the
// user's.
func failed(err error) error { return &exitError{exitFailed, err} }

func invalid(err error) error {
	if _, usage := errors.AsType[*local.UsageError](err); err == nil || usage {
		return err
	}
	return &exitError{exitInvalid, err}
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	klog.SetLogger(logr.Discard()) // client-go's remarks are not output of this program
	root := &cobra.Command{
		Use:           "mutants",
		Short:         "Measure what the suite catches and reaches of the API server's code",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.AddCommand(newRun(), newList(), newCoverage())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitPassed
	}
	code := exitUsage
	if exit, ok := errors.AsType[*exitError](err); ok {
		code = exit.code
	}
	_, _ = fmt.Fprintf(stderr, "error: %s\n", strings.TrimRight(err.Error(), "\n"))
	return code
}

type runFlags struct {
	folder, output, only string
	sample, workers      int
	limit                uint
	seed                 int64
	resume, equivalents  bool
}

func newRun() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the suite against every mutant",
		Long: `Derive the mutants of the newest release's code, in all parts of the way that an
impersonated request goes (parts.yaml), compile them into one kube-apiserver, check
that with none of them chosen it passes the whole suite, and run the suite against
each. A mutant is done with at the first scenario that fails.

Exit codes: 0 every mutant is caught or in one of the lists, equivalent.yaml,
unreachable.yaml and open.yaml, and of a whole run every part has the score that is
wanted; 1 not so, or a mutant was caught that is argued to be equivalent or a known gap,
or, in a whole run, that open.yaml says is not; 2 bad usage or input; 3 the environment
broke.`,
		Example: `  mutants run                                  # all; writes the whole table too
  mutants run --sample 25 --seed 7             # 25 of them, always the same
  mutants run --only '^cache.go:' --workers 1  # those of one file`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.register(c)
	fl := c.Flags()
	fl.StringVar(&f.output, "output", filepath.Join("_output", "mutants"), "folder for results.json, and for mutants.md where all are run")
	fl.StringVar(&f.only, "only", "", "only mutants whose key matches this regular expression")
	fl.UintVar(&f.limit, "limit", 0, "run only so many of the scenarios that reach a mutant, those first that are the likeliest to catch it")
	fl.IntVar(&f.sample, "sample", 0, "only so many mutants, chosen by --seed")
	fl.Int64Var(&f.seed, "seed", 1, "seed of the sample")
	fl.BoolVar(&f.resume, "resume", false, "keep what results.json says was caught, and run the rest")
	fl.BoolVar(&f.equivalents, "equivalents", false, "run the mutants that are argued to be equivalent too")
	return c
}

// register adds what every command with a server has.
func (f *runFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.folder, "folder", filepath.Join("ci", "mutants"), "folder with equivalent.yaml, unreachable.yaml and open.yaml")
	c.Flags().IntVar(&f.workers, "workers", 4, "control planes side by side")
}

// check refuses what cannot be meant.
func (f *runFlags) check(c *cobra.Command) error {
	info, err := os.Stat(f.folder)
	switch {
	case err != nil || !info.IsDir():
		return fmt.Errorf("--folder %s: there is no such folder", f.folder)
	case c.Flags().Changed("sample") && f.sample < 1:
		return fmt.Errorf("--sample %d: at least 1 mutant", f.sample)
	case f.workers < 1:
		return fmt.Errorf("--workers %d: at least 1", f.workers)
	case c.Flags().Changed("seed") && f.sample == 0:
		return errors.New("--seed chooses a sample: give --sample too")
	case f.sample > 0 && f.only != "":
		return errors.New("--sample and --only exclude each other")
	case f.sample > 0 && f.resume:
		return errors.New("--sample and --resume exclude each other")
	}
	return nil
}

func (f *runFlags) run(c *cobra.Command) error {
	only, err := regexp.Compile(f.only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	begin := time.Now()
	run, found, err := f.measure(c)
	if err != nil {
		return err
	}
	mutants := f.choose(found.mutants, only, found)
	run.Progress(fmt.Sprintf("%d mutants to run", len(mutants)))
	err = f.each(c.Context(), run, mutants, found)
	found.Seconds += time.Since(begin).Seconds()
	return f.finish(c, found, err)
}

// measure builds the program with all mutants, and finds out what the suite reaches with none of them chosen.
func (f *runFlags) measure(c *cobra.Command) (*campaign.Campaign, *results, error) {
	if err := f.check(c); err != nil {
		return nil, nil, err
	}
	plan, err := completeSuite()
	if err != nil {
		return nil, nil, err
	}
	binaries, release := &local.Binaries{Progress: c.ErrOrStderr()}, local.Newest()
	sources, err := program.Load(c.Context(), binaries, release)
	if err != nil {
		return nil, nil, invalid(err)
	}
	argued, err := loadArguments(f.folder, sources)
	if err != nil {
		return nil, nil, err
	}
	found := &results{Kubernetes: release.Version, Digest: sources.Digest(), mutants: sources.Mutants, parts: sources.Parts, arguments: argued}
	if f.resume {
		if err := found.resume(f.output); err != nil {
			return nil, nil, err
		}
	}
	path, err := sources.Build(c.Context(), binaries, release)
	if err != nil {
		return nil, nil, invalid(err)
	}
	run := &campaign.Campaign{
		Sources: sources, Program: path, Plan: plan, Seed: rand.Int64N(1_000_000), Workers: f.workers,
		Limit:    func(mutate.Mutant) int { return int(f.limit) },
		Progress: func(line string) { _, _ = fmt.Fprintln(c.ErrOrStderr(), line) },
	}
	run.Progress(fmt.Sprintf("%d mutants are compiled in, of %d of them it is known that they are not caught", len(sources.Mutants), len(argued)))
	return run, found, invalid(run.Measure(c.Context()))
}

// saveEvery is after how many mutants the results are written, so that even a killed run can be resumed.
const saveEvery = 25

// each runs the mutants, one line a mutant.
func (f *runFlags) each(ctx context.Context, run *campaign.Campaign, mutants []mutate.Mutant, found *results) error {
	done := 0
	return run.Run(ctx, mutants, func(r campaign.Result) {
		done++
		if found.is(r.Key, equivalent, unreachable) && !r.Status.Caught() {
			r.Status = campaign.Equivalent
		}
		found.Results = append(found.Results, r)
		if done%saveEvery == 0 {
			_ = found.write(f.output) // the last write tells what is wrong
		}
		by := ""
		if r.Scenario != "" {
			by = " by " + r.Scenario
		}
		run.Progress(fmt.Sprintf("[%d/%d] %-18s %s%s (%d tried, %.1f s)", done, len(mutants), r.Status, r.Key, by, r.Tried, r.Took))
	})
}

// finish writes the results, and the table where all were run; an interrupted run keeps what it has.
func (f *runFlags) finish(c *cobra.Command, found *results, err error) error {
	err = errors.Join(err, found.write(f.output))
	shown := resultsFile
	whole := f.sample == 0 && f.only == "" && f.limit == 0
	if err == nil && whole {
		shown = tableFile
		err = errors.Join(os.WriteFile(filepath.Join(f.output, tableFile), []byte(found.markdown()), 0o644), found.writeOpen(f.output))
	}
	if err != nil {
		return invalid(err)
	}
	_, _ = fmt.Fprintf(c.OutOrStdout(), "%s\nresults: %s\n", found.summary(), filepath.Join(f.output, shown))
	remark, wrong := found.wrong(whole)
	_, _ = fmt.Fprint(c.OutOrStdout(), remark)
	if wrong != nil {
		return failed(wrong)
	}
	return nil
}

// completeSuite is the suite on the newest release, gate on and gate off.
func completeSuite() ([]session.CellPlan, error) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		return nil, err
	}
	cells, err := matrix.Matrix{
		Provider: "local", Kubernetes: []string{local.Newest().Minor}, Gate: "both", Binaries: &local.Binaries{},
	}.Cells()
	if err != nil {
		return nil, err
	}
	folders, err := suites.Folders("impersonation")
	if err != nil {
		return nil, err
	}
	return session.Plan(set, cells, session.Selection{Folders: folders})
}

// choose takes the mutants to run, in the order of the source, so that a function's mutants learn from each other.
// Known gaps and open ones are not in a sample: they are run by every scenario, to no end.
func (f *runFlags) choose(all []mutate.Mutant, only *regexp.Regexp, found *results) []mutate.Mutant {
	var chosen []mutate.Mutant
	for _, m := range all {
		if f.sample > 0 && found.is(m.Key, gap, open) {
			continue
		}
		if only.MatchString(m.Key) && (f.equivalents || !found.is(m.Key, equivalent, unreachable)) && !found.caught(m.Key) {
			chosen = append(chosen, m)
		}
	}
	if f.sample > 0 && f.sample < len(chosen) {
		random := rand.New(rand.NewPCG(uint64(f.seed), 0)) //nolint:gosec // a sample that anybody can repeat
		random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:f.sample]
		slices.SortFunc(chosen, func(a, b mutate.Mutant) int { return a.Number - b.Number })
	}
	return chosen
}

func newList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Print every mutant: its key, what is changed and how",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			sources, err := program.Load(c.Context(), &local.Binaries{Progress: c.ErrOrStderr()}, local.Newest())
			if err != nil {
				return invalid(err)
			}
			for _, m := range sources.Mutants {
				if _, err := fmt.Fprintf(c.OutOrStdout(), "%s\tline %d\t%s\t%s\n", m.Key, m.Line, m.Snippet, m.Change); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
