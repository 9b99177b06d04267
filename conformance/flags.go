package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// runFlags are the flags of the product besides those that every product has.
type runFlags struct {
	flags     *pflag.FlagSet
	scenarios string
	suites    []string
	matrix    matrix.Flags
	existing  server.ExistingFlags
	parallel  int
}

func newFlags(flags *pflag.FlagSet) product.Flags {
	f := &runFlags{flags: flags}
	flags.StringVar(&f.scenarios, "scenarios", "", "folder of scenario files to use instead of the built-in ones")
	flags.StringSliceVar(&f.suites, "suite", nil, "only these suites: "+strings.Join(SuiteNames(), ", ")+" (default: all)")
	flags.IntVar(
		&f.parallel,
		"parallel",
		0,
		"how many control planes run at once (default: as many as there are processors and memory for)",
	)
	f.matrix.Register(flags)
	f.matrix.RegisterMore(flags)
	f.existing.Register(flags)
	flags.Lookup("provider").Usage = "where clusters come from: " + providers.Help(func(clusters.Capabilities) bool { return true })
	return f
}

// Plan reads everything that can be wrong before anything is started.
func (f *runFlags) Plan(i *product.Invocation) (product.Plan, error) {
	if f.flags.Changed("parallel") && f.parallel < 1 {
		return nil, fmt.Errorf("--parallel %d: the number of control planes is at least 1", f.parallel)
	}
	texts, err := LoadInvocationTexts(i, f.scenarios)
	if err != nil {
		return nil, err
	}
	folders, err := SuiteFolders(f.suites...)
	if err != nil {
		return nil, err
	}
	cells, err := f.cells(i)
	if err != nil {
		return nil, err
	}
	plan := NewPlan(PlanOptions{Texts: texts, Cells: cells, Folders: folders, Seed: i.Seed, Parallel: f.parallel})
	if err := server.CheckAPIServers(seq.Map(plan.cells, func(c CellPlan) server.Options { return c.Target })); err != nil {
		return nil, err
	}
	if i.Verifying() {
		return plan, texts.CheckRecorded(*i.Recorded)
	}
	return plan, texts.CheckSecrets()
}

func (f *runFlags) cells(i *product.Invocation) ([]server.Options, error) {
	if f.matrix.Capabilities().Foreign {
		return f.existingCells(i)
	}
	return f.matrix.Cells(i)
}

// existingCells returns the only cell, which is what the cluster says it is, or what it said when the record was made.
func (f *runFlags) existingCells(i *product.Invocation) ([]server.Options, error) {
	if i.Verifying() {
		cell, err := record.Read[verdicts.Cell](*i.Recorded, existingKey)
		if err != nil {
			return nil, err
		}
		return []server.Options{{Cell: *cell}}, nil
	}
	cell, err := f.existing.Options(existing.Running()...)
	return []server.Options{cell}, err
}

// LoadInvocationTexts loads the scenarios of a folder, or the built-in ones. A record is judged by those that verify was
// given, whatever folder its command line names.
func LoadInvocationTexts(i *product.Invocation, dir string) (Texts, error) {
	if i.Verifying() {
		dir = i.Scenarios
	}
	return LoadTexts(dir)
}

// suite is a name for some of the scenario folders.
type suite struct {
	name    string
	folders []string
}

var suites = []suite{
	{"impersonation", []string{"kep-5284", "docs-user-impersonation", "kubernetes"}},
	{"deputy", []string{"periscope"}},
}

// SuiteNames returns the names of all suites.
func SuiteNames() []string { return seq.Map(suites, func(s suite) string { return s.name }) }

// SuiteFolders returns the scenario folders of the named suites; without names none, which stands for all.
func SuiteFolders(names ...string) (folders []string, _ error) {
	for _, name := range names {
		i := slices.Index(SuiteNames(), name)
		if i < 0 {
			return nil, fmt.Errorf("there is no suite %q; there are %s", name, strings.Join(SuiteNames(), ", "))
		}
		folders = append(folders, suites[i].folders...)
	}
	return folders, nil
}
