package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// The exit codes of a run. 2, bad usage or input, never comes from a report.
const (
	ExitPassed  = 0
	ExitFailed  = 1
	ExitInvalid = 3
)

// Outcome is the overall judgement with its reasons.
type Outcome struct {
	// Result is passed (everything that was to be shown was run and passed), failed (something was seen otherwise than
	// it has to be) or invalid (the run cannot say whether the implementation conforms).
	Result   verdicts.Verdict `json:"result"`
	ExitCode int              `json:"exitCode"` // that of authzconf run
	// Reasons say why the result is not passed; those that decided it come first.
	Reasons []string `json:"reasons,omitempty"`
	// NotCovered says, a line per reason, of how many scenarios nothing is known since no target can show them.
	NotCovered []string `json:"notCovered,omitempty"`
	// Notes say what a reader of "passed" should know: known failures, what was left out, what the target could not show.
	Notes []string `json:"notes,omitempty"`
}

// Conclude derives the overall outcome from what is in the report and sets
// Outcome to it. In order:
//
//  1. invalid (exit 3) if anything required is not known: a cell whose witness
//     does not match or that could not be used; a cell on which nothing was
//     executed; a scenario that a cell neither has a result nor a reason for; a
//     core scenario that is invalid, or not supported though selected. This wins
//     over failures: where the ground is not firm nothing can be certified, and
//     a failure may be the ground's.
//  2. failed (exit 1) if any scenario of any level failed that the
//     known-failing list does not expect to, or if an entry of that list
//     matched nothing, or something that passed or failed for another reason.
//  3. invalid if an extended or divergence scenario is invalid.
//  4. passed (exit 0) otherwise.
//
// A scenario that the user left out does not stand in the way of passed, but is noted.
func (r *ConformanceReport) Conclude() Outcome {
	c := &conclusion{}
	if len(r.Cells) == 0 {
		c.unknown = append(c.unknown, "nothing was executed: the run has no cell")
	}
	seen := map[string]bool{}
	for i := range r.Cells {
		name := r.Cells[i].Name
		if seen[name] {
			c.unknown = append(c.unknown, name+": there are two cells of that name")
		}
		seen[name] = true
		c.cell(r.Scenarios, &r.Cells[i])
		c.required(r, &r.Cells[i])
		if a := r.Cells[i].Agents; a != nil {
			a.conclude(name, c)
		}
	}
	for _, k := range r.KnownFailing {
		if k.State != KnownFails {
			c.failed = append(c.failed, fmt.Sprintf("known-failing entry %s: %s", k.Describe(), k.Detail))
		}
	}
	if r.Path != nil {
		r.Path.conclude(c)
	}
	r.Outcome = c.outcome()
	r.Outcome.NotCovered = r.notCovered()
	return r.Outcome
}

// Line is the outcome with what it does not say.
func (o Outcome) Line() string {
	line := string(o.Result)
	for _, what := range o.NotCovered {
		line += "; " + what + ": not judged"
	}
	return line
}

// notCovered counts the scenarios that were supported by no target, by what these lack.
func (r *ConformanceReport) notCovered() (lines []string) {
	ran, lacks, counts := map[string]bool{}, map[string]string{}, map[string]int{}
	for _, c := range r.Cells {
		for _, result := range c.Results {
			ran[result.Scenario] = ran[result.Scenario] || Executed(result.Verdict)
			if result.Verdict == verdicts.NotSupported {
				lacks[result.Scenario] = result.Reason
			}
		}
	}
	for id, why := range lacks {
		if !ran[id] {
			what, found := strings.CutPrefix(why, "the target lacks ")
			what, _, _ = strings.Cut(what, ",") // and for whom there is no substitute
			counts[cmp.Or(map[bool]string{true: " for lack of " + what}[found], " not supported")]++
		}
	}
	return append(lines, seq.Map(slices.Sorted(maps.Keys(counts)), func(what string) string { return Plural(counts[what], "scenario") + what })...)
}

// required adds the scenarios of required levels that a cell is for, and that were not run to an end there.
func (c *conclusion) required(r *ConformanceReport, cell *Cell) {
	level := map[string]scenarios.Level{}
	for _, s := range r.Scenarios {
		level[s.ID] = s.Level
	}
	var missing []string
	add := func(id, why string) {
		if slices.Contains(r.Require, level[id]) {
			missing = append(missing, fmt.Sprintf("%s (%s)", id, FirstLine(why)))
		}
	}
	for _, n := range cell.NotRun {
		if n.Cause == CauseUser {
			add(n.Scenario, n.Why)
		}
	}
	for _, result := range cell.Results {
		if v := result.Verdict; v != verdicts.NotSupported && (!Executed(v) || v == verdicts.Invalid) {
			add(result.Scenario, result.Reason)
		}
	}
	if len(missing) > 0 {
		c.unknown = append(c.unknown, fmt.Sprintf("%s: %s required and not judged: %s", cell.Name, Plural(len(missing), "scenario"), strings.Join(missing, ", ")))
	}
}

type conclusion struct {
	unknown []string // required and not known: invalid
	failed  []string
	minor   []string // not required and not known
	notes   []string
}

