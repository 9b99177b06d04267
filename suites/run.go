// Package suites is the door for people who know Ginkgo: the products of authzconf as suites, with a container for each
// group (a cell, a stage, a level, a comparison) and a spec for each case. A suite runs the same plan as the command line,
// takes the same flags, shows the same verdicts and writes the same report folder:
//
//	ginkgo ./suites/impersonation -- --provider kind --kubernetes 1.36,1.37 --gate both --report-dir out
//
// Each folder below has one suite. An author's own suite calls Describe with a run of its own, and adds specs to it.
//
// What Ginkgo's own flags do here:
//
//   - --focus, --skip, --label-filter narrow the plan before anything starts. What they leave out is not run, and the
//     report says so.
//   - --randomize-all changes the order in which Ginkgo asks for verdicts. The run itself has its own order.
//   - --repeat runs the whole suite anew each time; the folder of --report-dir then has the last report.
//   - -p and --procs are refused: a run is one, and runs its groups side by side by itself (--parallel).
//   - --flake-attempts is refused: a wrong answer that is followed by a right one is still a failure.
//   - --junit-report has, besides Ginkgo's own properties, those of the witness: what each control plane said of itself.
package suites

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/suites/labels"
)

// Suite is a product as a suite of Ginkgo.
type Suite struct {
	// Name is the name of the suite, such as impersonation.
	Name string
	// Prefix is the beginning of the texts of all specs, such as "[sig-auth] Impersonation
	// [FeatureGate:ConstrainedImpersonation] [Beta]".
	Prefix string
	// Product is what the suite runs. Arguments are the flags that it always has, such as --suite=impersonation.
	Product   product.Product
	Arguments []string

	line     *product.CommandLine
	flags    *pflag.FlagSet
	setFlags []string
}

// Register adds the flags of a suite to those of the test program. It must be called before the flags are parsed, for
// example to initialize a variable of the package.
func Register(s Suite) *Suite {
	s.flags = pflag.NewFlagSet(s.Name, pflag.ContinueOnError)
	s.flags.SetOutput(io.Discard)
	s.line = product.NewCommandLine(s.Product, s.flags, labels.Filter)
	s.flags.VisitAll(func(f *pflag.Flag) { flag.CommandLine.Var(&givenFlag{f, &s}, f.Name, f.Usage) })
	return &s
}

// givenFlag passes a flag of the test program on to the product, and remembers how it was written.
type givenFlag struct {
	flag  *pflag.Flag
	suite *Suite
}

// Set sets the flag of the product.
func (f *givenFlag) Set(value string) error {
	f.suite.setFlags = append(f.suite.setFlags, "--"+f.flag.Name+"="+value)
	return f.suite.flags.Set(f.flag.Name, value)
}

// String returns the value of the flag.
func (f *givenFlag) String() string {
	if f.flag == nil {
		return ""
	}
	return f.flag.Value.String()
}

// IsBoolFlag reports whether the flag can be given without a value.
func (f *givenFlag) IsBoolFlag() bool { return f.flag.Value.Type() == "bool" }

// RunSpecs runs the suite, under go test or ginkgo. Without a flag of the suite it is skipped, because it would start
// clusters and nobody said which.
func (s *Suite) RunSpecs(t *testing.T) {
	t.Helper()
	if flag.NArg() > 0 {
		t.Fatalf(
			"%q are not flags of the suite (expected flags such as --gate=on behind -args of go test, or behind -- of ginkgo)",
			flag.Args(),
		)
	}
	if len(s.setFlags) == 0 {
		t.Skipf("no cluster was asked for: ginkgo ./suites/%s -- --help lists the flags, and docs/suites.md has examples", s.Name)
	}
	config, reporter := ginkgo.GinkgoConfiguration()
	if err := checkConfiguration(config.ParallelTotal, config.FlakeAttempts); err != nil {
		t.Fatal(err)
	}
	run, err := s.prepare()
	if err != nil {
		t.Fatal(err)
	}
	Describe(s.Prefix, run)
	if err := run.selectPreviewed(ginkgo.PreviewSpecs(s.Name)); err != nil {
		t.Fatal(err)
	}
	ginkgo.RunSpecs(t, s.Name)
	if err := addWitness(reporter.JUnitReport, run.report()); err != nil {
		t.Errorf("adding the witness to %s: %v", reporter.JUnitReport, err)
	}
}

// checkConfiguration refuses options that would split a run, or that would hide a wrong answer behind a right one.
func checkConfiguration(processes, attempts int) error {
	if processes > 1 {
		return errors.New("-p and --procs are refused: a run is one, and --parallel says how many of its control planes run at once")
	}
	if attempts > 1 {
		return errors.New("--flake-attempts is refused: a wrong answer that is followed by a right one is still a failure")
	}
	return nil
}

// prepare makes the plan for the flags that were given.
func (s *Suite) prepare() (*Run, error) {
	for _, argument := range s.Arguments {
		name, value, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		if err := s.flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("%s: %w", argument, err)
		}
	}
	command := slices.Concat([]string{"authzconf"}, strings.Fields(s.Product.Command), s.Arguments, s.setFlags)
	return NewRun(s.line, command)
}

// NewRunOf makes the plan of a product for the given flags, such as --gate=on, for Describe.
func NewRunOf(p product.Product, arguments ...string) (*Run, error) {
	flags := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	line := product.NewCommandLine(p, flags, labels.Filter)
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	return NewRun(line, slices.Concat([]string{"authzconf"}, strings.Fields(p.Command), arguments))
}

// NewRun makes the plan of a parsed command line. command is the command line of authzconf that makes the same plan.
// The report contains it, and verify uses it to plan again.
func NewRun(line *product.CommandLine, command []string) (*Run, error) {
	invocation := product.NewInvocation(nil, cmp.Or(product.ModuleVersion(), "unknown"), os.Stderr)
	prepared, err := line.Prepare(invocation)
	if err != nil {
		return nil, err
	}
	out, err := product.OpenOutput(line.Options)
	if err != nil {
		return nil, err
	}
	r := &Run{prepared: prepared, invocation: invocation, command: command, output: out, done: make(chan struct{})}
	r.verdicts = map[string]*verdict{}
	for _, c := range prepared.Plan.Cases() {
		if c.NotRun == nil {
			r.verdicts[c.ID] = &verdict{known: make(chan struct{})}
		}
	}
	return r, nil
}

// Run is one run of a plan whose verdicts are specs.
type Run struct {
	prepared   *product.PreparedRun
	invocation *product.Invocation
	command    []string
	output     product.Output
	verdicts   map[string]*verdict

	start  sync.Once
	stop   context.CancelFunc
	done   chan struct{} // closed when the run has ended
	result *product.RunResult
	err    error
}
