package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/conditional/certification"
	"github.com/authzconf/authzconf/conditional/library"
	"github.com/authzconf/authzconf/conditional/model"
	"github.com/authzconf/authzconf/deputy"
	"github.com/authzconf/authzconf/engine/nodes"
	"github.com/authzconf/authzconf/granular"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/load"
	"github.com/authzconf/authzconf/suites/explore"
)

func newVerify() *cobra.Command {
	var flags verifyFlags
	c := &cobra.Command{
		Use:  "verify FOLDER",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return verify(c, args[0], &flags) },
	}
	c.Flags().StringVar(&flags.dir, "scenarios", "", "folder of scenario files to judge by instead of the built-in ones (of granular, those of KEP-3617)")
	c.Flags().StringArrayVar(&flags.keys, "key", nil, "a public key: one of those given must have signed the report")
	return c
}

// verifyFlags say by what a report is judged again.
type verifyFlags struct {
	selectionFlags
	keys []string
	// verified and certified are what was read and held, for who shows it.
	verified  *reports.Verification
	certified *certify.Certification
}

// reportKind is a kind of report that a product writes.
type reportKind struct {
	*filing.Kind
	// verify judges a report again. It is nil where the report keeps no evidence.
	verify func(c *cobra.Command, path string, flags *verifyFlags) error
}

// reportKinds are all of them. Where two have the same marker file, its head tells them apart.
func reportKinds() []reportKind {
	return []reportKind{
		{&reports.Folder, verifyConformance},
		{&load.Folder, unsigned(verifyLoad)},
		{certify.Direct(nil).Folder(), verifyCertification},
		{certification.Kind(nil).Folder(), verifyCertification},
		recheck(&explore.Folder, func() *explore.Report { return &explore.Report{} }, exploredAgain),
		recheck(&deputy.Folder, func() *deputy.Report { return &deputy.Report{} }, deputyAgain),
		recheck(&library.Folder, func() *library.Report { return &library.Report{} }, libraryAgain),
		recheck(&filedExplore, func() *model.Explored { return &model.Explored{} }, conditionsExploredAgain),
		recheck(&granular.Folder, func() *granular.Report { return &granular.Report{} }, granularAgain),
	}
}

// verify judges every report in a folder again.
func verify(c *cobra.Command, path string, flags *verifyFlags) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return verifyCertification(c, path, flags)
	}
	kinds, err := kindsIn(path)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		if err := k.verify(c, path, flags); err != nil {
			return err
		}
	}
	return nil
}

// kindsIn are the kinds of the reports in a folder.
func kindsIn(path string) ([]reportKind, error) {
	root, err := os.OpenRoot(path) // which also says that it is none
	if err != nil {
		return nil, fmt.Errorf("cannot open the report folder: %w", err)
	}
	_ = root.Close()
	var markers []string
	var marked, known []reportKind
	for _, k := range reportKinds() {
		if !slices.Contains(markers, k.Marker) {
			markers = append(markers, k.Marker)
		}
		if _, err := os.Stat(filepath.Join(path, k.Marker)); err == nil {
			marked = append(marked, k)
			if k.In(path) {
				known = append(known, k)
			}
		}
	}
	switch {
	case len(marked) == 0:
		return nil, fmt.Errorf("%s holds no complete report: it has none of %s", path, strings.Join(markers, ", "))
	case len(known) == 0:
		known = marked[:1] // which says what is wrong with the marker
	}
	for _, k := range known {
		if k.verify == nil {
			return nil, fmt.Errorf("%s holds a %s, which keeps no evidence: it cannot be judged again", path, k.Name)
		}
	}
	return known, nil
}

// unsigned is for reports that nobody signs.
func unsigned(verify func(c *cobra.Command, path string) error) func(*cobra.Command, string, *verifyFlags) error {
	return func(c *cobra.Command, path string, flags *verifyFlags) error {
		if len(flags.keys) > 0 {
			return errors.New("--key: a report of this kind is not signed")
		}
		return verify(c, path)
	}
}

func verifyConformance(c *cobra.Command, path string, flags *verifyFlags) error {
	texts, err := flags.load()
	if err != nil {
		return err
	}
	keys, err := publicKeys(flags.keys)
	if err != nil {
		return err
	}
	v, err := reports.Verify(path, reports.VerifyOptions{
		Builtin: texts.Set, Plan: asked, SuiteVersion: suiteVersion(),
		Agents: func(seed int64, cell string, a *reports.Agents) (*reports.Agents, error) {
			return nodes.Judge(nodes.Suffix(seed, cell), a.Seen, a.Problem)
		},
	})
	if err != nil {
		return err
	}
	flags.verified = v
	return conclude(c, v, keys, reports.Folder.Marker, v.Report.Outcome, reports.Plural(v.Verdicts, "verdict")+" recomputed from their evidence, all the same")
}

func verifyCertification(c *cobra.Command, path string, flags *verifyFlags) error {
	return verifyBundle(c, path, verifyBundleOptions{keys: flags.keys, certified: &flags.certified})
}
