package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/drafts/granular"
	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/verdicts"
)

type granularFlags struct {
	filedFlags
	dir, focus, kubernetes string
	// by is what enforces, for which policies chooses, and ca and descriptions are files.
	by               granular.By
	policies         bool
	ca, descriptions string
}

func newGranular(flags *granularFlags) *cobra.Command {
	c := plainCommand("granular", flags.run)
	flags.choice(c)
	fl := c.Flags()
	flags.register(fl, "granular.json and its evidence")
	fl.StringVar(&flags.kubernetes, "kubernetes", "", "version of the API server behind the enforcer (default: the newest)")
	programFlags(fl)
	fl.BoolVar(&flags.policies, "policies", false, "have the API server enforce what is excluded, by ValidatingAdmissionPolicies")
	fl.StringVar(&flags.by.URL, "enforcer-url", "", "https URL of an admission webhook that enforces what is excluded")
	fl.StringVar(&flags.ca, "enforcer-ca", "", "authority of its certificate, in PEM (default: those of the system)")
	fl.StringVar(&flags.by.Kubeconfig, "enforcer-kubeconfig", "", "file to write a kubeconfig to, by which it may ask the API server")
	flags.described(c)
	c.AddCommand(newGranularList(), newGranularLint(), newGranularPolicies())
	return c
}

func (f *granularFlags) described(c *cobra.Command) {
	c.Flags().StringVar(&f.descriptions, "descriptions", "", "folder of descriptions of fields to use instead of the built-in ones")
}

// check reads the flags about what enforces, and if it is to be played also the files that they name.
func (f *granularFlags) check(played bool) (err error) {
	f.by.Kind, f.by.Steps = granular.Reference, enforcer.Reference()
	if f.policies {
		f.by.Kind = granular.Policies
	}
	if f.by.URL != "" {
		f.by.Kind = granular.Webhook
		if at, err := url.Parse(f.by.URL); err != nil || at.Scheme != "https" || at.Host == "" || at.RawQuery+at.Fragment != "" {
			return fmt.Errorf("--enforcer-url %q: expected https://HOST:PORT/PATH: API servers ask no other admission webhooks", f.by.URL)
		}
	}
	var files fs.FS = permissions.Descriptions
	if f.descriptions != "" && played {
		files = os.DirFS(f.descriptions)
	}
	if f.by.Descriptions, err = permissions.Load(files); err != nil {
		return fmt.Errorf("--descriptions %s: %w", f.descriptions, err)
	}
	if f.ca != "" && played {
		if f.by.CA, err = filing.Input(f.ca); err != nil {
			return fmt.Errorf("--enforcer-ca: %w", err)
		}
	}
	return nil
}

func (f *granularFlags) choice(c *cobra.Command) {
	c.Flags().StringVar(&f.dir, "scenarios", "", "folder of scenario files to use instead of the built-in ones")
	c.Flags().StringVar(&f.focus, "focus", "", "only scenarios whose ID matches this regular expression")
}

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

func (f *granularFlags) run(c *cobra.Command) error {
	all, err := f.load()
	if err == nil {
		err = f.check(true)
	}
	if err == nil && f.by.Kubeconfig != "" {
		err = newFile(c, "enforcer-kubeconfig", f.by.Kubeconfig)
	}
	if err == nil {
		err = f.ready(&granular.Folder)
	}
	if err != nil {
		return err
	}
	on, err := localCell(c, f.kubernetes, server.AskDefault)
	if err != nil {
		return err
	}
	if f.by.Kubeconfig != "" {
		defer func() { _ = os.Remove(f.by.Kubeconfig) }() // whose API server is gone then
	}
	bench, err := granular.Start(c.Context(), on)
	if err != nil {
		return invalid(err)
	}
	pieces := &reports.Pieces{}
	seen, err := bench.Observe(c.Context(), f.by, all)
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

func (f *granularFlags) judge(c *cobra.Command, all []*granular.Scenario, p *reports.Pieces) (*granular.Report, error) {
	on, err := localCell(c, f.kubernetes, server.AskDefault)
	if err != nil {
		return nil, err
	}
	seen, err := reports.Take[granular.Evidence](p, granular.Piece)
	if err != nil {
		return nil, err
	}
	if f.descriptions == "" && !reflect.DeepEqual(seen.Descriptions, f.by.Descriptions) {
		return nil, errors.New("the evidence is of other descriptions than the built-in ones, and the command line names none")
	}
	return granular.Judge(all, seen, on, f.by)
}

func (f *granularFlags) again(c *cobra.Command, _ *granular.Report, p *reports.Pieces, verify *verifyFlags) (*granular.Report, error) {
	if f.dir != "" && verify.dir == "" {
		return nil, fmt.Errorf("the command line takes the scenarios from %s: --scenarios says which to judge by", f.dir)
	}
	f.dir = verify.dir
	all, err := f.load()
	if err == nil {
		err = f.check(false)
	}
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

func newGranularPolicies() *cobra.Command {
	var flags granularFlags
	c := plainCommand("policies", func(c *cobra.Command) error {
		if err := flags.check(true); err != nil {
			return err
		}
		text, err := flags.by.Descriptions.Policies()
		if err == nil {
			_, err = c.OutOrStdout().Write(text)
		}
		return err
	})
	flags.described(c)
	return c
}

func newGranularLint() *cobra.Command {
	return commandWith("lint [FOLDER]", func(c *cobra.Command, args []string) error {
		flags := granularFlags{dir: strings.Join(args, "")}
		all, err := flags.load()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%d scenarios, no errors\n", len(all))
		return err
	})
}
