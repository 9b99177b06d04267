package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/granular"
	"github.com/authzconf/authzconf/granular/enforcer"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// granularFlags choose scenarios of KEP-3617 and what they run before.
type granularFlags struct {
	filedFlags
	dir, focus, kubernetes string
}

func newGranular(flags *granularFlags) *cobra.Command {
	c := plainCommand("granular", flags.run)
	flags.choice(c)
	flags.version(c)
	flags.register(c.Flags(), "granular.json and its evidence")
	c.AddCommand(newGranularList(), newGranularLint())
	return c
}

func (f *granularFlags) choice(c *cobra.Command) {
	c.Flags().StringVar(&f.dir, "scenarios", "", "folder of scenario files to use instead of the built-in ones")
	c.Flags().StringVar(&f.focus, "focus", "", "only scenarios whose ID matches this regular expression")
}

func (f *granularFlags) version(c *cobra.Command) {
	c.Flags().StringVar(&f.kubernetes, "kubernetes", "", "version of the API server behind the enforcer (default: the newest)")
	programFlags(c.Flags())
}

// load reads the scenarios that are asked for.
func (f *granularFlags) load() ([]*granular.Scenario, error) {
	files, err := folderOr(f.dir, granular.Scenarios)
	if err != nil {
		return nil, err
	}
	all, err := granular.Load(files)
	if err != nil {
		return nil, err
	}
	focus, err := pattern("focus", f.focus)
	if err != nil {
		return nil, err
	}
	if focus != nil {
		all = slices.DeleteFunc(all, func(s *granular.Scenario) bool { return !focus.MatchString(s.ID) })
	}
	if len(all) == 0 {
		return nil, errors.New("no scenario matches")
	}
	return all, nil
}

// start starts what the scenarios run before, if a report can be written afterwards.
func (f *granularFlags) start(c *cobra.Command) (*granular.Bench, error) {
	on, err := localCell(c, f.kubernetes, target.AskDefault)
	if err == nil {
		err = f.ready(&granular.Folder)
	}
	if err != nil {
		return nil, err
	}
	bench, err := granular.Start(c.Context(), on)
	return bench, invalid(err)
}

func (f *granularFlags) run(c *cobra.Command) error {
	all, err := f.load()
	if err != nil {
		return err
	}
	bench, err := f.start(c)
	if err != nil {
		return err
	}
	pieces := &reports.Pieces{}
	seen, err := bench.Observe(c.Context(), enforcer.Reference(), all)
	if err = errors.Join(err, bench.Close()); err == nil {
		_, err = reports.Keep(pieces, granular.Piece, seen)
	}
	if err != nil {
		return invalid(err)
	}
	report, err := f.judge(c, all, pieces)
	if err != nil {
		return invalid(err)
	}
	out := c.OutOrStdout()
	if err := errors.Join(render(out, "attempts", report), renderTable(out, "sections", report, 0), render(out, "notice", report)); err != nil {
		return invalid(err)
	}
	if err := f.file(&granular.Folder, report, pieces); err != nil {
		return err
	}
	return exitWith(map[verdicts.Verdict]int{verdicts.Failed: exitFailed, verdicts.Invalid: exitInvalid}[report.Outcome])
}

// judge makes the report from what was seen of scenarios.
func (f *granularFlags) judge(c *cobra.Command, all []*granular.Scenario, p *reports.Pieces) (*granular.Report, error) {
	on, err := localCell(c, f.kubernetes, target.AskDefault)
	if err != nil {
		return nil, err
	}
	seen, err := reports.Take[granular.Evidence](p, granular.Piece)
	if err != nil {
		return nil, err
	}
	return granular.Judge(all, seen, on)
}

// again is the report that the evidence of one gives.
func (f *granularFlags) again(c *cobra.Command, _ *granular.Report, p *reports.Pieces, verify *verifyFlags) (*granular.Report, error) {
	if f.dir != "" && verify.dir == "" {
		return nil, fmt.Errorf("the command line takes the scenarios from %s: --scenarios says which to judge by", f.dir)
	}
	f.dir = verify.dir
	all, err := f.load()
	if err != nil {
		return nil, err
	}
	return f.judge(c, all, p)
}

func newGranularList() *cobra.Command {
	var flags granularFlags
	c := plainCommand("list", func(c *cobra.Command) error {
		all, err := flags.load()
		if err != nil {
			return err
		}
		return renderTable(c.OutOrStdout(), "granular scenarios", all, 0)
	})
	flags.choice(c)
	return c
}

func newGranularLint() *cobra.Command {
	return commandWith("lint [FOLDER]", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		flags := granularFlags{dir: strings.Join(args, "")}
		all, err := flags.load()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%d scenarios, no errors\n", len(all))
		return err
	})
}
