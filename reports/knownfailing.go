package reports

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// KnownFailing states that a scenario is expected to fail, and why. It is a claim like any other: it has to hold.
type KnownFailing struct {
	// Scenario is an exact ID, or a pattern as of path.Match, in which * does not cross a slash.
	Scenario string `json:"scenario" yaml:"scenario"`
	// Cell is a pattern for the names of cells; left out it is every cell.
	Cell string `json:"cell,omitempty" yaml:"cell,omitempty"`
	// Reason is a part of the failure's reason, or of one of its differences in the form "field: want …, got …".
	// It must be given: a scenario that begins to fail otherwise is news.
	Reason string `json:"reason" yaml:"reason"`
	// Issue is where the failure is being dealt with.
	Issue string `json:"issue,omitempty" yaml:"issue,omitempty"`
}

// KnownState is what became of a known-failing entry.
type KnownState string

const (
	// KnownFails: everything it matches failed for the stated reason. Only this is in order.
	KnownFails KnownState = "fails"
	// KnownPasses: something it matches passed; the entry is out of date.
	KnownPasses KnownState = "passes"
	// KnownFailsOtherwise: something it matches failed for another reason.
	KnownFailsOtherwise KnownState = "failsOtherwise"
	// KnownInvalid: something it matches was invalid, so nothing is known.
	KnownInvalid KnownState = "invalid"
	// KnownUnmatched: it matches nothing that was executed.
	KnownUnmatched KnownState = "unmatched"
)

// KnownFailingState is an entry of the known-failing list with what became of it.
type KnownFailingState struct {
	KnownFailing `json:",inline"`
	State        KnownState `json:"state"`
	// Matched counts the executed results that the entry matches.
	Matched int `json:"matched"`
	// Detail says what is wrong, unless State is fails.
	Detail string `json:"detail,omitempty"`
}

func (k KnownFailing) describe() string {
	if k.Cell == "" {
		return k.Scenario
	}
	return k.Scenario + " on " + k.Cell
}

// matches says whether the entry is about a result. Patterns were checked when the list was loaded; a bad one
// matches nothing, which is then an error.
func (k KnownFailing) matches(cell string, r verdicts.Result) bool {
	return executed(r.Verdict) && glob(k.Scenario, r.Scenario) && (k.Cell == "" || glob(k.Cell, cell))
}

func glob(pattern, name string) bool {
	if pattern == name {
		return true
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// explains says whether the stated reason is that of a failure.
func (k KnownFailing) explains(r verdicts.Result) bool {
	return strings.Contains(r.Reason, k.Reason) || slices.ContainsFunc(r.Differences, func(d verdicts.Difference) bool {
		return strings.Contains(fmt.Sprintf("%s: want %s, got %s", d.Field, d.Want, d.Got), k.Reason)
	})
}

// applyKnownFailing marks the results that fail as the entries state, and sets what became of each entry. Marks
// of before are dropped, so that it can be done again from a report that was read.
func (r *ConformanceReport) applyKnownFailing(entries []KnownFailing) {
	for i := range r.Cells {
		for j := range r.Cells[i].Results {
			r.Cells[i].Results[j].KnownFailing = ""
		}
	}
	r.KnownFailing = scenarios.Each(entries, r.state)
}

// state judges one entry by all that it matches; the first thing that is wrong is its state.
func (r *ConformanceReport) state(e KnownFailing) KnownFailingState {
	k := KnownFailingState{KnownFailing: e, State: KnownFails}
	wrong := func(s KnownState, format string, args ...any) {
		if k.State == KnownFails {
			k.State, k.Detail = s, fmt.Sprintf(format, args...)
		}
	}
	for i := range r.Cells {
		cell := &r.Cells[i]
		for j := range cell.Results {
			result := &cell.Results[j]
			if !e.matches(cell.Name, *result) {
				continue
			}
			k.Matched++
			where := result.Scenario + " on " + cell.Name
			switch {
			case result.Verdict == verdicts.Passed:
				wrong(KnownPasses, "%s passed; take the entry off the list", where)
			case result.Verdict == verdicts.Invalid:
				wrong(KnownInvalid, "%s is invalid, so it is not known whether it still fails: %s", where, firstLine(result.Reason))
			case !e.explains(*result):
				wrong(KnownFailsOtherwise, "%s failed, but not for the stated reason %q: %s", where, e.Reason, firstLine(result.Reason))
			default:
				result.KnownFailing = e.Reason
			}
		}
	}
	if k.Matched == 0 {
		wrong(KnownUnmatched, "it matches nothing that was executed; correct it or take it off the list")
	}
	return k
}

// KnownFailingKind is the kind of a known-failing file, of FileVersion.
const KnownFailingKind = "KnownFailingList"

type knownFailingList struct {
	APIVersion string         `yaml:"apiVersion"`
	Kind       string         `yaml:"kind"`
	Entries    []KnownFailing `yaml:"entries"`
}

// LoadKnownFailing reads a known-failing file. It is strict: an unknown field, a missing reason, a bad pattern
// or an entry that is there twice is an error with file, line and column. name is for the messages.
func LoadKnownFailing(name string, data []byte) ([]KnownFailing, error) {
	var list knownFailingList
	file, err := scenarios.DecodeKind(name, data, "a known-failing list", FileVersion, KnownFailingKind, &list)
	if err != nil {
		return nil, err
	}
	return list.Entries, list.check(file.At)
}

// check holds the entries to the rules; all that is wrong is reported.
func (l knownFailingList) check(at func(path string) string) error {
	var errs []error
	first := map[[2]string]int{}
	for i, e := range l.Entries {
		here := fmt.Sprintf("$.entries[%d]", i)
		bad := func(field, format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: %s", at(here+field), fmt.Sprintf(format, args...)))
		}
		if strings.TrimSpace(e.Scenario) == "" {
			bad("", "entry %d names no scenario", i+1)
		}
		if strings.TrimSpace(e.Reason) == "" {
			bad("", "entry %d states no reason: say a part of the failure that is expected", i+1)
		}
		for _, p := range [][2]string{{".scenario", e.Scenario}, {".cell", e.Cell}} {
			if _, err := path.Match(p[1], ""); err != nil {
				bad(p[0], "bad pattern %q", p[1])
			}
		}
		key := [2]string{e.Scenario, e.Cell}
		if n, ok := first[key]; ok {
			bad("", "entry %d is the same as entry %d", i+1, n+1)
			continue
		}
		first[key] = i
	}
	return errors.Join(errs...)
}
