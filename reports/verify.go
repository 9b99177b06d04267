package reports

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// VerifyOptions say what a report is compared with besides itself.
type VerifyOptions struct {
	// Builtin are the scenarios to judge by: a report that was made with others differs. Nil compares nothing.
	Builtin *scenarios.Set
	// Plan says what the command line of a report asks for, as a report of nothing run. Nil holds it to nothing.
	Plan func(*ConformanceReport, *scenarios.Set) (*ConformanceReport, error)
	// Agents judges what was seen of the node agents of a cell, as Cell.Agents has it.
	Agents func(seed int64, cell string, a *Agents) (*Agents, error)
	// SuiteVersion is the version of this authzconf. Pages need only come out the same if the report is of it.
	SuiteVersion string
}

// Verification is what became of recomputing a report.
type Verification struct {
	// Report is what was read, Recomputed the same as it follows from the evidence.
	Report, Recomputed *ConformanceReport
	// Set are the scenarios of the report, Evidence what was seen of them, Digest the SHA-256 of report.yaml,
	// which holds those of all other files.
	Set      *scenarios.Set
	Evidence []*verdicts.Evidence
	Digest   string
	Verdicts int // how many were recomputed
	// Marker is report.yaml as it was read, Signature what is stored as its signature, nil if nothing is.
	Marker, Signature []byte
	// Differences are where the folder is not whole, or does not say what its evidence says.
	Differences []string
	// Notes are worth knowing but no difference. Unjudged are what only another authzconf could judge.
	Notes, Unjudged []string
}

// OK says whether the report holds.
func (v *Verification) OK() bool { return len(v.Differences) == 0 }

// Verify recomputes the report in folder dir: the digest of each file, every verdict, the selection of
// scenarios, what follows from the witness, summaries, findings, known-failing states, the outcome and the pages. What
// was selected is held to the command line; names, audit IDs and times to each other. An error means that there is no
// report to be verified.
func Verify(dir string, o VerifyOptions) (*Verification, error) {
	v, done, err := open(dir, reportFile)
	if err != nil {
		return nil, err
	}
	defer done()
	if v.Report, err = DecodeReport(path.Join(dir, reportFile), v.Marker); err != nil {
		return nil, err
	}
	v.readFiles(ofReport)
	if v.loadScenarios(o.Builtin) {
		v.recompute()
		v.holdToCommand(o)
		v.holdAgents(o)
		v.holdTogether()
		v.compare(o.SuiteVersion)
		v.comparePages(o.SuiteVersion)
	}
	v.Set, v.Evidence, v.Digest = v.set, v.evidence, sha256Hex(v.Marker)
	return v.Verification, nil
}

func open(dir, marker string) (v *verifier, done func(), err error) {
	root, err := filing.OpenFolder(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open the report folder: %w", err)
	}
	v = &verifier{Verification: &Verification{}, marker: marker, root: root.FS(), files: map[string][]byte{}}
	if v.Marker, err = filing.ReadFile(v.root, marker); err != nil {
		_ = root.Close()
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("%s has no %s: no report was finished there", dir, marker)
		}
		return nil, nil, fmt.Errorf("%s: %w", marker, err)
	}
	if v.Signature, err = filing.ReadFile(v.root, SignatureFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		v.differ("%s: %v", SignatureFile, err)
	}
	return v, func() { _ = root.Close() }, nil
}

type verifier struct {
	*Verification
	marker   string
	root     fs.FS
	files    map[string][]byte // all but the marker
	set      *scenarios.Set
	evidence []*verdicts.Evidence
}

func (v *verifier) differ(format string, args ...any) {
	v.Differences = append(v.Differences, fmt.Sprintf(format, args...))
}

func (v *verifier) note(format string, args ...any) {
	v.Notes = append(v.Notes, fmt.Sprintf(format, args...))
}

// folderLimit is how much of a folder is held in memory at once: a matrix of fourteen cells has 100 MiB.
const folderLimit = 2 << 30

