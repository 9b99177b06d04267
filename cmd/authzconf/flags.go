package main

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/suites/labels"
)

type selectionFlags struct {
	dir, focus, skip, labels string
	suites, levels           []string
}

func (f *selectionFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.dir, "scenarios", "", "folder of scenario files to use instead of the built-in ones")
	fl.StringSliceVar(&f.suites, "suite", nil, "only these suites: "+strings.Join(conformance.SuiteNames(), ", ")+" (default: all)")
	fl.StringVar(&f.focus, "focus", "", "only scenarios whose ID matches this regular expression")
	fl.StringVar(&f.skip, "skip", "", "leave out scenarios whose ID matches this regular expression")
	fl.StringSliceVar(&f.levels, "level", nil, "only these levels: core, extended, divergence")
	fl.StringVar(
		&f.labels,
		"label-filter",
		"",
		"only scenarios whose labels match this expression of Ginkgo's, such as 'core && !slow': sig-auth, a level, FeatureGate:"+server.GateName+", slow, serial, any-cluster",
	)
}

// load reads the scenarios. Bad ones are all reported at once.
func (f *selectionFlags) load() (conformance.Texts, error) { return conformance.LoadTexts(f.dir) }

func folderOr(dir string, builtin fs.FS) (fs.FS, error) {
	if dir == "" {
		return builtin, nil
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("--scenarios %s: there is no such folder", dir)
	}
	return os.DirFS(dir), nil
}

func (f *selectionFlags) vectors() ([]*vectors.Vector, error) {
	files, err := folderOr(f.dir, scenarios.FS)
	if err != nil {
		return nil, err
	}
	all, err := vectors.Load(files)
	if err != nil {
		return nil, fmt.Errorf("vectors in %s:\n%w", cmp.Or(f.dir, "the built-in scenarios"), err)
	}
	return all, nil
}

func (f *selectionFlags) selection() (sel conformance.Selection, err error) {
	var focus, skip, level, folders error
	sel.Focus, focus = pattern("focus", f.focus)
	sel.Skip, skip = pattern("skip", f.skip)
	sel.Levels, level = levels("level", f.levels)
	sel.Folders, folders = conformance.SuiteFolders(f.suites...)
	if f.labels != "" {
		if sel.Labels, err = labels.Filter(f.labels); err != nil {
			err = fmt.Errorf("--label-filter: %w", err)
		}
	}
	return sel, cmp.Or(focus, skip, level, err, folders)
}

func levels(flag string, names []string) (out []scenarios.Level, err error) {
	for _, l := range names {
		if !slices.Contains(reports.Levels(), scenarios.Level(l)) {
			return nil, fmt.Errorf("--%s %q is not one of core, extended, divergence", flag, l)
		}
		out = append(out, scenarios.Level(l))
	}
	return out, nil
}

func pattern(flag, text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return re, nil
}

func programFlags(fl *pflag.FlagSet) {
	fl.String(
		"binaries",
		"",
		"where programs come from that neither TEST_ASSET_* nor the cache has: official (as they are published), build (from pinned modules) or auto, official if that can be had (default $"+local.SourceVariable+" or auto)",
	)
	fl.String(
		"binaries-mirror",
		"",
		"URL (http, https or file) below which dl.k8s.io/... and github.com/... are mirrored (default $"+local.MirrorVariable+")",
	)
}

func binaries(c *cobra.Command) *local.Binaries {
	source, _ := c.Flags().GetString("binaries")
	mirror, _ := c.Flags().GetString("binaries-mirror")
	return &local.Binaries{Source: source, Mirror: mirror, Progress: c.ErrOrStderr()}
}

func localCell(c *cobra.Command, kubernetes string, gate scenarios.Gate) (server.Options, error) {
	cells, err := matrix.Matrix{
		Provider: server.Local, Kubernetes: []string{kubernetes}, Gates: matrix.Gates{gate}, Binaries: binaries(c),
	}.Cells()
	if err != nil {
		return server.Options{}, err
	}
	return cells[0], nil
}

// seedFlag adds --seed, described by the text. Without the flag a seed is drawn.
func seedFlag(c *cobra.Command, seed *int64, subject string) {
	c.Flags().Int64Var(seed, "seed", rand.Int64N(1_000_000), "seed of "+subject)
	c.Flags().Lookup("seed").DefValue = "0" // for the help text, which must always be the same
}

func newList() *cobra.Command {
	var flags selectionFlags
	var output string
	var kep string
	var full bool
	c := plainCommand("list", func(c *cobra.Command) error {
		if kep != "" {
			return flags.listDraft(c.OutOrStdout(), kep, output)
		}
		texts, err := flags.load()
		if err != nil {
			return err
		}
		sel, err := flags.selection()
		if err != nil {
			return err
		}
		selection := sel.Choose(texts.Set)
		if len(selection) == 0 {
			return fmt.Errorf("no scenario matches: %w", conformance.ErrNothingSelected)
		}
		return list(c.OutOrStdout(), selection, output, full)
	})
	flags.register(c)
	kepFlag(c, &kep)
	c.Flags().StringVarP(&output, "output", "o", "", "wide, json or yaml")
	c.Flags().BoolVar(&full, "full", false, "with -o json or yaml: also what the loader derives")
	return c
}

// listEntry is a scenario with its ID, which is not part of the file.
type listEntry struct {
	ID string `json:"id"`
	*scenarios.Scenario
}

func list(w io.Writer, selection []*scenarios.Scenario, output string, full bool) error {
	switch output {
	case "", "wide":
		return renderTable(w, "scenarios", struct {
			Chosen []*scenarios.Scenario
			Wide   bool
		}{selection, output == "wide"}, 0)
	case "json", "yaml":
		items := []listEntry{}
		for _, s := range selection {
			if !full {
				s = s.Lean()
			}
			items = append(items, listEntry{s.ID, s})
		}
		return printAs(w, output, "", items)
	}
	return fmt.Errorf("-o %q is not one of wide, json, yaml", output)
}

func newLint() *cobra.Command {
	var flags selectionFlags
	var kep string
	c := commandWith("lint [FOLDER]", func(c *cobra.Command, args []string) error {
		if len(args) == 1 {
			flags.dir = args[0]
		}
		if kep != "" {
			return flags.lintDraft(c.OutOrStdout(), kep)
		}
		texts, err := flags.load()
		if err != nil {
			return err
		}
		all, err := flags.vectors()
		if err != nil {
			return err
		}
		notes, err := scenarios.Notes(texts.Scenarios, texts.Fixtures)
		if err != nil {
			return err
		}
		for _, e := range notes {
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "note: %s: %s\n", filepath.Join(flags.dir, e.Place()), e.Msg)
		}
		text := reports.Plural(len(texts.Set.All()), "scenario")
		if len(all) > 0 {
			text += ", " + reports.Plural(len(all), "vector")
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), text+", no errors")
		return err
	})
	kepFlag(c, &kep)
	return c
}
