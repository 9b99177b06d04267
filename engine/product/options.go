package product

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// LabelFilter parses an expression of labels, such as 'core && !slow'.
type LabelFilter func(text string) (func(labels []string) bool, error)

// Options are the flags that every product has.
type Options struct {
	// Seed is what names and random choices are made from.
	Seed int64
	// ReportDir is the folder that the report is written to, empty for none; SignKey is the file of a private key.
	ReportDir, SignKey string
	// History is the file to which the results are appended as a line, empty for none.
	History string
	// DryRun shows what would run, and starts nothing.
	DryRun bool
	// Verbose shows each verdict as it is known, and with DryRun why a case would not run.
	Verbose bool

	focus, skip, labels string
	levels, require     []string
	casesFile           string
	knownFailing        string

	flags       *pflag.FlagSet
	labelFilter LabelFilter
}

// CaseListFlag is the flag with the file that lists cases.
const CaseListFlag = "case-list"

// register adds the flags to a flag set.
func (o *Options) register(fs *pflag.FlagSet) {
	o.flags = fs
	fs.StringVar(&o.ReportDir, "report-dir", "", "folder for the report and its evidence")
	fs.StringVar(&o.History, "history", "", "file to append the results to, a line for each run: report flakes reads it")
	fs.StringVar(&o.SignKey, "sign-key", "", "sign the report with this private key, as keygen makes it")
	fs.BoolVar(&o.DryRun, "dry-run", false, "show what would run, and start nothing")
	fs.BoolVarP(&o.Verbose, "verbose", "v", false, "show each verdict as it is known; with --dry-run, also what would not run and why")
	fs.StringVar(&o.focus, "focus", "", "only cases whose name matches this regular expression")
	fs.StringVar(&o.skip, "skip", "", "leave out cases whose name matches this regular expression")
	fs.StringSliceVar(&o.levels, "level", nil, "only cases of these levels: core, extended, divergence")
	fs.StringVar(&o.labels, "label-filter", "", "only cases whose labels match this expression of Ginkgo's, such as 'core && !slow'")
	fs.StringVar(&o.casesFile, CaseListFlag, "", "only the cases whose IDs this file lists, one a line")
	fs.StringSliceVar(&o.require, "require", nil, "levels in which every case must be judged: core, extended, divergence")
	fs.StringVar(&o.knownFailing, "known-failing", "", "file with the cases that are expected to fail, and why")
	fs.Int64Var(&o.Seed, "seed", rand.Int64N(1_000_000), "seed of names and random choices (default: drawn, and printed)")
	fs.Lookup("seed").DefValue = "0" // The help text is the same every time.
}

// Rules are how results become an outcome.
type Rules struct {
	// Require are the levels in which every case must be judged.
	Require []scenarios.Level
	// KnownFailing must fail, for their stated reasons.
	KnownFailing []reports.KnownFailing
}

// rules reads what the flags say about the outcome.
func (o *Options) rules(i *Invocation) (rules Rules, err error) {
	if rules.Require, err = parseLevels("require", o.require); err != nil {
		return rules, err
	}
	if o.knownFailing == "" {
		return rules, nil
	}
	data, err := i.ReadInput(o.knownFailing)
	if err != nil {
		return rules, err
	}
	rules.KnownFailing, err = reports.LoadKnownFailing(o.knownFailing, data)
	return rules, err
}

// criterion leaves out the cases that do not match one flag.
type criterion struct {
	matches func(Case) bool
	why     string
}

// narrow leaves out the cases that the flags do not select.
func (o *Options) narrow(i *Invocation, p Plan) error {
	criteria, err := o.criteria(i)
	if err != nil {
		return err
	}
	if len(criteria) == 0 {
		return nil
	}
	p.Select(func(c Case) string {
		for _, k := range criteria {
			if !k.matches(c) {
				return k.why
			}
		}
		return ""
	})
	return nil
}

