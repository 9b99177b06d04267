package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/verdicts"
)

// Window is the part of a history that is asked about.
type Window struct {
	// Until is the end of the window, and Since its length.
	Until time.Time
	Since time.Duration
	// MaxGap is the longest time without a run in which the window still counts as covered.
	MaxGap time.Duration
}

// start returns the beginning of the window.
func (w Window) start() time.Time { return w.Until.Add(-w.Since) }

// Flakes is what a history shows about a window.
type Flakes struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Runs is the number of runs in the window, Days on how many days they ended, in UTC.
	Runs int `json:"runs"`
	Days int `json:"days"`
	// Cases is how many different cases of a group were executed, and Verdicts how often that was in all.
	Cases    int `json:"cases"`
	Verdicts int `json:"verdicts"`
	// LongestGap is the longest time without a run in seconds, including the times before the first and after the last
	// run. The window is covered if that is not longer than the window allows.
	LongestGap float64 `json:"longestGapSeconds"`
	Covered    bool    `json:"covered"`
	// Flaky are the cases that passed in some runs and not in others, although suite and server were the same. Failing
	// are those that never passed.
	Flaky   []Record `json:"flaky,omitempty"`
	Failing []Record `json:"failing,omitempty"`
	// Known are the cases that never passed, and always failed as the known-failing list says.
	Known []Record `json:"known,omitempty"`
}

// Record is what became of one case on one target over time.
type Record struct {
	Case         string `json:"case"`
	Group        string `json:"group"`
	Server       string `json:"server,omitempty"`
	SuiteVersion string `json:"suiteVersion"`
	// Runs is how often the case was executed, NotPassed how often it did not pass, and Invalid how many of the latter
	// say nothing about the server.
	Runs      int `json:"runs"`
	NotPassed int `json:"notPassed"`
	Invalid   int `json:"invalid,omitempty"`
	// First and Last are the first and the last run in which the case did not pass. Seed and Reason are those of the
	// last.
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	Seed   int64     `json:"seed"`
	Reason string    `json:"reason"`

	known int
}

// Describe returns the case with its group and the server there.
func (r Record) Describe() string {
	text := r.Case + " on " + r.Group
	if r.Server != "" {
		text += " (" + r.Server + ")"
	}
	return text
}

// Free reports whether nothing was flaky or failing in a window that is covered.
func (f Flakes) Free() bool {
	isClean := len(f.Flaky)+len(f.Failing) == 0
	return f.Covered && isClean
}

// identity is what has to be the same if two verdicts are about the same thing.
type identity struct{ product, suite, group, server, name string }

// Find returns what a history shows about a window. Entries may be in any order, for example those of several files.
func Find(entries []Entry, w Window) Flakes {
	f := Flakes{Since: w.start(), Until: w.Until}
	inside := seq.Filter(entries, func(e Entry) bool { return !e.Finished.Before(w.start()) && !e.Finished.After(w.Until) })
	slices.SortStableFunc(inside, func(a, b Entry) int { return a.Finished.Compare(b.Finished) })
	records, days := map[identity]*Record{}, map[string]bool{}
	before := w.start()
	var gap time.Duration
	for _, e := range inside {
		gap, before = max(gap, e.Finished.Sub(before)), e.Finished
		days[e.Finished.UTC().Format(time.DateOnly)] = true
		e.addTo(records)
	}
	gap = max(gap, w.Until.Sub(before))
	f.Runs, f.Days, f.Cases, f.LongestGap = len(inside), len(days), len(records), gap.Seconds()
	f.Covered = len(inside) > 0 && gap <= w.MaxGap
	for _, r := range slices.SortedFunc(maps.Values(records), compareRecords) {
		f.add(*r)
	}
	return f
}

// addTo counts the verdicts of one run.
func (e Entry) addTo(records map[identity]*Record) {
	for _, g := range e.Groups {
		find := func(name string) *Record {
			id := identity{e.Product, e.SuiteVersion, g.Name, g.Server, name}
			if records[id] == nil {
				records[id] = &Record{Case: name, Group: g.Name, Server: g.Server, SuiteVersion: e.SuiteVersion}
			}
			records[id].Runs++
			return records[id]
		}
		for _, name := range g.Passed {
			find(name)
		}
		for _, bad := range g.NotPassed {
			find(bad.Case).addNotPassed(e, bad)
		}
	}
}

// addNotPassed counts a run in which the case did not pass. Runs come in the order of their times.
func (r *Record) addNotPassed(e Entry, bad NotPassed) {
	if r.NotPassed == 0 {
		r.First = e.Finished
	}
	r.NotPassed++
	r.Last, r.Seed, r.Reason = e.Finished, e.Seed, bad.Reason
	if bad.Known != "" {
		r.known++
	}
	if bad.Verdict == verdicts.Invalid {
		r.Invalid++
	}
}

// compareRecords orders records by how often the case did not pass, most often first, and then by name.
func (f *Flakes) add(r Record) {
	f.Verdicts += r.Runs
	switch {
	case r.NotPassed == 0:
	case r.NotPassed < r.Runs:
		f.Flaky = append(f.Flaky, r)
	case r.known == r.NotPassed:
		f.Known = append(f.Known, r)
	default:
		f.Failing = append(f.Failing, r)
	}
}

// compareRecords sorts what did not pass most often first, then by name.
func compareRecords(a, b *Record) int {
	return cmp.Or(cmp.Compare(b.NotPassed, a.NotPassed), cmp.Compare(a.Case, b.Case), cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.Server, b.Server), cmp.Compare(a.SuiteVersion, b.SuiteVersion))
}
