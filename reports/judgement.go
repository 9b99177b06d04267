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

// reasons decide the outcome of a report, in addition to the verdicts of its cases.
type reasons struct {
	unknown []string
	failed  []string
	notes   []string
}

// AddUnknown adds a reason why it is unknown after the run whether the subject conforms. It makes the outcome invalid.
func (r *Report) AddUnknown(reason string) { r.reasons.unknown = append(r.reasons.unknown, reason) }

// AddFailure adds something that was observed otherwise than it has to be and that is not a case.
func (r *Report) AddFailure(reason string) { r.reasons.failed = append(r.reasons.failed, reason) }

// AddNote adds something that a reader of "passed" should know.
func (r *Report) AddNote(note string) { r.reasons.notes = append(r.reasons.notes, note) }

// Conclude counts the cases of each group and derives the outcome. In this order, the outcome is
//
//  1. failed (exit code 1) if something failed that nothing else explains: a case of a control plane of its own about which
//     nothing is unknown, whatever became of others, or one that says so itself (Result.Certain).
//  2. invalid (exit code 3) if something required is not known: a group that could not be used, whose control plane is
//     not what was asked for, or in which nothing was executed; a case of level core that is invalid or not supported; a
//     case of a required level that was not judged; a reason of AddUnknown. This wins over failures: where the ground is
//     not firm nothing can be certified, and a failure may be the ground's.
//  3. failed if a case of any level failed that the known-failing list does not expect to fail, if an entry
//     of that list is not in order, or for a reason of AddFailure.
//  4. invalid if a case of another level is invalid.
//  5. passed (exit code 0) otherwise.
//
// A case that the user left out does not stand in the way of passed, but is noted.
func (r *Report) Conclude() {
	c := &conclusion{unknown: r.reasons.unknown, failed: r.reasons.failed, notes: r.reasons.notes}
	if !slices.ContainsFunc(r.Groups, func(g Group) bool { return g.executed() }) {
		c.unknown = append(c.unknown, "nothing was executed")
	}
	for i := range r.Groups {
		r.Groups[i].summarize()
		c.certain = c.certain || r.Groups[i].hasCertainlyFailed()
		c.addGroup(&r.Groups[i])
		c.addRequired(r.Require, &r.Groups[i])
	}
	for _, k := range r.KnownFailing {
		if k.State != KnownFails {
			c.failed = append(c.failed, fmt.Sprintf("known-failing entry %s: %s", k.Describe(), k.Detail))
		}
	}
	r.Outcome = c.outcome()
	r.Outcome.NotCovered = r.notCovered()
}

func (g *Group) summarize() {
	g.Summary = map[scenarios.Level]Counts{}
	for _, r := range g.Cases {
		g.count(r.level(), r.Mark())
	}
	for _, n := range g.NotRun {
		g.count(cmp.Or(n.Level, scenarios.Core), n.Mark())
	}
}

func (g *Group) count(level scenarios.Level, m Mark) {
	counts := g.Summary[level]
	*counts.Of(m)++
	g.Summary[level] = counts
}

func (r Result) level() scenarios.Level { return cmp.Or(r.Level, scenarios.Core) }

// Bad reports whether the result needs a reader's attention: it failed unexpectedly, or is invalid.
func (r Result) Bad() bool {
	if r.KnownFailing != "" {
		return false
	}
	return r.Verdict == verdicts.Failed || r.Verdict == verdicts.Invalid
}

// executed reports whether a case of the group was run to an end, whatever the end.
func (g *Group) executed() bool {
	return slices.ContainsFunc(g.Cases, func(r Result) bool { return Executed(r.Verdict) })
}

// leftOut reports whether the user left out all cases of the group. A group counts as not left out if some of its cases
// were selected but none of these is for the target, because then nothing was shown although somebody asked.
func (g *Group) leftOut() bool {
	isSelected := slices.ContainsFunc(g.NotRun, func(n Omission) bool { return n.Cause != CauseUser })
	return len(g.Cases) == 0 && len(g.NotRun) > 0 && !isSelected
}