func (c *conclusion) outcome() Outcome {
	o := Outcome{Notes: c.notes, Reasons: slices.Concat(c.unknown, c.failed, c.minor)}
	switch {
	case len(c.unknown) == 0 && len(c.failed) > 0:
		o.Result, o.ExitCode = verdicts.Failed, ExitFailed
	case len(o.Reasons) > 0:
		o.Result, o.ExitCode = verdicts.Invalid, ExitInvalid
	default:
		o.Result, o.ExitCode = verdicts.Passed, ExitPassed
	}
	return o
}

// cell adds the reasons of one cell, whose scenarios are counted by kind, with the first as the example.
func (c *conclusion) cell(all []ScenarioRef, cell *Cell) {
	say := func(to *[]string, format string, args ...any) {
		*to = append(*to, cell.Name+": "+fmt.Sprintf(format, args...))
	}
	if cell.Problem != "" {
		say(&c.unknown, "the target could not be used: %s", FirstLine(cell.Problem))
	}
	for _, m := range cell.Witness.Mismatches {
		say(&c.unknown, "the target is not what was asked for: %s", m)
	}
	if m := cell.Witness.contradiction(cell.Facts.Capabilities); m != "" {
		say(&c.failed, "the API server contradicts itself: %s", m)
	}
	if !slices.ContainsFunc(cell.Results, func(r verdicts.Result) bool { return Executed(r.Verdict) }) {
		say(&c.unknown, "nothing was executed (leave this cell out, or select a scenario that is for it)")
	}
	for _, problem := range unaccounted(all, cell) {
		say(&c.unknown, "%s", problem)
	}
	core := func(r verdicts.Result) bool { return r.Level == scenarios.Core }
	// What somebody else's cluster cannot show was never to be had there.
	there := &c.unknown
	if cell.Facts.Capabilities.Foreign() {
		there = &c.notes
	}
	is := func(v verdicts.Verdict) func(verdicts.Result) bool {
		return func(r verdicts.Result) bool { return r.Verdict == v }
	}
	unexpected := func(r verdicts.Result) bool { return r.Verdict == verdicts.Failed && r.KnownFailing == "" }
	for _, k := range []struct {
		to   *[]string
		what string
		is   func(verdicts.Result) bool
	}{
		{&c.unknown, "%s of level core invalid", both(core, is(verdicts.Invalid))},
		{there, "%s of level core not supported by the target", both(core, is(verdicts.NotSupported))},
		{&c.unknown, "%s of an unknown verdict", unknownVerdict},
		{&c.failed, "%s failed", unexpected},
		{&c.minor, "%s invalid", both(not(core), is(verdicts.Invalid))},
		{&c.notes, "%s failed as the known-failing list states", func(r verdicts.Result) bool { return r.KnownFailing != "" }},
		{&c.notes, "%s not supported by the target", both(not(core), is(verdicts.NotSupported))},
		{&c.notes, "%s skipped", is(verdicts.Skipped)},
		{&c.notes, "%s with expectations that the target cannot show", func(r verdicts.Result) bool { return len(r.NotJudged) > 0 }},
	} {
		if n, first := tally(cell.Results, k.is); n > 0 {
			say(k.to, "%s", fmt.Sprintf(k.what, Plural(n, "scenario"))+first)
		}
	}
	if left := slices.DeleteFunc(slices.Clone(cell.NotRun), func(n NotRun) bool { return n.Cause != CauseUser }); len(left) > 0 {
		say(&c.notes, "%s left out by the user", Plural(len(left), "scenario"))
	}
}

// unaccounted finds scenarios without a result in a cell, or with two, and results of scenarios that nobody loaded.
func unaccounted(all []ScenarioRef, cell *Cell) (problems []string) {
	times := map[string]int{}
	for _, r := range cell.Results {
		times[r.Scenario]++
	}
	for _, n := range cell.NotRun {
		times[n.Scenario]++
	}
	for _, s := range all {
		switch n := times[s.ID]; {
		case n == 0:
			problems = append(problems, s.ID+" has neither a result nor a reason for not being run")
		case n > 1:
			problems = append(problems, fmt.Sprintf("%s is reported %d times", s.ID, n))
		}
		delete(times, s.ID)
	}
	return append(problems, seq.Map(slices.Sorted(maps.Keys(times)), func(id string) string { return id + " is reported but is not one of the loaded scenarios" })...)
}

// exampleLength is how much of an example's reason is said: a whole transcript would hide the other reasons.
const exampleLength = 200

func tally(results []verdicts.Result, match func(verdicts.Result) bool) (n int, first string) {
	for _, r := range results {
		if !match(r) {
			continue
		}
		if n == 0 {
			first = ": " + r.Scenario
			if why := cmp.Or(r.KnownFailing, r.Reason); why != "" {
				first += ": " + Ellipsis(FirstLine(why), exampleLength)
			}
		}
		n++
	}
	if n > 1 {
		first = "; the first" + first
	}
	return n, first
}

func unknownVerdict(r verdicts.Result) bool {
	return !Executed(r.Verdict) && r.Verdict != verdicts.NotSupported && r.Verdict != verdicts.Skipped
}

func both(a, b func(verdicts.Result) bool) func(verdicts.Result) bool {
	return func(r verdicts.Result) bool { return a(r) && b(r) }
}

func not(a func(verdicts.Result) bool) func(verdicts.Result) bool {
	return func(r verdicts.Result) bool { return !a(r) }
}
