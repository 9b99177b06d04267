package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sigsjson "sigs.k8s.io/json"

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

// fileNames are all of them.
var fileNames = []string{runFile, reportFile, perfDataFile, metricsFile, summaryFile, htmlFile}

// Folder is a load report in a folder.
var Folder = filing.Kind{
	Name: "load report", Marker: runFile,
	Head:  map[string]string{"kind": run.Kind, "apiVersion": "authzconf.dev/*"},
	Files: fileNames,
}

// render makes every file of a report folder.
func render(r run.Run, result Result) (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, content := range map[string]func() ([]byte, error){
		runFile:      func() ([]byte, error) { return filing.EncodeJSON(r) },
		reportFile:   func() ([]byte, error) { return filing.EncodeJSON(result) },
		perfDataFile: func() ([]byte, error) { return filing.EncodeJSON(perfData(&r)) },
		metricsFile:  func() ([]byte, error) { return openMetrics(&r) },
		summaryFile:  func() ([]byte, error) { return Markdown(&r, &result) },
		htmlFile:     func() ([]byte, error) { return HTML(&r, &result) },
	} {
		data, err := content()
		if err != nil {
			return nil, fmt.Errorf("rendering %s: %w", name, err)
		}
		files[name] = data
	}
	return files, nil
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

// Load reads the run of a report folder, or of a file, of this version or the one before. What is not known is an
// error: a run that is judged without a part of it would be judged wrong.
func Load(path string) (run.Run, error) {
	r, _, err := load(path)
	return r, err
}

// load says also of which version the file is.
func load(path string) (r run.Run, version string, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, runFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return r, "", fmt.Errorf("there is no load run: %w", err)
	}
	if version, err = decode(path, data, &r, run.Kind, run.APIVersion, run.OldVersion); err != nil {
		return run.Run{}, "", err
	}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		if version == run.OldVersion {
			b.Variant, b.Arm = b.Arm, b.Variant
		}
		if b.Arm != "" {
			return run.Run{}, "", fmt.Errorf("%s: block %d has the field of a variant as another version than %s writes it", path, i, version)
		}
	}
	r.APIVersion = run.APIVersion
	return r, version, nil
}

// Saved is a run and the thresholds that were declared for it, nil if they are not known.
type Saved struct {
	Run        run.Run
	Thresholds *Thresholds
}

// LoadSaved reads a run as Load does, and its thresholds from the report beside it, if there is one.
func LoadSaved(path string) (s Saved, err error) {
	if s.Run, err = Load(path); err != nil {
		return s, err
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		path = filepath.Dir(path)
	}
	path = filepath.Join(path, reportFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	var report struct {
		Started    time.Time
		Seed       int64
		Thresholds struct {
			Thresholds
			Arms map[string]Limits // the variants of the version before
		}
	}
	if err == nil {
		err = json.Unmarshal(data, &report)
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	if report.Seed != s.Run.Seed || !report.Started.Equal(s.Run.Started) {
		return s, fmt.Errorf("%s is the report of another run than the run.json beside it", path)
	}
	s.Thresholds = &report.Thresholds.Thresholds
	if report.Thresholds.Arms != nil {
		s.Thresholds.Variants = report.Thresholds.Arms
	}
	return s, nil
}

// decode reads a file of a kind and one of some versions, and says of which.
func decode(path string, data []byte, v any, kind string, versions ...string) (version string, err error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return "", fmt.Errorf("%s is not JSON that authzconf wrote: %w", path, err)
	}
	if head.Kind != kind || !slices.Contains(versions, head.APIVersion) {
		return "", fmt.Errorf("%s is a %q of %q, expected a %s of %s", path, head.Kind, head.APIVersion, kind, strings.Join(versions, " or "))
	}
	strict, err := sigsjson.UnmarshalStrict(data, v)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return head.APIVersion, nil
}

// Verify judges the run of a report folder again, by the thresholds in its report, and lists in what the folder
// differs from what follows. An error means that there is no report to be verified. Tool is the version of this
// authzconf: pages are only expected to come out the same again if the report is of it.
func Verify(dir, tool string) (Result, []string, error) {
	r, version, err := load(dir)
	if err != nil {
		return Result{}, nil, err
	}
	if version != run.APIVersion {
		return Result{}, nil, fmt.Errorf("%s is a load report of %s, which the authzconf that wrote it (%s) verifies: this one verifies %s, and only compares the earlier version",
			dir, version, r.Tool, run.APIVersion)
	}
	path := filepath.Join(dir, reportFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return Result{}, nil, fmt.Errorf("there is no load report: %w", err)
	}
	var stored Result
	if _, err := decode(path, data, &stored, Kind, APIVersion); err != nil {
		return Result{}, nil, err
	}
	result := Judge(r, stored.Thresholds)
	files, err := render(r, result)
	if err != nil {
		return Result{}, nil, err
	}
	var differences []string
	if stored.Outcome != result.Outcome {
		differences = append(differences, fmt.Sprintf("the report says %q, its run %q", stored.Outcome, result.Outcome))
	}
	for _, name := range fileNames {
		page := !slices.Contains([]string{runFile, reportFile}, name)
		if page && r.Tool != tool {
			continue
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			differences = append(differences, fmt.Sprintf("%s cannot be read: %s", name, strings.TrimPrefix(err.Error(), "open ")))
		} else if !bytes.Equal(got, files[name]) {
			differences = append(differences, name+" is not what follows from the run")
		}
	}
	return result, differences, nil
}