// beyondTarget reports whether the group has only cases that the subject cannot show and need not show: none is
// supported, none is of level core, and no control plane was started for them.
func (g *Group) beyondTarget() bool {
	if g.Cell != nil || len(g.Cases) == 0 {
		return false
	}
	return !slices.ContainsFunc(g.Cases, func(r Result) bool {
		return r.Verdict != verdicts.NotSupported || r.level() == scenarios.Core
	})
}

// capabilities returns what the group's control plane can show. It is empty if the group has no control plane.
func (g *Group) capabilities() scenarios.Capabilities {
	if g.Target == nil {
		return nil
	}
	return g.Target.Capabilities
}

// resultKind is a kind of result that a group's reasons count.
type resultKind struct {
	reasons *[]string
	format  string
	matches func(Result) bool
}

// addReason adds a reason for the outcome to a list of the conclusion.
func (g *Group) addReason(to *[]string, format string, args ...any) {
	*to = append(*to, g.Name+": "+fmt.Sprintf(format, args...))
}

// addGroup adds what a group contributes to the outcome.
func (c *conclusion) addGroup(g *Group) {
	if g.leftOut() { // it was not started, and the outcome lists it as not covered
		c.addLeftOut(g)
		return
	}
	c.addTarget(g)
	c.addResults(g)
	c.addLeftOut(g)
}

// hasCertainlyFailed reports whether something failed in the group that nothing which is unknown explains.
func (g *Group) hasCertainlyFailed() bool {
	groupConclusion := &conclusion{}
	groupConclusion.addGroup(g)
	isSound := g.Cell != nil && len(groupConclusion.unknown) == 0
	return slices.ContainsFunc(g.Cases, func(r Result) bool {
		isFailure := r.Verdict == verdicts.Failed && r.KnownFailing == ""
		isSure := isSound || r.Certain
		return isFailure && isSure
	})
}

// addTarget adds what was wrong with the group's control plane.
func (c *conclusion) addTarget(g *Group) {
	if g.Problem != "" {
		g.addReason(&c.unknown, "the target could not be used: %s", FirstLine(g.Problem))
	}
	if g.Witness == nil {
		return
	}
	for _, m := range g.Witness.Mismatches {
		g.addReason(&c.unknown, "the target is not what was asked for: %s", m)
	}
	if m := g.Witness.contradiction(g.capabilities()); m != "" {
		g.addReason(&c.failed, "the API server contradicts itself: %s", m)
	}
}

// addResults adds the results of the group, with one reason for each kind of problem.
func (c *conclusion) addResults(g *Group) {
	if !g.executed() && !g.beyondTarget() {
		g.addReason(&c.unknown, "nothing was executed (leave it out, or select a case that is for it)")
	}
	for _, k := range c.kinds(g) {
		n, first := tallyResults(g.Cases, k.matches)
		if n > 0 {
			g.addReason(k.reasons, "%s", fmt.Sprintf(k.format, Plural(n, "case"))+first)
		}
	}
}

// addLeftOut notes how many cases of the group the user left out.
func (c *conclusion) addLeftOut(g *Group) {
	n := seq.Count(g.NotRun, func(o Omission) bool { return o.Cause == CauseUser })
	if n > 0 {
		g.addReason(&c.notes, "%s left out by the user", Plural(n, "case"))
	}
}

