package load

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/load/run"
)

// The files of a report folder.
const (
	runFile      = "run.json"
	reportFile   = "report.json"
	perfDataFile = "perfdata.json"
	metricsFile  = "metrics.txt"
	summaryFile  = "summary.md"
	htmlFile     = "report.html"
)

var fileNames = []string{runFile, reportFile, perfDataFile, metricsFile, summaryFile, htmlFile}

// Folder is a load report in a folder.
var Folder = filing.Kind{
	Name: "load report", Marker: runFile,
	Head:  map[string]string{"kind": run.Kind, "apiVersion": "authzconf.dev/*"},
	Files: fileNames,
}

func render(r run.Run, result Result) (map[string][]byte, error) {
	return filing.Render(map[string]func() ([]byte, error){
		runFile:      func() ([]byte, error) { return filing.EncodeJSON(r) },
		reportFile:   func() ([]byte, error) { return filing.EncodeJSON(result) },
		perfDataFile: func() ([]byte, error) { return filing.EncodeJSON(perfData(&r)) },
		metricsFile:  func() ([]byte, error) { return openMetrics(&r) },
		summaryFile:  func() ([]byte, error) { return Markdown(&r, &result) },
		htmlFile:     func() ([]byte, error) { return HTML(&r, &result) },
	})
}

// Write writes run.json, report.json, perfdata.json, metrics.txt, summary.md and report.html to folder dir, which
// has to be missing, empty, or hold an earlier load report, which is replaced.
func Write(dir string, r run.Run, result Result) error {
	files, err := render(r, result)
	if err != nil {
		return err
	}
	return Folder.Write(dir, files)
}

// Load reads the run of a report folder, or of a file. What is not known is an error: a run that is judged without a
// part of it would be judged wrong.
func Load(path string) (r run.Run, err error) {
	r, _, err = read(path)
	return r, err
}

func read(path string) (r run.Run, digest string, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, runFile)
	}
	data, err := filing.ReadIn(filepath.Split(path))
	if err != nil {
		return r, "", fmt.Errorf("there is no load run: %w", err)
	}
	return r, fmt.Sprintf("%x", sha256.Sum256(data)), decode(path, data, &r, run.Kind)
}

// Saved is a run and the thresholds that were declared for it.
type Saved struct {
	Run        run.Run
	Thresholds Thresholds
	// Digest is the SHA-256 of the file of the run.
	Digest string
	// stored is what the report beside it says.
	stored Result
}

// LoadSaved reads the run of a report folder, and its thresholds from the report beside it.
func LoadSaved(dir string) (s Saved, err error) {
	if s.Run, s.Digest, err = read(dir); err != nil {
		return s, err
	}
	path := filepath.Join(dir, reportFile)
	data, err := filing.ReadIn(dir, reportFile)
	if err != nil {
		return s, fmt.Errorf("there is no load report: %w", err)
	}
	if err = decode(path, data, &s.stored, Kind); err == nil && (s.stored.Seed != s.Run.Seed || !s.stored.Started.Equal(s.Run.Started)) {
		err = fmt.Errorf("%s is the report of another run than the %s beside it", path, runFile)
	}
	s.Thresholds = s.stored.Thresholds
	return s, err
}

func decode(path string, data []byte, v any, kind string) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("%s is not JSON that authzconf wrote: %w", path, err)
	}
	if head.Kind != kind || head.APIVersion != run.APIVersion {
		return fmt.Errorf("%s is a %q of %q, expected a %s of %s", path, head.Kind, head.APIVersion, kind, run.APIVersion)
	}
	if err := reports.DecodeStrictly(data, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Verify judges the run of a report folder again, by the thresholds in its report, and lists in what the folder
// differs from what follows. An error means that there is no report to be verified. Tool is the version of this
// authzconf: pages are only expected to come out the same again if the report is of it. declared, if given, says which
// thresholds the text of the run's profile and its command amount to, and which comparisons: those of the report have to
// be the same, and a run that passed has all of them.
func Verify(dir, tool string, declared func(*run.Run) (Thresholds, []string, error)) (Result, []string, error) {
	saved, err := LoadSaved(dir)
	if err != nil {
		return Result{}, nil, err
	}
	r, stored := saved.Run, saved.stored
	result := Judge(r, stored.Thresholds)
	files, err := render(r, result)
	if err != nil {
		return Result{}, nil, err
	}
	var differences []string
	if declared != nil {
		t, compared, err := declared(&r)
		for _, name := range compared {
			if result.Outcome == Passed && !slices.ContainsFunc(r.Blocks, func(b run.Block) bool { return b.Comparison == name }) {
				differences = append(differences, fmt.Sprintf("the run has no block of the comparison %s, which its profile and command ask for", name))
			}
		}
		if err != nil {
			differences = append(differences, fmt.Sprintf("what the run was to keep cannot be told: %s", err))
		} else if change := reports.Change(stored.Thresholds, t); change != "" {
			differences = append(differences, "the thresholds of the report are not those of the run's profile and command: "+change)
		}
	}
	if stored.Outcome != result.Outcome {
		differences = append(differences, fmt.Sprintf("the report says %q, its run %q", stored.Outcome, result.Outcome))
	}
	for _, name := range fileNames {
		page := !slices.Contains([]string{runFile, reportFile}, name)
		if page && r.Tool != tool {
			continue
		}
		got, err := filing.ReadIn(dir, name)
		if err != nil {
			differences = append(differences, fmt.Sprintf("%s cannot be read: %s", name, strings.TrimPrefix(err.Error(), "open ")))
		} else if !bytes.Equal(got, files[name]) {
			differences = append(differences, name+" is not what follows from the run")
		}
	}
	return result, differences, nil
}
