package reports

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// The layout of a report folder.
const (
	reportFile   = "report.yaml"
	junitFile    = "junit.xml"
	htmlFile     = "report.html"
	summaryFile  = "summary.md"
	evidenceDir  = "evidence"
	scenariosDir = "scenarios"
	fixturesDir  = "fixtures"
)

// Texts are the scenarios of a run with the files they were read from. The files become part of the report, so
// that it can be read and recomputed without authzconf's own copy of them.
type Texts struct {
	Set *scenarios.Set // what was loaded from Scenarios and Fixtures
	// Scenarios has each scenario as its ID with ".yaml".
	Scenarios fs.FS
	// Fixtures has each fixture by the path that scenarios name.
	Fixtures fs.FS
}

func evidencePath(cell, scenario string) string {
	return path.Join(evidenceDir, cell, scenario+".json")
}

// bundle renders every file of a report but report.yaml, by path, and returns the report as it is to be stored:
// redacted, with the digests of the files. Evidence was redacted before it was judged.
func bundle(r *ConformanceReport, evidence []*verdicts.Evidence, texts Texts) (map[string][]byte, *ConformanceReport, error) {
	files := map[string][]byte{}
	clean, err := record.RedactedCopy(r, "the report")
	if err != nil {
		return nil, nil, err
	}
	if err := addEvidence(files, evidence); err != nil {
		return nil, nil, err
	}
	if err := addTexts(files, texts); err != nil {
		return nil, nil, err
	}
	if clean.Path != nil {
		for _, e := range r.Path.Evidence {
			if files[stagePath(e.Cell)], err = record.EncodeJSON(e, "  "); err != nil {
				return nil, nil, err
			}
		}
	}
	clean.Files = nil
	pages, err := renderPages(clean, evidence, texts.Set)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(files, pages)
	clean.Files = map[string]string{}
	for name, data := range files {
		if !fs.ValidPath(name) || strings.ContainsAny(name, "\\:") {
			return nil, nil, fmt.Errorf("%q cannot be the name of a file in a report", name)
		}
		clean.Files[name] = sha256Hex(data)
	}
	return files, clean, nil
}

func addEvidence(files map[string][]byte, evidence []*verdicts.Evidence) error {
	rendered := make([][]byte, len(evidence))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, e := range evidence {
		group.Go(func() (err error) {
			rendered[i], err = record.EncodeJSON(e, "  ")
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, e := range evidence {
		name := evidencePath(e.Cell.Name, e.Scenario)
		if _, ok := files[name]; ok {
			return fmt.Errorf("there are two pieces of evidence of %s on %s", e.Scenario, e.Cell.Name)
		}
		files[name] = rendered[i]
	}
	return nil
}

// addTexts copies the scenarios and the fixtures they name, byte by byte: their digests are what evidence refers to.
func addTexts(files map[string][]byte, texts Texts) error {
	add := func(from fs.FS, folder, name string) error {
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return fmt.Errorf("copying the scenarios into the report: %w", err)
		}
		files[path.Join(folder, name)] = data
		return nil
	}
	for _, s := range texts.Set.All() {
		if err := add(texts.Scenarios, scenariosDir, s.ID+".yaml"); err != nil {
			return err
		}
		for _, f := range s.FixtureFiles() {
			if err := add(texts.Fixtures, fixturesDir, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckTexts finds scenarios and fixtures in which something looks like a credential. They go into the report as
// they are, so it has to be called before a run; Write refuses them.
func CheckTexts(texts Texts) error {
	files := map[string][]byte{}
	if err := addTexts(files, texts); err != nil {
		return err
	}
	return checkTexts(files)
}

func checkTexts(files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := string(packed.ReplaceAll(files[name], nil)) // packs are redacted before they are packed, and may look like anything
		if Redact(text) != text {
			return fmt.Errorf("%s holds what looks like a token or key, and would go into the report: take it out", name)
		}
	}
	return nil
}

// renderPages makes the files that show the report to people and CI systems. It depends on nothing but its
// arguments, so that Verify can make them again.
func renderPages(r *ConformanceReport, evidence []*verdicts.Evidence, set *scenarios.Set) (map[string][]byte, error) {
	p := newPage(r, evidence, set)
	return filing.Render(map[string]func() ([]byte, error){
		junitFile:   func() ([]byte, error) { return renderText("junit", p) },
		htmlFile:    func() ([]byte, error) { return renderHTML(p) },
		summaryFile: func() ([]byte, error) { return renderText("summary", p) },
	})
}

func encodeReport(r *ConformanceReport) ([]byte, error) {
	data, err := yaml.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append([]byte("# What authzconf found. Check it with: authzconf verify <this folder>\n"), data...), nil
}

// DecodeReport reads report.yaml, strictly: a field that this authzconf does not know may matter. name is for messages.
func DecodeReport(name string, data []byte) (*ConformanceReport, error) {
	if len(data) > filing.Limit {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, filing.Limit)
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("%s: %s", name, FirstLine(err.Error()))
	}
	if head.Kind != Kind || head.APIVersion != APIVersion {
		return nil, fmt.Errorf("%s: is %q of %q; this authzconf reads a %s of %s: run again for one", name, head.Kind, head.APIVersion, Kind, APIVersion)
	}
	r := &ConformanceReport{}
	if err := DecodeYAML(data, r); err != nil {
		return nil, fmt.Errorf("%s: %s", name, FirstLine(err.Error()))
	}
	return r, nil
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

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
		return slices.DeleteFunc(slices.Sorted(maps.Keys(head.Files)), func(name string) bool { return !ofReport(name) })
	},
	Reserved: []string{evidenceDir, pathDir, scenariosDir, fixturesDir, junitFile, htmlFile, summaryFile},
}

// SignatureFile is the signature of report.yaml, if there is one.
const SignatureFile = "report.dsse.json"

// Sign puts a signature of the marker into a folder that a report was written to, or takes the one away that was there before.
func Sign(dir, marker string, sign func(name string, report []byte) ([]byte, error)) error {
	root, err := filing.OpenFolder(dir)
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
// fixtures/. Complete has to have been called. No credential is written: the report passes through Redact, evidence has
// to have passed (RedactEvidence) before it was judged, and what still looks like one is an error.
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

// ofReport says whether a path is one that a report has. Its list of files is only text that somebody may have edited.
func ofReport(name string) bool {
	if top, _, nested := strings.Cut(name, "/"); nested {
		return fs.ValidPath(name) && (top == evidenceDir || top == pathDir || top == scenariosDir || top == fixturesDir)
	}
	return slices.Contains([]string{junitFile, htmlFile, summaryFile}, name)
}
