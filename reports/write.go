package reports

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/verdicts"
)

// stagingDir is where a report is written before it takes the place of an
// earlier one. It holds previousFile while that goes on.
const (
	stagingDir   = ".authzconf-new"
	previousFile = "previous.yaml"
	probeFile    = ".authzconf-probe"
)

// Write writes the report folder dir: report.yaml, junit.xml, report.html,
// summary.md, evidence/, scenarios/ and fixtures/. Complete has to have been
// called. No credential is written: everything passes through Redact.
//
// dir has to be missing, empty, or hold an earlier report, which is replaced;
// files of others in it are left alone. report.yaml comes last, so that a folder
// with a report.yaml is whole. r.Files is set.
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
	if err := CheckWritable(dir); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	defer func() { _ = root.Close() }()
	if err := install(root, files); err != nil {
		return fmt.Errorf("writing the report to %s: %w", dir, err)
	}
	return nil
}

// CheckWritable says whether Write could write to dir, and creates dir where it
// is missing. It is to be called before a run, so that no run ends without a
// place for its report.
func CheckWritable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("the report folder cannot be made: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("the report folder cannot be opened: %w", err)
	}
	defer func() { _ = root.Close() }()
	if err := replaceable(root); err != nil {
		return fmt.Errorf("%s %w; give another folder, or empty it", dir, err)
	}
	if err := root.WriteFile(probeFile, nil, 0o644); err != nil {
		return fmt.Errorf("the report folder cannot be written to: %w", err)
	}
	return root.Remove(probeFile)
}

// replaceable says why a folder may not be written to: it is neither empty nor
// an earlier report, or has a file of somebody else's where the report goes.
func replaceable(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	owned := ownedFiles(root)
	var foreign []string
	for _, e := range entries {
		if e.Name() != stagingDir && e.Name() != probeFile && e.Name() != reportFile {
			foreign = append(foreign, e.Name())
		}
	}
	if len(owned) == 0 && (len(foreign) > 0 || exists(root, reportFile)) {
		return errors.New("is not empty and holds no earlier report of authzconf")
	}
	for _, name := range []string{evidenceDir, pathDir, scenariosDir, fixturesDir, junitFile, htmlFile, summaryFile} {
		err := fs.WalkDir(root.FS(), name, func(p string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && (d.IsDir() || owned[p]) {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("holds %s, which is not of the earlier report", p)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ownedFiles are those that belong to a report of authzconf in the folder, by
// what its report.yaml says, or those in the staging folder if an earlier
// replacement was cut short. The report may be of another version.
func ownedFiles(root *os.Root) map[string]bool {
	owned := map[string]bool{}
	for _, name := range []string{reportFile, path.Join(stagingDir, reportFile), path.Join(stagingDir, previousFile)} {
		data, err := root.ReadFile(name)
		if err != nil {
			continue
		}
		var head struct {
			APIVersion string            `json:"apiVersion"`
			Kind       string            `json:"kind"`
			Files      map[string]string `json:"files"`
		}
		if err := yaml.Unmarshal(data, &head); err != nil || head.Kind != Kind || !strings.HasPrefix(head.APIVersion, apiGroup+"/") {
			continue
		}
		owned[reportFile] = true
		for f := range maps.Keys(head.Files) {
			if ofReport(f) {
				owned[f] = true
			}
		}
	}
	return owned
}

// ofReport says whether a path is one that a report has. Its list of files is
// only text that somebody may have edited.
func ofReport(name string) bool {
	top, _, nested := strings.Cut(name, "/")
	if nested {
		return fs.ValidPath(name) && (top == evidenceDir || top == pathDir || top == scenariosDir || top == fixturesDir)
	}
	return slices.Contains([]string{junitFile, htmlFile, summaryFile}, name)
}

func exists(root *os.Root, name string) bool {
	_, err := root.Lstat(name)
	return err == nil
}

// install writes files beside the earlier report, if there is one, then puts
// them in its place. Cut short at any point it leaves no report.yaml that does
// not fit the other files, and a later Write mends the folder.
func install(root *os.Root, files map[string][]byte) error {
	old := ownedFiles(root)
	if exists(root, path.Join(stagingDir, previousFile)) {
		// A replacement was cut short: what it was to install is not wanted any
		// more, but its lists say what to remove.
		if err := removeOwned(root, old); err != nil {
			return err
		}
	}
	if err := root.RemoveAll(stagingDir); err != nil {
		return err
	}
	for _, name := range sortedKeys(files) {
		to := path.Join(stagingDir, name)
		if err := root.MkdirAll(path.Dir(to), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(to, files[name], 0o644); err != nil {
			return err
		}
	}
	if exists(root, reportFile) {
		if err := root.Rename(reportFile, path.Join(stagingDir, previousFile)); err != nil {
			return err
		}
	}
	if err := removeOwned(root, old); err != nil {
		return err
	}
	for _, name := range sortedKeys(files) {
		if name == reportFile {
			continue
		}
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := root.Rename(path.Join(stagingDir, name), name); err != nil {
			return err
		}
	}
	if err := root.Rename(path.Join(stagingDir, reportFile), reportFile); err != nil {
		return err
	}
	return root.RemoveAll(stagingDir)
}

// removeOwned removes the files of an earlier report, and the folders that this
// empties.
func removeOwned(root *os.Root, owned map[string]bool) error {
	for _, name := range sortedKeys(owned) {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for d := path.Dir(name); d != "."; d = path.Dir(d) {
			if root.Remove(d) != nil {
				break // Not empty yet, or not there.
			}
		}
	}
	return nil
}
