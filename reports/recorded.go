package reports

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Record is what a report has that follows from its evidence: how it was made, and what came out. The reports of
// explore, deputy, granular and conditions embed it.
type Record struct {
	SuiteVersion string           `json:"suiteVersion"`
	Command      []string         `json:"command"` // the command line that was given, program name included
	Outcome      verdicts.Verdict `json:"outcome"` // passed, failed or invalid
	// Files maps every other file of the folder to its SHA-256.
	Files map[string]string `json:"files,omitempty"`
}

// Made is the record of a report.
func (r *Record) Made() *Record { return r }

// Pages are files that are made from the evidence besides those that every report has: most have none.
func (r *Record) Pages() (map[string][]byte, error) { return nil, nil }

// Brief is a report as people and CI systems read it: what it is about, and a case for each thing that it says.
type Brief struct {
	Suite  string // in JUnit
	Report any    // what it is made of
	Facts  []string
	Cases  []Case
}

// Case is one thing that a report says. Lines are what was found, or why nothing was.
type Case struct {
	Name    string
	Verdict verdicts.Verdict
	Lines   []string
}

// Add adds a case, for brief.tmpl, to which it is nothing. Empty lines are left out.
func (b *Brief) Add(name string, v verdicts.Verdict, lines ...string) string {
	b.Cases = append(b.Cases, Case{name, v, slices.DeleteFunc(lines, func(line string) bool { return line == "" })})
	return ""
}

// BriefFiles are the names of the pages of a Brief, and of the signature beside them.
var BriefFiles = []string{HTMLFile, JUnitFile, SummaryFile, SignatureFile}

