package reports

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/record"
)

// These are the files of a report's folder, in addition to those of the record.
const (
	ReportFile  = "report.yaml"
	JUnitFile   = "junit.xml"
	HTMLFile    = "report.html"
	SummaryFile = "summary.md"
	// SignatureFile is the signature of report.yaml, if there is one.
	SignatureFile = "report.dsse.json"
)

// recordFolders are the folders in which a record keeps its files.
var recordFolders = []string{"evidence", "scenarios", "fixtures", "inputs"}

// JudgedFolder is the kind of folder that a report is written to.
var JudgedFolder = filing.Kind{
	Name: "report of authzconf", Marker: ReportFile,
	Head:     map[string]string{"kind": ReportKind, "apiVersion": apiGroup + "/*"},
	Reserved: slices.Concat(recordFolders, []string{record.IndexFile, JUnitFile, HTMLFile, SummaryFile, SignatureFile}),
	ListedIn: listFiles,
}

// listFiles returns the files of the report in a folder: the pages that report.yaml lists, and the files of the record.
func listFiles(folder fs.FS, marker []byte) []string {
	var head struct {
		Pages map[string]string `json:"pages"`
	}
	if err := yaml.Unmarshal(marker, &head); err != nil {
		return nil
	}
	names := []string{record.IndexFile}
	if _, err := fs.Stat(folder, SignatureFile); err == nil {
		names = append(names, SignatureFile)
	}
	if index, err := filing.ReadFile(folder, record.IndexFile); err == nil {
		names = append(names, record.Index(index)...)
	}
	names = slices.AppendSeq(names, maps.Keys(head.Pages))
	return slices.DeleteFunc(names, func(name string) bool { return !belongsToReport(name) })
}

// belongsToReport reports whether a report can have a path. The lists in a folder are only text, which somebody may
// have edited.
func belongsToReport(name string) bool {
	if top, _, nested := strings.Cut(name, "/"); nested {
		return fs.ValidPath(name) && slices.Contains(recordFolders, top)
	}
	return slices.Contains([]string{record.IndexFile, JUnitFile, HTMLFile, SummaryFile, SignatureFile}, name)
}

// Encode returns report.yaml.
func (r *Report) Encode() ([]byte, error) {
	data, err := yaml.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append([]byte("# What authzconf found. Check it with: authzconf verify <this folder>\n"), data...), nil
}

// DecodeJudged reads report.yaml strictly, because a field that this authzconf does not know may matter. name is used
// in messages.
func DecodeJudged(name string, data []byte) (*Report, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("%s: %s", name, FirstLine(err.Error()))
	}
	if head.Kind != ReportKind || head.APIVersion != ReportVersion {
		return nil, fmt.Errorf(
			"%s: is %q of %q; this authzconf reads a %s of %s: run again for one",
			name,
			head.Kind,
			head.APIVersion,
			ReportKind,
			ReportVersion,
		)
	}
	r := &Report{}
	if err := record.DecodeYAML(data, r); err != nil {
		return nil, fmt.Errorf("%s: %s", name, FirstLine(err.Error()))
	}
	return r, nil
}

// Save writes a report with its record and its pages into a folder, and replaces an earlier report. The folder must be
// missing, empty, or have an earlier report; other files in it stay. The report is written last, so that a folder with
// a report.yaml is complete. sign, if it is given, makes the signature of report.yaml.
func Save(dir string, r *Report, log *record.Log, pages map[string][]byte, sign func(name string, report []byte) ([]byte, error)) error {
	files, err := log.Files()
	if err != nil {
		return err
	}
	r.Pages = map[string]string{}
	for name, page := range pages {
		files[name] = page
		r.Pages[name] = record.Digest(page)
	}
	if files[ReportFile], err = r.Encode(); err != nil {
		return fmt.Errorf("rendering %s: %w", ReportFile, err)
	}
	if sign != nil {
		if files[SignatureFile], err = sign(ReportFile, files[ReportFile]); err != nil {
			return err
		}
	}
	return JudgedFolder.Write(dir, files)
}

// ReadFolder returns a function that reads the files of the report in a folder. close must be called in the end.
func ReadFolder(dir string) (read func(name string) ([]byte, error), closeFolder func(), err error) {
	root, err := filing.OpenFolder(dir)
	if err != nil {
		return nil, nil, err
	}
	if _, err := root.Stat(ReportFile); err != nil {
		_ = root.Close()
		if os.IsNotExist(err) {
			return nil, nil, fmt.Errorf("%s has no %s: it is not the folder of a report", dir, ReportFile)
		}
		return nil, nil, err
	}
	read = func(name string) ([]byte, error) { return filing.ReadFile(root.FS(), name) }
	return read, func() { _ = root.Close() }, nil
}

// CompareReports lists how a report that was made again differs from the one that was read.
func CompareReports(read, recomputed *Report) []string {
	if change := Change(read, recomputed); change != "" {
		return []string{ReportFile + ": it is not what the record gives: " + change}
	}
	return []string{ReportFile + ": it says the same, but not as authzconf writes it"}
}
