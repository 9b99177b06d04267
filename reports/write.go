package reports

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/verdicts"
)

// Folder is a conformance report in a folder, with the files that its report.yaml lists.
var Folder = filing.Kind{
	Name: "report of authzconf", Marker: reportFile,
	Head: map[string]string{"kind": Kind, "apiVersion": apiGroup + "/*"},
	Listed: func(marker []byte) []string {
		var head struct {
			Files map[string]string `json:"files"`
		}
		if err := yaml.Unmarshal(marker, &head); err != nil {
			return nil
		}
		return slices.DeleteFunc(sortedKeys(head.Files), func(name string) bool { return !ofReport(name) })
	},
	Reserved: []string{evidenceDir, pathDir, scenariosDir, fixturesDir, junitFile, htmlFile, summaryFile},
}

// SignatureFile is the signature of report.yaml, if there is one.
const SignatureFile = "report.dsse.json"

// Sign puts a signature of the marker into a folder that a report was written to, or takes the one away that was there before.
func Sign(dir, marker string, sign func(name string, report []byte) ([]byte, error)) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.Remove(SignatureFile); sign == nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	report, err := root.ReadFile(marker)
	if err != nil {
		return err
	}
	signature, err := sign(marker, report)
	if err != nil {
		return err
	}
	return root.WriteFile(SignatureFile, signature, 0o644)
}

// Write writes the report folder dir: report.yaml, junit.xml, report.html, summary.md, evidence/, scenarios/ and
// fixtures/. Complete has to have been called. No credential is written: the report passes
// through Redact, evidence has to have passed (RedactEvidence) before it was judged, and what still looks like one is
// an error.
//
// dir has to be missing, empty, or hold an earlier report, which is replaced; files of others in it are left
// alone. report.yaml comes last, so that a folder with a report.yaml is whole. r.Files is set.
func Write(dir string, r *ConformanceReport, evidence []*verdicts.Evidence, texts Texts) error {
	files, clean, err := bundle(r, evidence, texts)
	if err != nil {
		return err
	}
	if err := checkTexts(files); err != nil {
		return err
	}
	r.Files = clean.Files
	if files[reportFile], err = encodeReport(clean); err != nil {
		return fmt.Errorf("rendering %s: %w", reportFile, err)
	}
	return Folder.Write(dir, files)
}

// ofReport says whether a path is one that a report has. Its list of files is only text that somebody may have
// edited.
func ofReport(name string) bool {
	top, _, nested := strings.Cut(name, "/")
	if nested {
		return fs.ValidPath(name) && (top == evidenceDir || top == pathDir || top == scenariosDir || top == fixturesDir)
	}
	return slices.Contains([]string{junitFile, htmlFile, summaryFile}, name)
}