// readFiles holds the folder to the report's list of files. owns says which others would be files of the report.
func (v *verifier) readFiles(owns func(name string) bool) {
	size := 0
	err := fs.WalkDir(v.root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == v.marker || name == SignatureFile {
			return err
		}
		want, listed := v.Report.Files[name]
		switch {
		case !listed && owns(name):
			v.differ("%s: is not a file of the report", name)
			return nil
		case !listed:
			v.note("%s: is not a file of the report", name)
			return nil
		}
		data, err := filing.ReadFile(v.root, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if size += len(data); size > folderLimit {
			return fmt.Errorf("%s: the files of the report are larger than %d bytes together", name, folderLimit)
		}
		if got := sha256Hex(data); got != want {
			v.differ("%s: was changed: its SHA-256 is %s, the report has %s", name, ShortDigest(got), ShortDigest(want))
		}
		v.files[name] = data
		return nil
	})
	if err != nil {
		v.differ("reading the folder: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Report.Files)) {
		if _, ok := v.files[name]; !ok {
			v.differ("%s: is missing", name)
		}
	}
}

func (v *verifier) loadScenarios(builtin *scenarios.Set) bool {
	texts, _ := fs.Sub(v.root, scenariosDir) // both paths are valid ones
	fixtures, _ := fs.Sub(v.root, fixturesDir)
	var err error
	if v.set, err = scenarios.Load(texts, fixtures); err != nil {
		v.differ("the scenarios of the report cannot be loaded, so nothing can be recomputed: %v", err)
		return false
	}
	if builtin != nil {
		v.holdBuiltin(builtin)
	}
	return true
}

func (v *verifier) recompute() {
	again := *v.Report
	again.Cells = nil
	at := v.readEvidence()
	for _, c := range v.Report.Cells {
		results := c.Results
		c.Results, c.NotRun = nil, slices.Clone(c.NotRun)
		for _, r := range results {
			k := key{c.Name, r.Scenario}
			e, ok := at[k]
			delete(at, k)
			s, known := v.set.Get(r.Scenario)
			switch {
			case ok && e.Cell != c.Cell:
				v.differ("%s: the evidence is of another cell than the report's %s", evidencePath(c.Name, r.Scenario), c.Name)
			case ok && e.Authorizer:
				v.differ("%s: another authorizer than RBAC is said to have held the grants, and none is known in a run", evidencePath(c.Name, r.Scenario))
			case ok && known:
				r = verdicts.Judge(s, e)
				v.Verdicts++
			case Executed(r.Verdict):
				v.differ("%s on %s: there is no evidence for the verdict %s", r.Scenario, c.Name, r.Verdict)
				continue
			}
			c.Results = append(c.Results, r)
		}
		if c.Problem == "" {
			c.Witness.Mismatches = c.Witness.Judge(c.Cell, c.Facts.Capabilities)
		}
		v.checkSelection(&c)
		again.Cells = append(again.Cells, c)
	}
	for _, e := range at {
		v.differ("%s: the report has no result for this evidence", evidencePath(e.Cell.Name, e.Scenario))
	}
	v.recomputePath(&again)
	again.Complete(v.set, v.evidence, statedOnly(v.Report.KnownFailing))
	v.Recomputed = &again
}

// checkStages holds the stages to the cells and to the evidence: one for each.
func (v *verifier) checkStages() {
	var of []string
	if v.Report.Path != nil {
		of = append(of, seq.Map(v.Report.Path.Stages, func(stage PathStage) string { return stage.Cell })...)
		if !slices.EqualFunc(of, v.Report.Cells, func(stage string, c Cell) bool { return stage == c.Name }) {
			v.differ("the stages of the path are not the cells of the report")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.files)) {
		if strings.HasPrefix(name, pathDir+"/") && !slices.ContainsFunc(of, func(stage string) bool { return stagePath(stage) == name }) {
			v.differ("%s: the report has no stage for this evidence", name)
		}
	}
}

// recomputePath reads what was seen on the stages of a path.
func (v *verifier) recomputePath(again *ConformanceReport) {
	v.checkStages()
	if v.Report.Path == nil {
		return
	}
	path := *v.Report.Path
	path.Stages, path.Evidence = slices.Clone(path.Stages), nil
	for _, stage := range path.Stages {
		data, ok := v.files[stagePath(stage.Cell)]
		if !ok {
			continue // derive says that the stage was not reached
		}
		e := &StageEvidence{}
		if err := DecodeStrictly(data, e); err != nil || e.Cell != stage.Cell {
			v.differ("%s: is not the evidence of stage %s", stagePath(stage.Cell), stage.Cell)
			continue
		}
		v.rejudge(e)
		path.Evidence = append(path.Evidence, e)
	}
	again.Path = &path
}

// rejudge judges all requests that flowed anew.
func (v *verifier) rejudge(e *StageEvidence) {
	if e.Flow == nil {
		return
	}
	stored := *e.Flow
	e.Flow.Judge(func(name, setup string) (*scenarios.Scenario, verdicts.Cell) {
		cell := v.Report.cellNamed(name)
		if cell == nil {
			return nil, verdicts.Cell{}
		}
		for _, r := range cell.Results {
			if s, known := v.set.Get(r.Scenario); known && s.Setup == setup && len(s.Steps) == 1 && Executed(r.Verdict) {
				return s, cell.Cell
			}
		}
		return nil, verdicts.Cell{}
	})
	if !same(stored, *e.Flow) {
		v.differ("%s: what flowed is not what its samples say: %s", stagePath(e.Cell), change(stored, *e.Flow))
	}
}

// checkSelection holds a cell to its facts: what was run had to be, what was not had not to be.
func (v *verifier) checkSelection(c *Cell) {
	facts := c.Facts
	selected := func(id string) (ok bool, missing int) {
		s, known := v.set.Get(id)
		if !known {
			return false, 0
		}
		if facts.Capabilities.Foreign() {
			ok, unsupported, _ := s.SelectedThere(facts)
			return ok, map[bool]int{true: 1}[unsupported]
		}
		ok, lacks, _ := s.Selected(facts)
		return ok, len(lacks)
	}
	for _, r := range c.Results {
		ok, missing := selected(r.Scenario)
		switch {
		case Executed(r.Verdict) && !ok:
			v.differ("%s on %s: was run, but is not for this target", r.Scenario, c.Name)
		case r.Verdict == verdicts.NotSupported && missing == 0:
			v.differ("%s on %s: the report says that the target lacks a capability, it does not", r.Scenario, c.Name)
		}
	}
	for _, n := range c.NotRun {
		if n.Cause == CausePath && v.Report.Path != nil {
			continue
		}
		if ok, missing := selected(n.Scenario); n.Cause != CauseUser && (ok || missing > 0) {
			v.differ("%s on %s: the report says that it is for another version or gate, it is not", n.Scenario, c.Name)
		}
	}
	for _, e := range v.evidence {
		if e.Cell.Name == c.Name && len(e.Problems) == 0 && !slices.Equal(e.Capabilities, c.Facts.Capabilities) {
			v.differ("%s: the target showed %v, the report says %v", evidencePath(c.Name, e.Scenario), e.Capabilities, c.Facts.Capabilities)
		}
	}
}

// readEvidence decodes the evidence files; each has to be where its content says.
func (v *verifier) readEvidence() map[key]*verdicts.Evidence {
	at := map[key]*verdicts.Evidence{}
	for _, name := range slices.Sorted(maps.Keys(v.files)) {
		if !strings.HasPrefix(name, evidenceDir+"/") {
			continue
		}
		e, err := decodeEvidence(v.files[name])
		if err != nil {
			v.differ("%s: %v", name, err)
			continue
		}
		if evidencePath(e.Cell.Name, e.Scenario) != name {
			v.differ("%s: is the evidence of %s on %s", name, e.Scenario, e.Cell.Name)
			continue
		}
		at[key{e.Cell.Name, e.Scenario}] = e
		v.evidence = append(v.evidence, e)
	}
	return at
}

func decodeEvidence(data []byte) (*verdicts.Evidence, error) {
	e := &verdicts.Evidence{}
	return e, DecodeStrictly(data, e)
}

// DecodeStrictly is record.DecodeStrictly.
func DecodeStrictly(data []byte, into any) error { return record.DecodeStrictly(data, into) }

// DecodeYAML is record.DecodeYAML.
func DecodeYAML(data []byte, into any) error { return record.DecodeYAML(data, into) }