func (c *conclusion) kinds(g *Group) []resultKind {
	isCore := func(r Result) bool { return r.level() == scenarios.Core }
	is := func(r Result, v verdicts.Verdict) bool { return r.Verdict == v }
	unsupportedCore := &c.unknown
	if g.capabilities().Foreign() { // it cannot be made to show more
		unsupportedCore = &c.notes
	}
	return []resultKind{
		{&c.unknown, "%s of level core invalid", func(r Result) bool { return isCore(r) && is(r, verdicts.Invalid) }},
		{unsupportedCore, "%s of level core not supported by the target", func(r Result) bool { return isCore(r) && is(r, verdicts.NotSupported) }},
		{&c.unknown, "%s of an unknown verdict", func(r Result) bool { return !isVerdict(r.Verdict) }},
		{&c.failed, "%s failed", func(r Result) bool { return is(r, verdicts.Failed) && r.KnownFailing == "" }},
		{&c.minor, "%s invalid", func(r Result) bool { return !isCore(r) && is(r, verdicts.Invalid) }},
		{&c.notes, "%s failed as the known-failing list states", func(r Result) bool { return r.KnownFailing != "" }},
		{&c.notes, "%s not supported by the target", func(r Result) bool { return !isCore(r) && is(r, verdicts.NotSupported) }},
		{&c.notes, "%s skipped", func(r Result) bool { return is(r, verdicts.Skipped) }},
		{&c.notes, "%s with expectations that the target cannot show", func(r Result) bool { return len(r.NotJudged) > 0 }},
	}
}

func isVerdict(v verdicts.Verdict) bool {
	return Executed(v) || v == verdicts.NotSupported || v == verdicts.Skipped
}

// tallyResults counts the results that match, and returns the first of them as an example.
func tallyResults(results []Result, matches func(Result) bool) (n int, first string) {
	for _, r := range results {
		if !matches(r) {
			continue
		}
		if n == 0 {
			first = ": " + r.Case
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

// addRequired adds the cases of required levels that were for the group and were not judged.
func (c *conclusion) addRequired(require []scenarios.Level, g *Group) {
	var missing []string
	add := func(level scenarios.Level, name, why string) {
		if slices.Contains(require, level) {
			missing = append(missing, fmt.Sprintf("%s (%s)", name, FirstLine(why)))
		}
	}
	for _, n := range g.NotRun {
		if n.Cause == CauseUser {
			add(cmp.Or(n.Level, scenarios.Core), n.Case, n.Why)
		}
	}
	for _, r := range g.Cases {
		isJudged := r.Verdict == verdicts.Passed || r.Verdict == verdicts.Failed
		if !isJudged && r.Verdict != verdicts.NotSupported {
			add(r.level(), r.Case, r.Reason)
		}
	}
	if len(missing) > 0 {
		c.unknown = append(c.unknown,
			fmt.Sprintf("%s: %s required and not judged: %s", g.Name, Plural(len(missing), "case"), strings.Join(missing, ", ")),
		)
	}
}

// notCovered lists the groups that the user left out, and counts the cases that no group supports by what the targets
// lack.
func (r *Report) notCovered() (lines []string) {
	for i := range r.Groups {
		if g := &r.Groups[i]; g.leftOut() {
			lines = append(lines, g.Name+", which the user left out")
		}
	}
	counts := map[string]int{}
	for _, why := range r.unsupported() {
		counts[describeLack(why)]++
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, Plural(counts[what], "case")+" "+what)
	}
	return lines
}

// unsupported returns the cases that no group could execute and one does not support, by name, each with the reason.
func (r *Report) unsupported() map[string]string {
	executed, reasons := map[string]bool{}, map[string]string{}
	for _, g := range r.Groups {
		for _, result := range g.Cases {
			executed[result.Case] = executed[result.Case] || Executed(result.Verdict)
			if result.Verdict == verdicts.NotSupported {
				reasons[result.Case] = result.Reason
			}
		}
	}
	maps.DeleteFunc(reasons, func(name, _ string) bool { return executed[name] })
	return reasons
}

// describeLack shortens the reason why a case is not supported to what the target lacks.
func describeLack(why string) string {
	what, isNamed := strings.CutPrefix(why, "the target lacks ")
	if !isNamed {
		return "not supported"
	}
	what, _, _ = strings.Cut(what, ",") // the rest says for whom there is no substitute
	return "for lack of " + what
}
