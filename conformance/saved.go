package conformance

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing/fstest"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
)

// Saved is a report of scenarios that was read from its folder, with its record.
type Saved struct {
	Report *reports.Report
	View   record.View
}

// ReadSaved reads the report of a run or of an upgrade path. Its files are whole; whether it says what its evidence says
// is for verify.
func ReadSaved(dir string) (*Saved, error) {
	read, done, err := reports.ReadFolder(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	marker, err := read(reports.ReportFile)
	if err != nil {
		return nil, err
	}
	s := &Saved{}
	if s.Report, err = reports.DecodeJudged(filepath.Join(dir, reports.ReportFile), marker); err != nil {
		return nil, err
	}
	if !IsOfScenarios(s.Report) {
		return nil, fmt.Errorf(
			"%s is a report of %s, and this is about reports of scenarios: those of run and upgrade",
			dir,
			s.Report.Product,
		)
	}
	var broken []string
	if s.View, broken = record.Open(read, s.Report.Record); len(broken) > 0 {
		return nil, fmt.Errorf("%s: %s", dir, broken[0])
	}
	return s, nil
}

// IsOfScenarios reports whether the cases of a report are scenarios on cells.
func IsOfScenarios(r *reports.Report) bool {
	return r.Product == Product.Name || r.Product == UpgradeName
}

// UpgradeName is the name of the product that runs scenarios along upgrade paths.
const UpgradeName = "upgrade"

// LoadRecorded loads the scenarios that a record has.
func LoadRecorded(view record.View) (*scenarios.Set, error) {
	load := func(folder string) fstest.MapFS {
		files := fstest.MapFS{}
		for name, data := range view.FilesIn(folder) {
			files[name] = &fstest.MapFile{Data: data}
		}
		return files
	}
	return scenarios.Load(load(scenariosFolder), load(fixturesFolder))
}

// group returns the group of a name, or the only one if the name is empty. dir is for messages.
func (s *Saved) group(dir, name string) (*reports.Group, error) {
	groups := s.Report.Groups
	if name == "" && len(groups) == 1 {
		return &groups[0], nil
	}
	var names []string
	for i := range groups {
		if groups[i].Name == name {
			return &groups[i], nil
		}
		names = append(names, groups[i].Name)
	}
	if name == "" {
		return nil, fmt.Errorf("%s has %d cells: say which as %s:CELL, of %s", dir, len(groups), dir, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("%s has no cell %q, only %s", dir, name, strings.Join(names, ", "))
}
