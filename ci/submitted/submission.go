package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/reports"
)

// The two parts of a submission.
const (
	readmeFile   = "README.md"
	bundleFolder = "bundle"
)

// submission is a report that was submitted: reports/submitted/VERSION/ORGANISATION-PRODUCT.
type submission struct {
	// path is where it is, for messages and for the table.
	path string
	// version is the version of authzconf that made it, and name the folder's, ORGANISATION-PRODUCT.
	version, name string
	readme        *readme
	report        *reports.Report
}

var (
	// versionForm fits what authzconf calls itself: a release or pseudo-version, as go install writes it, or a commit, as make
	// build does. What follows "dirty" is nobody's version.
	versionForm = regexp.MustCompile(`^(v[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.]+(-[0-9a-f]{12})?)?|[0-9a-f]{8,40})$`)
	nameForm    = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)
)

// findSubmissions returns all submissions below a folder, oldest version first.
func findSubmissions(folder string) (all []*submission, err error) {
	versions, err := os.ReadDir(folder)
	if err != nil {
		return nil, formErrorf("%s cannot be read: %v", folder, err)
	}
	for _, v := range versions {
		if !v.IsDir() || !versionForm.MatchString(v.Name()) {
			return nil, formErrorf(
				"%s: expected a folder that is called like the version of authzconf which made the reports in it, such as v0.1.0 (authzconf version says it)",
				filepath.Join(folder, v.Name()),
			)
		}
		products, err := os.ReadDir(filepath.Join(folder, v.Name()))
		if err != nil {
			return nil, formErrorf("%s cannot be read: %v", folder, err)
		}
		for _, p := range products {
			path := filepath.Join(folder, v.Name(), p.Name())
			if !p.IsDir() || !nameForm.MatchString(p.Name()) {
				return nil, formErrorf(
					"%s: expected a folder ORGANISATION-PRODUCT of lower-case letters, digits and dashes, such as acme-authorizer",
					path,
				)
			}
			all = append(all, &submission{path: path, version: v.Name(), name: p.Name()})
		}
	}
	return all, nil
}

// check reads a submission, and returns the first thing that is not in order. Whether its bundle verifies comes last: it
// takes longest.
func (s *submission) check(ctx context.Context, verify verifier) error {
	if err := s.checkLayout(); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(s.path, readmeFile))
	if err != nil {
		return formErrorf("%v", err)
	}
	if s.readme, err = parseReadme(string(text)); err != nil {
		return err
	}
	if err := checkContents(s.path); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(s.path, bundleFolder, reports.ReportFile))
	if err != nil {
		return formErrorf("%v (expected what --report-dir wrote, unchanged)", err)
	}
	if s.report, err = reports.DecodeJudged(reports.ReportFile, data); err != nil {
		return formErrorf("%s/%v", bundleFolder, err)
	}
	if err := s.checkClaims(); err != nil {
		return err
	}
	if err := verify(ctx, s.version, filepath.Join(s.path, bundleFolder)); err != nil {
		return fmt.Errorf("%s: %w", bundleFolder, err)
	}
	return nil
}

// checkLayout wants the two parts of a submission, and nothing else.
func (s *submission) checkLayout() error {
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return formErrorf("%v", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() != (e.Name() == bundleFolder) {
			return formErrorf("%s: expected %s, a file, and %s, a folder", e.Name(), readmeFile, bundleFolder)
		}
		names = append(names, e.Name())
	}
	if want := []string{readmeFile, bundleFolder}; !slices.Equal(names, want) {
		return formErrorf("it has %s (expected %s, and nothing else)", orNothing(names), strings.Join(want, " and "))
	}
	return nil
}

func orNothing(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// onOneLine returns a text without its line ends.
func onOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
