// Package mutants has no code: its tests measure the suite itself, how much it reaches of the code that an impersonated
// request goes through (TestServerCoverage), and how many deliberately broken API servers it catches (TestMutants).
// They measure the questions of certification on mutants of decision code (TestDecisionMutants), and prove the fixes of
// findings: all are compiled into one kube-apiserver, in which a number chooses one, and the suite is run with each
// (TestFixes).
package mutants

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// runOptions are the flags of the tests that start servers. Paths are those of the repository's root.
type runOptions struct {
	all, open, list, resume, equivalents bool
	only, output, coverage               string
	sample, limit, workers               int
	seed                                 int64
}

var flags runOptions

func TestMain(m *testing.M) {
	flag.BoolVar(&flags.all, "all", false, "run every mutant that no other flag leaves out, for hours")
	flag.BoolVar(&flags.list, "mutants", false, "print every mutant: its key, what is changed and how")
	flag.IntVar(&flags.sample, "sample", 0, "run only so many mutants, chosen by -seed")
	flag.Int64Var(&flags.seed, "seed", 1, "seed of the sample")
	flag.StringVar(&flags.only, "only", "", "run only mutants whose key matches this regular expression, such as ^cache.go:")
	flag.BoolVar(&flags.open, "open", false, "run only the mutants of open.yaml")
	flag.IntVar(
		&flags.limit,
		"limit",
		0,
		"run only so many of the scenarios that reach a mutant, those first that are the likeliest to catch it",
	)
	flag.BoolVar(&flags.resume, "resume", false, "keep what results.json says was caught, and run the rest")
	flag.BoolVar(&flags.equivalents, "equivalents", false, "run the mutants that are argued to be equivalent too")
	flag.IntVar(&flags.workers, "workers", 4, "control planes side by side")
	flag.StringVar(
		&flags.output,
		"output",
		filepath.Join("_output", "mutants"),
		"folder for results.json, and for mutants.md where all are run",
	)
	flag.StringVar(&flags.coverage, "coverage", "", "count the places that the suite reaches, and write the page to this file")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // client-go's remarks are not output of these tests
	if _, err := os.Stat("go.mod"); err != nil {
		if err := os.Chdir(filepath.Join("..", "..")); err != nil { // go test starts in the folder of the package
			panic(err)
		}
	}
	m.Run()
}

// ownFolder is the folder of this package, with equivalent.yaml, unreachable.yaml, open.yaml and what else is read from it.
var ownFolder = filepath.Join("ci", "mutants")

// interruptible ends with the test, and when it is interrupted, so that no server is left.
func interruptible(t *testing.T) context.Context {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	return ctx
}

// TestMutants derives the mutants of the newest release's code, in all parts of the way that an impersonated request
// goes (parts.yaml), compiles them into one kube-apiserver, checks that with none of them chosen it passes the whole
// suite, and runs the suite against each. A mutant is done with at the first scenario that fails. It wants every mutant
// to be caught or in one of the lists; those that are argued not to be caught must not be; and of a whole run every part
// has the score that is wanted, and open.yaml has nothing that is caught.
func TestMutants(t *testing.T) {
	if !flags.all && !flags.open && flags.sample == 0 && flags.only == "" {
		t.Skip("say which mutants to run: -all, -open, -sample N or -only EXPRESSION (make mutants)")
	}
	only, err := flags.check()
	if err != nil {
		t.Fatal(err)
	}
	ctx, begin := interruptible(t), time.Now()
	run, found, err := flags.measure(ctx, t)
	if err != nil {
		t.Fatal(err)
	}
	mutants := flags.choose(found.mutants, only, found)
	run.Progress(fmt.Sprintf("%d mutants to run", len(mutants)))
	err = flags.each(ctx, run, mutants, found)
	found.Seconds += time.Since(begin).Seconds()
	flags.finish(t, found, err)
}

// check refuses what cannot be meant.
func (o *runOptions) check() (*regexp.Regexp, error) {
	only, err := regexp.Compile(o.only)
	switch {
	case err != nil:
		return nil, fmt.Errorf("-only: %w", err)
	case o.sample < 0:
		return nil, fmt.Errorf("-sample %d: at least 1 mutant", o.sample)
	case o.limit < 0:
		return nil, fmt.Errorf("-limit %d: at least 1 scenario, or 0 for all", o.limit)
	case o.workers < 1:
		return nil, fmt.Errorf("-workers %d: at least 1", o.workers)
	case o.sample > 0 && o.only != "":
		return nil, errors.New("-sample and -only exclude each other")
	case o.sample > 0 && o.resume:
		return nil, errors.New("-sample and -resume exclude each other")
	}
	return only, nil
}