func (o *Options) criteria(i *Invocation) (criteria []criterion, err error) {
	if o.focus != "" {
		pattern, err := regexp.Compile(o.focus)
		if err != nil {
			return nil, fmt.Errorf("--focus: %w", err)
		}
		criteria = append(criteria, criterion{func(c Case) bool { return pattern.MatchString(c.Name) }, "does not match --focus"})
	}
	if o.skip != "" {
		pattern, err := regexp.Compile(o.skip)
		if err != nil {
			return nil, fmt.Errorf("--skip: %w", err)
		}
		criteria = append(criteria, criterion{func(c Case) bool { return !pattern.MatchString(c.Name) }, "matches --skip"})
	}
	levels, err := parseLevels("level", o.levels)
	if err != nil {
		return nil, err
	}
	if len(levels) > 0 {
		criteria = append(criteria, criterion{func(c Case) bool { return slices.Contains(levels, c.Level) }, "not at --level"})
	}
	if o.labels != "" {
		filter, err := o.labelFilter(o.labels)
		if err != nil {
			return nil, fmt.Errorf("--label-filter: %w", err)
		}
		criteria = append(criteria, criterion{func(c Case) bool { return filter(c.Labels) }, "does not match --label-filter"})
	}
	if o.casesFile != "" {
		listed, err := i.readCases(o.casesFile)
		if err != nil {
			return nil, err
		}
		criteria = append(criteria, criterion{func(c Case) bool { return listed[c.ID] }, "not in --case-list"})
	}
	return criteria, nil
}

// readCases reads a file with an ID of a case on each line. Empty lines and those that begin with # are left out.
func (i *Invocation) readCases(path string) (map[string]bool, error) {
	data, err := i.ReadInput(path)
	if err != nil {
		return nil, fmt.Errorf("the list of cases: %w", err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if id := strings.TrimSpace(line); id != "" && !strings.HasPrefix(id, "#") {
			listed[id] = true
		}
	}
	return listed, nil
}

func parseLevels(flag string, names []string) (levels []scenarios.Level, err error) {
	for _, name := range names {
		level := scenarios.Level(name)
		if !slices.Contains(reports.Levels(), level) {
			return nil, fmt.Errorf("--%s %q is not one of core, extended, divergence", flag, name)
		}
		levels = append(levels, level)
	}
	return levels, nil
}

// CommandLine is a command line of a product that was parsed, or will be.
type CommandLine struct {
	Product Product
	Options Options
	// Scenarios is the folder of the scenarios that a record is judged by; empty stands for the built-in ones.
	Scenarios string

	flags Flags
}

// refuseLabels stands for a filter where labels cannot be looked at.
func refuseLabels(string) (func([]string) bool, error) {
	return nil, errors.New("labels are not looked at here (expected --focus, --skip or --level)")
}

// NewCommandLine adds the flags of a product, and those that every product has, to a flag set. Once the flag set has
// parsed the arguments, Prepare makes the plan.
func NewCommandLine(p Product, fs *pflag.FlagSet, filter LabelFilter) *CommandLine {
	if filter == nil {
		filter = refuseLabels
	}
	c := &CommandLine{Product: p, Options: Options{labelFilter: filter}}
	c.flags = p.New(fs)
	c.Options.register(fs)
	return c
}

// PreparedRun is a command line that was read: what will be judged, and by which rules.
type PreparedRun struct {
	Product Product
	Plan    Plan
	Rules   Rules
}

// Prepare makes the plan. Every error is for the user to mend.
func (c *CommandLine) Prepare(i *Invocation) (*PreparedRun, error) {
	i.Scenarios = c.Scenarios
	isGiven := c.Options.flags.Changed("seed")
	switch {
	case !i.Verifying():
		i.Seed = c.Options.Seed
	case isGiven && c.Options.Seed != i.Seed:
		return nil, fmt.Errorf("its seed is %d, that of the record is %d", c.Options.Seed, i.Seed)
	}
	rules, err := c.Options.rules(i)
	if err != nil {
		return nil, err
	}
	plan, err := c.flags.Plan(i)
	if err != nil {
		return nil, err
	}
	if err := c.Options.narrow(i, plan); err != nil {
		return nil, err
	}
	if err := checkRuns(plan.Cases()); err != nil {
		return nil, err
	}
	return &PreparedRun{Product: c.Product, Plan: plan, Rules: rules}, nil
}

// ErrNothingSelected is wrapped by the error of a plan in which nothing would run: that would not be a pass.
var ErrNothingSelected = errors.New("nothing would run")

// checkRuns returns an error unless at least one case is run.
func checkRuns(cases []Case) error {
	counts := map[reports.NotRunCause]int{}
	for _, c := range cases {
		if c.NotRun == nil {
			return nil
		}
		counts[c.NotRun.Cause]++
	}
	return fmt.Errorf(
		"%w: of %s, %d are left out by --focus, --skip, --level, --label-filter or --case-list, %d are for another version or gate, %d need what the target cannot show",
		ErrNothingSelected,
		reports.Plural(len(cases), "case"),
		counts[reports.CauseUser],
		counts[reports.CauseTarget],
		counts[reports.CauseTargetLacks],
	)
}
