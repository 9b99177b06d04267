package reports

import (
	"cmp"

	"github.com/authzconf/authzconf/verdicts"
)

// Mark is how a kind of verdict is shown: by a word and a symbol, never by a colour alone.
type Mark struct {
	// Class names the kind in a style sheet.
	Class  string
	Symbol string
	Word   string
}

// These are the marks. A case that was not to be judged has one, too.
var (
	MarkPassed       = Mark{"pass", "✓", "passed"}
	MarkFailed       = Mark{"fail", "✗", "failed"}
	MarkKnown        = Mark{"known", "≈", "known failing"}
	MarkInvalid      = Mark{"invalid", "!", "invalid"}
	MarkNotSupported = Mark{"unsupported", "⊘", "not supported"}
	MarkSkipped      = Mark{"skipped", "»", "skipped"}
	MarkNotRun       = Mark{"na", "·", "not applicable"}
)

// Marks returns all marks in the order in which they are shown.
func Marks() []Mark {
	return []Mark{MarkPassed, MarkFailed, MarkKnown, MarkInvalid, MarkNotSupported, MarkSkipped, MarkNotRun}
}

var verdictMarks = map[verdicts.Verdict]Mark{
	verdicts.Passed: MarkPassed, verdicts.Failed: MarkFailed, verdicts.NotSupported: MarkNotSupported, verdicts.Skipped: MarkSkipped,
}

// VerdictMark returns the mark of a verdict. One that is not known is shown as invalid.
func VerdictMark(v verdicts.Verdict) Mark { return cmp.Or(verdictMarks[v], MarkInvalid) }

// Mark returns the mark of the result.
func (r Result) Mark() Mark {
	if r.KnownFailing != "" {
		return MarkKnown
	}
	return VerdictMark(r.Verdict)
}

// Mark returns the mark of a case that was not to be judged: the user left it out, or it is not for this group.
func (o Omission) Mark() Mark {
	if o.Cause == CauseUser {
		return MarkSkipped
	}
	return MarkNotRun
}

// Of returns the count of a mark, to be read or changed.
func (c *Counts) Of(m Mark) *int {
	return map[Mark]*int{
		MarkPassed: &c.Passed, MarkFailed: &c.Failed, MarkKnown: &c.KnownFailing, MarkInvalid: &c.Invalid,
		MarkNotSupported: &c.NotSupported, MarkSkipped: &c.Skipped, MarkNotRun: &c.NotApplicable,
	}[m]
}

func (c Counts) add(o Counts) Counts {
	for _, m := range Marks() {
		*c.Of(m) += *o.Of(m)
	}
	return c
}

// Counts returns the counts of all levels together.
func (g *Group) Counts() (all Counts) {
	for _, n := range g.Summary {
		all = all.add(n)
	}
	return all
}

// Counts returns the counts of all groups together.
func (r *Report) Counts() (all Counts) {
	for i := range r.Groups {
		all = all.add(r.Groups[i].Counts())
	}
	return all
}
