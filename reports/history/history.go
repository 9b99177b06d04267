// Package history stores the results of runs over time in a file with one line of JSON for each run. It shows which
// cases pass in one run and not in another, and for how long there was no run.
package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// Kind is the kind of each line of a history, of [reports.FileVersion].
const Kind = "HistoryEntry"

// maxLine is the longest line that is read, in bytes. A run of all versions and gates has some 600 KB.
const maxLine = 16 << 20

// Entry is one run: when it was, what was judged, and the verdict of each case that was executed.
type Entry struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Finished is when the run ended.
	Finished time.Time `json:"finished"`
	// Product and SuiteVersion are those of the report. The cases of another version of the suite are other cases.
	Product      string `json:"product"`
	SuiteVersion string `json:"suiteVersion"`
	// Seed makes the same names again.
	Seed int64 `json:"seed"`
	// Record is the digest that names the evidence of the run.
	Record  string           `json:"record"`
	Outcome verdicts.Verdict `json:"outcome"`
	Groups  []Group          `json:"groups"`
}

// Group is what was executed on one target.
type Group struct {
	Name string `json:"name"`
	// Server is the version that the API server reported. It is empty if there was none.
	Server string `json:"server,omitempty"`
	// Passed are the cases that passed.
	Passed []string `json:"passed,omitempty"`
	// NotPassed are the cases that failed or were invalid.
	NotPassed []NotPassed `json:"notPassed,omitempty"`
}

// NotPassed is a case that failed or was invalid.
type NotPassed struct {
	Case    string           `json:"case"`
	Verdict verdicts.Verdict `json:"verdict"`
	Reason  string           `json:"reason,omitempty"`
	// Known is the reason of the known-failing list, if the case is on it.
	Known string `json:"known,omitempty"`
}

// NewEntry returns the line of a report.
func NewEntry(r *reports.Report) Entry {
	e := Entry{
		APIVersion: reports.FileVersion, Kind: Kind, Finished: r.Finished.UTC(), Product: r.Product,
		SuiteVersion: r.SuiteVersion, Seed: r.Seed, Record: r.Record.Digest, Outcome: r.Outcome.Result,
	}
	for _, from := range r.Groups {
		group := Group{Name: from.Name}
		if from.Witness != nil {
			group.Server = from.Witness.GitVersion
		}
		for _, result := range from.Cases {
			group.add(result)
		}
		e.Groups = append(e.Groups, group)
	}
	return e
}

// add adds a case that was executed.
func (g *Group) add(r reports.Result) {
	switch {
	case !reports.Executed(r.Verdict):
	case r.Verdict == verdicts.Passed:
		g.Passed = append(g.Passed, r.Case)
	default:
		g.NotPassed = append(g.NotPassed, NotPassed{r.Case, r.Verdict, reports.FirstLine(r.Reason), r.KnownFailing})
	}
}

// Read reads a history. name is used in messages. Every line must be a complete entry; an error names the first line
// that is not.
func Read(name string, from io.Reader) (entries []Entry, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		e, err := decode(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		entries = append(entries, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: cannot be read: %w", name, n+1, err)
	}
	return entries, nil
}

// decode reads one line, strictly.
func decode(line []byte) (e Entry, err error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil {
		return e, fmt.Errorf("it is not an entry of a history (%w); remove the line, or name another file", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return e, errors.New("there is something behind the entry; expected one entry a line")
	}
	return e, e.check()
}

// check returns an error if the entry lacks what every entry has.
func (e Entry) check() error {
	switch {
	case e.Kind != Kind || e.APIVersion != reports.FileVersion:
		return fmt.Errorf("it is %q of %q; expected a %s of %s", e.Kind, e.APIVersion, Kind, reports.FileVersion)
	case e.Finished.IsZero():
		return errors.New("it has no time in finished")
	case e.Product == "":
		return errors.New("it names no product")
	}
	for _, g := range e.Groups {
		if err := g.check(); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if a case occurs twice or cannot have its verdict.
func (g Group) check() error {
	seen := map[string]bool{}
	for _, name := range g.Passed {
		if seen[name] {
			return fmt.Errorf("%s is there twice in %s", name, g.Name)
		}
		seen[name] = true
	}
	for _, bad := range g.NotPassed {
		if seen[bad.Case] {
			return fmt.Errorf("%s is there twice in %s", bad.Case, g.Name)
		}
		seen[bad.Case] = true
		if bad.Verdict != verdicts.Failed && bad.Verdict != verdicts.Invalid {
			return fmt.Errorf("%s in %s is %q; expected failed or invalid", bad.Case, g.Name, bad.Verdict)
		}
	}
	return nil
}

// ReadFile reads the history in a file.
func ReadFile(path string) ([]Entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return Read(path, file)
}

// CheckAppendable returns why no line can be appended to a file: it is not a history, it cannot be written, or its last
// line is incomplete. A missing file is created.
func CheckAppendable(path string) error {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
		return fmt.Errorf(
			"%s:%d: the last line has no end; remove it: a run that was interrupted may have left it",
			path,
			bytes.Count(data, []byte("\n"))+1,
		)
	}
	if _, err := Read(path, bytes.NewReader(data)); err != nil {
		return err
	}
	file, err := openAppend(path)
	if err != nil {
		return err
	}
	return file.Close()
}

// openAppend opens a file to append to it, and creates it if it is not there.
func openAppend(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // it is read by others, as reports are
}

// Append adds the line of a report to a file in one write, so that runs that end at the same time do not mix their
// lines.
func Append(path string, r *reports.Report) error {
	line, err := json.Marshal(NewEntry(r))
	if err != nil {
		return err
	}
	file, err := openAppend(path)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