// measure builds the program with all mutants, and finds out what the suite reaches with none of them chosen.
func (o *runOptions) measure(ctx context.Context, t *testing.T) (*Campaign, *results, error) {
	run, found, err := o.build(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	return run, found, run.Measure(ctx)
}

// build builds the program with all mutants, and reads what is known of them.
func (o *runOptions) build(ctx context.Context, t *testing.T) (*Campaign, *results, error) {
	plan, err := completeSuite()
	if err != nil {
		return nil, nil, err
	}
	binaries, release := &local.Binaries{Progress: t.Output()}, local.Newest()
	sources, err := loadSources(ctx, binaries, release)
	if err != nil {
		return nil, nil, err
	}
	argued, err := loadArguments(ownFolder, sources)
	if err != nil {
		return nil, nil, err
	}
	found := &results{
		Kubernetes: release.Version,
		Digest:     sources.Texts.digest(),
		mutants:    sources.Mutants,
		parts:      sources.Parts,
		arguments:  argued,
	}
	if o.resume {
		if err := found.resume(o.output); err != nil {
			return nil, nil, err
		}
	}
	path, err := sources.Texts.build(ctx, binaries, release, "mutants")
	if err != nil {
		return nil, nil, err
	}
	run := &Campaign{
		Sources: sources, Program: path, Plan: plan, Seed: rand.Int64N(1_000_000), Workers: o.workers, Limit: o.limit,
		Progress: func(line string) { _, _ = fmt.Fprintln(t.Output(), line) },
	}
	run.Progress(
		fmt.Sprintf("%d mutants are compiled in, of %d of them it is known that they are not caught", len(sources.Mutants), len(argued)),
	)
	return run, found, nil
}

// saveEvery is after how many mutants the results are written, so that even a killed run can be resumed.
const saveEvery = 25

// each runs the mutants, one line a mutant.
func (o *runOptions) each(ctx context.Context, run *Campaign, mutants []Mutant, found *results) error {
	done := 0
	return run.Run(ctx, mutants, func(r Result) {
		done++
		if found.is(r.Key, equivalent, unreachable) && !r.Status.Caught() {
			r.Status = Equivalent
		}
		found.Results = append(found.Results, r)
		if done%saveEvery == 0 {
			_ = found.write(o.output) // the last write tells what is wrong
		}
		by := ""
		if r.Scenario != "" {
			by = " by " + r.Scenario
		}
		run.Progress(fmt.Sprintf("[%d/%d] %-18s %s%s (%d tried, %.1f s)", done, len(mutants), r.Status, r.Key, by, r.Tried, r.Took))
	})
}

// finish writes the results, and the table where all were run; an interrupted run keeps what it has.
func (o *runOptions) finish(t *testing.T, found *results, err error) {
	err = errors.Join(err, found.write(o.output))
	shown := resultsFile
	whole := o.sample == 0 && o.only == "" && o.limit == 0 && !o.open
	if err == nil && whole {
		shown = tableFile
		err = errors.Join(os.WriteFile(filepath.Join(o.output, tableFile), []byte(found.markdown()), 0o644), found.writeOpen(o.output))
	}
	if err != nil {
		t.Fatal(err)
	}
	remark, wrong := found.wrong(whole)
	_, _ = fmt.Fprintf(t.Output(), "%s\nresults: %s\n%s", found.summary(), filepath.Join(o.output, shown), remark)
	if wrong != nil {
		t.Error(wrong)
	}
}

// completeSuite is the suite on the newest release, gate on and gate off.
func completeSuite() ([]conformance.CellPlan, error) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		return nil, err
	}
	cells, err := matrix.Matrix{
		Provider: "local", Kubernetes: []string{local.Newest().Minor}, Gates: matrix.Gates{matrix.GateBoth}, Binaries: &local.Binaries{},
	}.Cells()
	if err != nil {
		return nil, err
	}
	folders, err := conformance.SuiteFolders("impersonation")
	if err != nil {
		return nil, err
	}
	return conformance.PlanCells(set, cells, conformance.Selection{Folders: folders})
}

// choose takes the mutants to run, in the order of the source, so that a function's mutants learn from each other.
// Known gaps and open ones are not in a sample: they are run by every scenario, to no end.
func (o *runOptions) choose(all []Mutant, only *regexp.Regexp, found *results) []Mutant {
	var chosen []Mutant
	for _, m := range all {
		if o.sample > 0 && found.is(m.Key, gap, open) ||
			o.open && !found.is(m.Key, open) {
			continue
		}
		if only.MatchString(m.Key) &&
			(o.equivalents || !found.is(m.Key, equivalent, unreachable)) &&
			!found.caught(m.Key) {
			chosen = append(chosen, m)
		}
	}
	if o.sample > 0 && o.sample < len(chosen) {
		random := rand.New(rand.NewPCG(uint64(o.seed), 0)) //nolint:gosec // a sample that anybody can repeat
		random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:o.sample]
		slices.SortFunc(chosen, func(a, b Mutant) int { return a.Number - b.Number })
	}
	return chosen
}

// TestList prints every mutant, if -mutants says so.
func TestList(t *testing.T) {
	if !flags.list {
		t.Skip("-mutants is not given")
	}
	sources, err := loadSources(interruptible(t), &local.Binaries{Progress: t.Output()}, local.Newest())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range sources.Mutants {
		_, _ = fmt.Fprintf(t.Output(), "%s\tline %d\t%s\t%s\n", m.Key, m.Line, m.Snippet, m.Change)
	}
}
