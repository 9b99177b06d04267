package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/load"
	"github.com/authzconf/authzconf/reports/site"
)

func newSite() *cobra.Command {
	var out string
	var flags verifyFlags
	c := &cobra.Command{
		Use:  "site DIR... --out DIR",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if out == "" {
				return errors.New("--out is missing: name the folder for the pages")
			}
			return writeSite(c, args, out, &flags)
		},
	}
	c.Flags().StringVar(&out, "out", "", "folder for the pages")
	c.Flags().StringVar(&flags.dir, "scenarios", "", "folder of scenario files to judge by instead of the built-in ones")
	return c
}

// writeSite judges reports again, and makes pages of them.
func writeSite(c *cobra.Command, dirs []string, out string, flags *verifyFlags) error {
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

// shownDifferences is how many of those of a report that does not hold are listed.
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

// addRegister adds the page of the certified authorizers, if there are any.
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
