package deputy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// judgement is the result of a case.
type judgement struct {
	// checks is how many comparisons were made.
	checks int
	// outcomes counts the outcomes of requests. foundBy counts in which ways their audit events were found.
	outcomes map[string]int
	foundBy  map[string]int
	failures []failure
	// findings are the failures that are attacks.
	findings []finding
	pages    []pageCost
	// inconclusive says why nothing can be concluded, and is set by setInconclusive. It is empty if something can. The
	// verdict is then invalid, unless something failed: then it is failed, and Conclude adds this to the reasons of the
	// report's outcome.
	inconclusive string
	seconds      float64
}

// failure is a check that failed.
type failure struct{ what, want, got string }

// finding is an attack by which somebody else arrived, or a request that should have arrived and did not.
type finding struct {
	attack string
	// requests shows what was sent. Each credential is replaced by the name of its owner.
	requests []string
	answers  []int
	arrived  string
	// isCertain means that somebody else arrived according to an event with the attack's marker. Nothing that broke can
	// explain that.
	isCertain bool
}

func newJudgement() *judgement {
	return &judgement{outcomes: map[string]int{}, foundBy: map[string]int{}}
}

func (f failure) String() string { return f.what + ": " + f.got }

// fail adds a failed check: what was checked, what is demanded, and what was seen.
func (j *judgement) fail(what, want, format string, args ...any) {
	j.failures = append(j.failures, failure{what, want, fmt.Sprintf(format, args...)})
}

// failAttack adds an attack that got through, or a request that should have arrived and did not.
func (j *judgement) failAttack(a attack, e *attackEvidence, why string) {
	j.findings = append(j.findings, finding{attack: a.Name, requests: e.Sent, answers: e.codes(), arrived: why})
	want := "as the person who sent it, or not at all"
	if a.isControl() {
		want = asPerson
	}
	j.fail(a.Name, want, "%s", why)
}

// setInconclusive records why nothing can be concluded. Of several reasons the first is kept, because what broke first
// may explain the others.
func (j *judgement) setInconclusive(why string) { j.inconclusive = cmp.Or(j.inconclusive, why) }

// notTried returns how many attacks were not tried, and why.
func (j *judgement) notTried() (n int, why []string) {
	for _, outcome := range slices.Sorted(maps.Keys(j.outcomes)) {
		if strings.HasPrefix(outcome, notTriedPrefix) {
			n += j.outcomes[outcome]
			why = append(why, outcome)
		}
	}
	return n, why
}

// notTriedPrefix is the beginning of the outcomes of attacks that were not tried.
const notTriedPrefix = "not tried: "

// summaryLine returns the result in one line.
func (j *judgement) summaryLine() string {
	text := fmt.Sprintf("%s in %.1f s, %d failed", reports.Plural(j.checks, "check"), j.seconds, len(j.failures))
	if len(j.outcomes) > 0 {
		text += ": " + listCounts(j.outcomes)
	}
	if len(j.foundBy) > 0 {
		text += "; events found by " + listCounts(j.foundBy)
	}
	return text
}

func listCounts(counts map[string]int) string {
	return strings.Join(seq.Map(slices.Sorted(maps.Keys(counts)), func(what string) string {
		return fmt.Sprintf("%d %s", counts[what], what)
	}), ", ")
}

// listedFailures is how many failures a result lists. Further ones are only counted.
const listedFailures = 50

// result returns the verdict on the case, and what explains it.
func (j *judgement) result() reports.Result {
	r := reports.Result{Judged: j.checks, Seconds: j.seconds, Details: []string{j.summaryLine()}}
	notTried, why := j.notTried()
	switch {
	case len(j.failures) > 0:
		first := j.failures[0]
		r.Verdict = verdicts.Failed
		r.Certain = slices.ContainsFunc(j.findings, func(f finding) bool { return f.isCertain })
		r.Reason = fmt.Sprintf(
			"%s: want %s, got %s; %s in %s",
			first.what,
			first.want,
			first.got,
			reports.Plural(len(j.failures), "failure"),
			reports.Plural(j.checks, "check"),
		)
	case j.inconclusive != "":
		r.Verdict, r.Blame, r.Reason = verdicts.Invalid, verdicts.BlameEnvironment, j.inconclusive
	case j.checks == 0 && notTried > 0:
		r.Verdict, r.Reason = verdicts.Skipped, strings.Join(why, "; ")
	case j.checks == 0:
		r.Verdict, r.Blame, r.Reason = verdicts.Invalid, verdicts.BlameHarness, "nothing was compared"
	default:
		r.Verdict = verdicts.Passed
	}
	for i, f := range j.failures {
		if i == listedFailures {
			r.Details = append(r.Details, fmt.Sprintf("and %d more", len(j.failures)-i))
			break
		}
		r.Differences = append(r.Differences, verdicts.Difference{Field: f.what, Want: f.want, Got: f.got})
	}
	if len(j.findings) > 0 {
		r.Tables = append(r.Tables, tableOfFindings(j.findings))
	}
	return r
}

// tableOfFindings shows what was sent, answered, and who arrived.
func tableOfFindings(findings []finding) reports.Table {
	t := reports.Table{Title: "What was sent, and who arrived", Columns: []string{"attack", "arrived", "answered", "sent"}}
	for _, f := range findings {
		answers := strings.Join(seq.Map(f.answers, strconv.Itoa), ", ")
		t.Rows = append(t.Rows,
			reports.Row{Cells: []string{f.attack, f.arrived, answers, strings.Join(f.requests, "\n")}, Verdict: verdicts.Failed},
		)
	}
	return t
}
