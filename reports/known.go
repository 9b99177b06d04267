package reports

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/verdicts"
)

// KnownFailing is a scenario that must fail, for a stated reason, until what it found is fixed.
//
// It is a claim like any other: it has to hold.
type KnownFailing struct {
	// Scenario is an exact ID, or a pattern as of path.Match, in which * does not cross a slash.
	Scenario string `json:"scenario" yaml:"scenario"`
	// Cell is a pattern for the names of cells. If it is left out, it matches every cell.
	Cell string `json:"cell,omitempty" yaml:"cell,omitempty"`
	// Reason is the beginning of one of the failure's differences in the form "field: want …, got …", with the whole
	// field. It is required, because a scenario that begins to fail differently is news.
	Reason string `json:"reason" yaml:"reason"`
	Issue  string `json:"issue,omitempty" yaml:"issue,omitempty"` // where the failure is being dealt with
	// Since is the day on which the entry was made, and Until the last day on which it excuses a failure. Both are
	// written 2006-01-02 and are in UTC. Either may be left out.
	Since string `json:"since,omitempty" yaml:"since,omitempty"`
	Until string `json:"until,omitempty" yaml:"until,omitempty"`
}

// KnownState is the state of a known-failing entry after a run.
type KnownState string

const (
	// KnownFails means that everything that it matches failed for the stated reason. Only this is in order.
	KnownFails KnownState = "fails"
	// KnownPasses means that something that it matches passed, so that the entry is out of date.
	KnownPasses KnownState = "passes"
	// KnownFailsOtherwise means that something that it matches failed for another reason.
	KnownFailsOtherwise KnownState = "failsOtherwise"
	// KnownInvalid means that something that it matches was invalid, so that nothing is known.
	KnownInvalid KnownState = "invalid"
	// KnownUnmatched means that it matches nothing that was executed.
	KnownUnmatched KnownState = "unmatched"
	// KnownExpired means that the run ended after the last day of the entry, so that it no longer excuses anything.
	KnownExpired KnownState = "expired"
)

// KnownFailingState is an entry of the known-failing list with its state after the run.
type KnownFailingState struct {
	KnownFailing `json:",inline"`
	State        KnownState `json:"state"`
	// Matched counts the executed results that the entry matches.
	Matched int `json:"matched"`
	// Detail says what is wrong, unless State is fails.
	Detail string `json:"detail,omitempty"`
}

// Describe returns what the entry is about: a pattern for cases and, if there is one, a pattern for groups.
func (k KnownFailing) Describe() string {
	if k.Cell == "" {
		return k.Scenario
	}
	return k.Scenario + " on " + k.Cell
}

// Dates returns since when the entry exists and until when it counts, as far as that is stated.
func (k KnownFailing) Dates() string {
	var dates []string
	if k.Since != "" {
		dates = append(dates, "since "+k.Since)
	}
	if k.Until != "" {
		dates = append(dates, "until "+k.Until)
	}
	return strings.Join(dates, ", ")
}

func glob(pattern, name string) bool {
	if pattern == name {
		return true
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// stepOf matches what a reason may begin with.
var stepOf = regexp.MustCompile(`^step \d+: `)

// ApplyKnownFailing marks the results that fail as the entries of a known-failing list say, and records the state of
// each entry.
func (r *Report) ApplyKnownFailing(entries []KnownFailing) {
	r.KnownFailing = nil
	for _, e := range entries {
		r.KnownFailing = append(r.KnownFailing, r.applyEntry(e))
	}
}

// applyEntry judges one entry by everything that it matches. Its state is the first thing that is wrong.
func (r *Report) applyEntry(e KnownFailing) KnownFailingState {
	state := KnownFailingState{KnownFailing: e, State: KnownFails}
	if e.hasExpired(r.Finished) {
		state.State = KnownExpired
		state.Detail = fmt.Sprintf("it was for failures until %s; take it off the list, or say until when it is to count", e.Until)
		return state
	}
	for i := range r.Groups {
		group := &r.Groups[i]
		for j := range group.Cases {
			result := &group.Cases[j]
			if !e.matchesCase(group.Name, *result) {
				continue
			}
			state.Matched++
			knownState, detail := e.judgeResult(group.Name, *result)
			if knownState == KnownFails {
				result.KnownFailing = e.Reason
			} else if state.State == KnownFails {
				state.State, state.Detail = knownState, detail
			}
		}
	}
	if state.Matched == 0 {
		state.State, state.Detail = KnownUnmatched, "it matches nothing that was executed; correct it or take it off the list"
	}
	return state
}

// hasExpired reports whether the last day of the entry was over at a time.
func (k KnownFailing) hasExpired(at time.Time) bool {
	last, err := time.Parse(time.DateOnly, k.Until)
	return err == nil && !at.Before(last.AddDate(0, 0, 1))
}

// judgeResult returns the state that one matching result gives to an entry.
func (k KnownFailing) judgeResult(group string, r Result) (state KnownState, detail string) {
	place := r.Case + " on " + group
	switch {
	case r.Verdict == verdicts.Passed:
		return KnownPasses, place + " passed; take the entry off the list"
	case r.Verdict == verdicts.Invalid:
		return KnownInvalid, fmt.Sprintf("%s is invalid, so it is not known whether it still fails: %s", place, FirstLine(r.Reason))
	case !k.explainsResult(r):
		return KnownFailsOtherwise, fmt.Sprintf("%s failed, but not for the stated reason %q: %s", place, k.Reason, FirstLine(r.Reason))
	}
	return KnownFails, ""
}

// matchesCase reports whether the entry is about a result. Patterns were checked when the list was loaded.
func (k KnownFailing) matchesCase(group string, r Result) bool {
	onGroup := k.Cell == "" || glob(k.Cell, group)
	return onGroup && Executed(r.Verdict) && glob(k.Scenario, r.Case)
}

// explainsResult reports whether the stated reason fits a failure: it is part of one of its differences, and begins
// with the whole name of the field. If a failure has no differences, its reason is compared instead.
func (k KnownFailing) explainsResult(r Result) bool {
	if len(r.Differences) == 0 {
		return strings.Contains(r.Reason, k.Reason)
	}
	return slices.ContainsFunc(r.Differences, func(d verdicts.Difference) bool {
		text := fmt.Sprintf("step %d: %s: want %s, got %s", d.Step, d.Field, d.Want, d.Got)
		return strings.HasPrefix(stepOf.ReplaceAllString(k.Reason, ""), d.Field) && strings.Contains(text, k.Reason)
	})
}
