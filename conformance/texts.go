package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
)

// Texts are the scenarios of a run with the files that they were read from, which become part of the record.
type Texts struct {
	// Set is what was loaded from Scenarios and Fixtures.
	Set *scenarios.Set
	// Scenarios has each scenario as its ID with ".yaml".
	Scenarios fs.FS
	// Fixtures has each fixture by the path that scenarios name.
	Fixtures fs.FS
}

// The folders of the record that have the texts.
const (
	scenariosFolder = "scenarios"
	fixturesFolder  = "fixtures"
)

// LoadTexts loads the scenarios of a folder, or the built-in ones if it is empty. The error names all that is wrong.
func LoadTexts(dir string) (Texts, error) {
	t := Texts{Scenarios: scenarios.FS, Fixtures: fixtures.FS}
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return t, fmt.Errorf("--scenarios %s: there is no such folder", dir)
		}
		t.Scenarios = os.DirFS(dir)
	}
	var err error
	if t.Set, err = scenarios.Load(t.Scenarios, t.Fixtures); err != nil {
		return t, locateErrors(dir, err)
	}
	return t, nil
}

// locateErrors gives the errors of scenario files the paths that they have for the user, a line each for editors to link.
func locateErrors(dir string, err error) error {
	all, ok := errors.AsType[scenarios.Errors](err)
	if !ok {
		return err
	}
	for _, e := range all {
		e.File = filepath.Join(dir, e.File)
	}
	return fmt.Errorf("%s in %s:\n%w", reports.Plural(len(all), "error"), cmp.Or(dir, "the built-in scenarios"), all)
}

// Only returns the texts of the scenarios that are kept.
func (t Texts) Only(set *scenarios.Set) Texts {
	t.Set = set
	return t
}

// files returns the scenarios and the fixtures that they name, byte by byte, as they are in a record.
func (t Texts) files() (map[string][]byte, error) {
	files := map[string][]byte{}
	add := func(from fs.FS, folder, name string) error {
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return fmt.Errorf("copying the scenarios into the report: %w", err)
		}
		files[path.Join(folder, name)] = data
		return nil
	}
	for _, s := range t.Set.All() {
		if err := add(t.Scenarios, scenariosFolder, s.ID+".yaml"); err != nil {
			return nil, err
		}
		for _, f := range s.FixtureFiles() {
			if err := add(t.Fixtures, fixturesFolder, f); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}

// CheckSecrets returns an error if something in the texts looks like a credential: they go into the record as they are.
func (t Texts) CheckSecrets() error {
	files, err := t.files()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if record.Redact(string(files[name])) != string(files[name]) {
			return fmt.Errorf("%s holds what looks like a token or key, and would go into the report: take it out", name)
		}
	}
	return nil
}

// Record makes the texts part of a record.
func (t Texts) Record(log *record.Log) error {
	files, err := t.files()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := log.AppendFile(name, files[name]); err != nil {
			return err
		}
	}
	return nil
}

// CheckRecorded returns an error unless a record has exactly these texts.
func (t Texts) CheckRecorded(view record.View) error {
	files, err := t.files()
	if err != nil {
		return err
	}
	recorded := map[string][]byte{}
	for _, folder := range []string{scenariosFolder, fixturesFolder} {
		for name, data := range view.FilesIn(folder) {
			recorded[path.Join(folder, name)] = data
		}
	}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data, known := recorded[name]
		delete(recorded, name)
		switch {
		case !known:
			wrong = append(wrong, name+" is missing")
		case string(data) != string(files[name]):
			wrong = append(wrong, name+" has another text")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		wrong = append(wrong, name+" is not one of them")
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("the scenario texts differ from those to judge by (built in, unless --scenarios names others): %s; the first: %s",
		reports.Plural(len(wrong), "difference"), wrong[0])
}