// BriefPages are report.html, junit.xml and summary.md of a kind of report, with the cases that brief.tmpl finds
// in it, and the pages of its own.
func BriefPages(kind string, report any) (map[string][]byte, error) {
	b := &Brief{Suite: strings.TrimPrefix(kind, "report of "), Report: report}
	facts, err := renderText("cases of "+kind, b)
	if err != nil {
		return nil, err
	}
	b.Facts = slices.DeleteFunc(strings.Split(string(facts), "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
	var page bytes.Buffer
	failed := pageTemplates.ExecuteTemplate(&page, "brief", b)
	junit, unwritten := renderText("brief junit", b)
	summary, err := renderText("brief", b)
	all := map[string][]byte{HTMLFile: []byte(Redact(page.String())), JUnitFile: junit, SummaryFile: summary}
	if r, ok := report.(Recorded); ok {
		own, unmade := r.Pages()
		maps.Copy(all, own)
		err = errors.Join(err, unmade)
	}
	return all, errors.Join(failed, unwritten, err)
}

// Conclude sets the outcome.
func (r *Record) Conclude(failed, invalid bool) { r.Outcome = OutcomeOf(failed, invalid) }

// OutcomeOf is what something amounts to: nothing that is invalid hides a failure.
func OutcomeOf(failed, invalid bool) verdicts.Verdict {
	switch {
	case failed:
		return verdicts.Failed
	case invalid:
		return verdicts.Invalid
	}
	return verdicts.Passed
}

// Recorded is a report with a record.
type Recorded interface {
	Made() *Record
	Pages() (map[string][]byte, error)
}

// Pieces are the pieces of evidence of a report, by their names. They are safe for concurrent use.
type Pieces struct {
	mu    sync.Mutex
	files map[string][]byte
	taken map[string]bool
}

// evidenceSuffix ends the names of the files: JSON, packed.
const evidenceSuffix = ".json.gz"

func pieceFile(name string) string { return path.Join("evidence", name+evidenceSuffix) }

// Keep makes a piece of evidence of what was seen, without credentials, and returns that: what is judged is what is kept.
func Keep[T any](p *Pieces, name string, seen *T) (*T, error) {
	clean, err := record.RedactedCopy(seen, "the evidence "+name)
	if err != nil {
		return nil, err
	}
	return clean, KeepRedacted(p, name, clean)
}

// KeepRedacted is Keep of what has no credential any more: all evidence in it has passed through RedactEvidence.
func KeepRedacted[T any](p *Pieces, name string, clean *T) error {
	raw, err := record.EncodeJSON(clean, "")
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(raw)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil {
		p.files = map[string][]byte{}
	}
	p.files[pieceFile(name)] = packed.Bytes()
	return nil
}

// Take reads a piece of evidence, strictly. It is an error if there is none.
func Take[T any](p *Pieces, name string) (*T, error) {
	p.mu.Lock()
	data, ok := p.files[pieceFile(name)]
	if p.taken == nil {
		p.taken = map[string]bool{}
	}
	p.taken[pieceFile(name)] = true
	p.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("%s: the command line asks for this evidence, and there is none", pieceFile(name))
	}
	out := new(T)
	packed := bytes.NewReader(data)
	unpacked, err := gzip.NewReader(packed)
	if err == nil {
		unpacked.Multistream(false)
		data, err = io.ReadAll(io.LimitReader(unpacked, filing.Limit+1))
	}
	if err == nil && len(data) > filing.Limit {
		err = fmt.Errorf("it is larger than %d bytes", filing.Limit)
	}
	if err == nil && packed.Len() > 0 {
		err = errors.New("there is something behind its end")
	}
	if err == nil {
		err = DecodeStrictly(data, out)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", pieceFile(name), err)
	}
	return out, nil
}

// Has says whether there is a piece of evidence.
func (p *Pieces) Has(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.files[pieceFile(name)]
	return ok
}

// Found is a control plane as it was asked for and as it was found to be.
type Found struct {
	verdicts.Cell `json:",inline"`
	Facts         scenarios.Facts `json:"facts"`
	Witness       Witness         `json:"witness"`
}

// Hold says how a control plane is not the one that was asked for, as its options have it.
func (f Found) Hold(asked Found) error {
	bare := Found{Cell: f.Cell, Facts: f.Facts}
	bare.Witness.ExpectedGate, bare.Witness.AskedAuthorizers = f.Witness.ExpectedGate, f.Witness.AskedAuthorizers
	if !same(bare, asked) {
		return fmt.Errorf("the control plane %s is not the one of the command line: %s", f.Name, changeTo("the command line", bare, asked))
	}
	if m := f.Witness.Judge(f.Cell, f.Facts.Capabilities); len(m) > 0 || len(f.Witness.Mismatches) > 0 {
		return fmt.Errorf("the control plane %s is not what was asked for: %s", f.Name, strings.Join(append(m, f.Witness.Mismatches...), "; "))
	}
	return nil
}

// WriteRecorded writes a report with its pages and its evidence, whose digests it then has.
func WriteRecorded(dir string, kind *filing.Kind, r Recorded, p *Pieces) error {
	all, err := BriefPages(kind.Name, r)
	if err != nil {
		return err
	}
	maps.Copy(all, p.files)
	r.Made().Files = map[string]string{}
	for name, data := range all {
		r.Made().Files[name] = record.Digest(data)
	}
	return kind.WriteReport(dir, r, all)
}

// Recheck reads the report of a kind in a folder, makes it again from its evidence, and says where it differs. report
// is an empty one, and again judges. An error says that there is nothing to be verified.
func Recheck[R Recorded](dir string, kind *filing.Kind, report R, again func(R, *Pieces) (R, error)) (*Verification, error) {
	v, done, err := open(dir, kind.Marker)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := DecodeYAML(v.Marker, report); err != nil {
		v.differ("%s: %s", kind.Marker, FirstLine(err.Error()))
		return v.Verification, nil
	}
	v.listed = report.Made().Files
	v.readFiles(kind.Owns)
	if v.OK() {
		recheck(v, kind, report, again)
	}
	return v.Verification, nil
}

func recheck[R Recorded](v *verifier, kind *filing.Kind, report R, again func(R, *Pieces) (R, error)) {
	pieces := &Pieces{files: maps.Clone(v.files), taken: map[string]bool{}}
	r, err := again(report, pieces)
	if err != nil {
		v.differ("%v", err)
		return
	}
	made := *report.Made()
	made.Outcome = r.Made().Outcome
	*r.Made() = made
	if !same(report, r) {
		v.differ("%s: not what the evidence gives: %s", v.marker, change(report, r))
	} else if data, err := kind.Encode(report); err != nil || !bytes.Equal(data, v.Marker) {
		v.differ("%s: it says the same, but not as authzconf writes it", v.marker)
	}
	pages, err := BriefPages(kind.Name, r)
	if err != nil {
		v.differ("the pages cannot be made again: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(v.files)) {
		page, isPage := pages[name]
		switch {
		case isPage && !bytes.Equal(page, v.files[name]):
			v.differ("%s: is not what the evidence gives", name)
		case !isPage && !pieces.taken[name]:
			v.differ("%s: the command line asks for nothing that this would be evidence of", name)
		}
		delete(pages, name)
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		v.differ("%s: is missing", name)
	}
}
