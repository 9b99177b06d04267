package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/conformance/explore"
	"github.com/authzconf/authzconf/deputy"
	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/library"
	"github.com/authzconf/authzconf/drafts/granular"
	"github.com/authzconf/authzconf/engine/nodes"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/load"
	"github.com/authzconf/authzconf/reports/site"
)

func newVerify() *cobra.Command {
	var flags verifyFlags
	c := commandWith("verify FOLDER", func(c *cobra.Command, args []string) error { return verify(c, args[0], &flags) })
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

type reportKind struct {
	*filing.Kind
	// verify judges a report again.
	verify func(c *cobra.Command, path string, flags *verifyFlags) error
}

// reportKinds are all of them. Where two have the same marker file, its head tells them apart.
func reportKinds() []reportKind {
	return []reportKind{
		{&reports.Folder, verifyConformance},
		{&load.Folder, verifyLoad},
		{certify.Direct(nil).Folder(), verifyCertification},
		{certification.Kind(nil).Folder(), verifyCertification},
		recheck(&explore.Folder, "explore", newExplore, (*exploreFlags).again),
		recheck(&deputy.Folder, "deputy", newDeputy, (*deputyFlags).again),
		recheck(&library.Folder, "conditions library", newConditionsLibrary, libraryAgain),
		recheck(&certification.PlayedFolder, "conditions run", newConditionsRun, (*conditionsRunFlags).again),
		recheck(&filedExplore, "conditions explore", newConditionsExplore, (*conditionsExploreFlags).again),
		recheck(&granular.Folder, "granular", newGranular, (*granularFlags).again),
	}
}

func verify(c *cobra.Command, path string, flags *verifyFlags) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		if flags.dir != "" {
			return errors.New("--scenarios has no effect on a bundle: its scenarios cannot be chosen")
		}
		return verifyCertification(c, path, flags)
	}
	if reports.JudgedFolder.In(path) {
		keys, err := publicKeys(flags.keys)
		if err != nil {
			return err
		}
		return verifyReport(c, path, keys)
	}
	kinds, err := kindsIn(path)
	if err == nil {
		_, err = folderOr(flags.dir, nil)
	}
	if err != nil {
		return err
	}
	if flags.dir != "" && !slices.ContainsFunc(kinds, func(k reportKind) bool {
		return slices.Contains([]*filing.Kind{&reports.Folder, &granular.Folder, &certification.PlayedFolder}, k.Kind)
	}) {
		return fmt.Errorf("--scenarios has no effect on a %s: its scenarios cannot be chosen", kinds[0].Name)
	}
	for _, k := range kinds {
		if err := k.verify(c, path, flags); err != nil {
			return err
		}
	}
	return nil
}

func kindsIn(path string) ([]reportKind, error) {
	root, err := filing.OpenFolder(path) // which also says that it is none
	if err != nil {
		return nil, fmt.Errorf("cannot open the report folder: %w", err)
	}
	_ = root.Close()
	var markers []string
	var marked, known []reportKind
	for _, k := range reportKinds() {
		markers = seq.AppendMissing(markers, k.Marker)
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
	return known, nil
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

func newSite() *cobra.Command {
	var out string
	var flags verifyFlags
	c := commandWith("site DIR... --out DIR", func(c *cobra.Command, args []string) error {
		if out == "" {
			return errors.New("--out is missing: name the folder for the pages")
		}
		return writeSite(c, args, out, &flags)
	})
	c.Flags().StringVar(&out, "out", "", "folder for the pages")
	c.Flags().StringVar(&flags.dir, "scenarios", "", "folder of scenario files to judge by instead of the built-in ones")
	return c
}

func writeSite(c *cobra.Command, dirs []string, out string, flags *verifyFlags) error {
	if _, err := folderOr(flags.dir, nil); err != nil {
		return err
	}
	kinds := make([][]reportKind, len(dirs))
	for i, dir := range dirs {
		var err error
		if kinds[i], err = kindsIn(dir); err != nil {
			return err
		}
	}
	if err := site.Folder.CheckWritable(out); err != nil {
		return err
	}
	s := site.Site{SuiteVersion: suiteVersion()}
	var bundles []*site.Report
	var paths []string
	for i, dir := range dirs {
		for _, kind := range kinds[i] {
			r := s.Add(dir, kind.Name)
			if err := addReport(c, r, kind, dir, *flags); err != nil {
				return invalid(fmt.Errorf("%s: %w", dir, err))
			}
			if kind.Marker == certify.Direct(nil).Folder().Marker {
				bundles, paths = append(bundles, r), append(paths, dir)
			}
			_, _ = fmt.Fprintf(c.OutOrStdout(), "%s: %s: %s\n", dir, kind.Name, r.Outcome)
		}
	}
	err := addRegister(&s, bundles, paths)
	if err == nil {
		err = s.Write(out)
	}
	if err != nil {
		return invalid(err)
	}
	_, _ = fmt.Fprintf(c.OutOrStdout(), "%s: %d of %s verified\n", filepath.Join(out, "index.html"), s.Verified(), reports.Plural(len(s.Reports), "report"))
	return failedIf(s.Verified() < len(s.Reports))
}

const shownDifferences = 20

// addReport judges a report again. Of one that does not hold nothing is shown but why.
func addReport(c *cobra.Command, r *site.Report, kind reportKind, dir string, flags verifyFlags) error {
	var printed bytes.Buffer
	quiet := &cobra.Command{}
	quiet.SetContext(c.Context())
	quiet.SetOut(&printed)
	if err := kind.verify(quiet, dir, &flags); err != nil {
		r.Why = []string{err.Error()}
		for line := range strings.Lines(printed.String()) {
			if difference, ok := strings.CutPrefix(line, "differs: "); ok && len(r.Why) <= shownDifferences {
				r.Why = append(r.Why, strings.TrimSpace(difference))
			}
		}
		return nil
	}
	err := r.Copy(kind.Kind, dir)
	switch {
	case err != nil:
	case flags.verified != nil:
		err = r.Conformance(flags.verified)
	case kind.Kind == &load.Folder:
		err = r.Load(dir)
	case flags.certified != nil:
		r.Of, r.SuiteVersion, r.Started, r.Outcome = flags.certified.Title(), flags.certified.Harness, flags.certified.Started, site.NotCertified
		for _, level := range flags.certified.Levels {
			r.Outcome, r.Why = site.Certified, append(r.Why, "level "+string(level))
		}
	default:
		err = r.Recorded(kind.Marker)
	}
	return err
}

func addRegister(s *site.Site, bundles []*site.Report, paths []string) error {
	if len(bundles) == 0 {
		return nil
	}
	verify, err := verifier()
	if err != nil {
		return err
	}
	page, err := certify.Register(verify, suiteVersion(), ".", paths, nil)
	if err != nil {
		return err
	}
	for i, r := range bundles {
		page.Rows[i].Path = r.Base()
	}
	s.Authorizers, err = page.HTML()
	return err
}
