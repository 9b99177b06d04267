package certify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// Conclude returns the report: the levels that are granted, why the others are not, and what was measured.
func (t *Trial[A]) Conclude(results []reports.Result, view record.View) (*reports.Report, error) {
	r := &reports.Report{Subject: t.Subject.report(), Groups: product.Group(t.Cases(), results)}
	run, err := t.judgeAll(view)
	if err != nil {
		r.AddUnknown(err.Error())
		return r, nil
	}
	run.omit(r.Groups)
	if run.Problem != "" {
		r.AddUnknown("not all could be tried: " + run.Problem)
	}
	if run.Stopped != "" {
		r.AddNote("the run was ended: " + run.Stopped)
	}
	r.AddNote("levels granted: " + cmp.Or(strings.Join(GrantedLevels(r.Groups), ", "), "none"))
	for _, g := range r.Groups {
		if omission := describeInapplicable(g); omission != "" {
			r.AddNote(fmt.Sprintf("%s: %s", g.Name, omission))
		}
	}
	for _, note := range run.safeAdvice() {
		r.AddNote(note)
	}
	r.Sections = append(r.Sections, run.levelsSection(r.Groups))
	r.Sections = append(r.Sections, run.measurementSections()...)
	r.Sections = append(r.Sections, run.observationSections()...)
	r.Sections = append(r.Sections, run.findingsSection(), t.suiteSection(run))
	r.Figures = append(r.Figures, reports.Figure{Name: "answers", Value: float64(run.answerCount)})
	for _, result := range run.Results {
		for _, rate := range result.Rates {
			r.Figures = append(r.Figures,
				reports.Figure{Name: fmt.Sprintf("p99 at %d reviews/s", rate.TargetRate), Value: rate.P99, Unit: "ms"},
			)
		}
	}
	return r, nil
}

// omit moves parts that turned out not to apply to the authorizer from the cases of groups to those that are not run.
func (run *judgedRun) omit(groups []reports.Group) {
	for i := range groups {
		g := &groups[i]
		g.Cases = slices.DeleteFunc(g.Cases, func(r reports.Result) bool {
			why := run.Cases[g.Name+"/"+r.Case].Inapplicable
			if why != "" && r.Verdict == verdicts.NotSupported {
				g.NotRun = append(g.NotRun, reports.Omission{Case: r.Case, Level: r.Level, Cause: reports.CauseTarget, Why: why})
				return true
			}
			return false
		})
	}
}

// describeInapplicable returns how much of a level does not apply to the authorizer, and why. It is empty if everything
// applies.
func describeInapplicable(g reports.Group) string {
	counts, total := map[string]int{}, 0
	for _, n := range g.NotRun {
		if n.Cause == reports.CauseTarget {
			counts[n.Why]++
			total++
		}
	}
	if total == 0 {
		return ""
	}
	var whys []string
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		whys = append(whys, fmt.Sprintf("%d, %s", counts[why], why))
	}
	return fmt.Sprintf("%d of %s not applicable: %s", total, reports.Plural(len(g.Cases)+len(g.NotRun), "case"), strings.Join(whys, "; "))
}

// These are the words for the result of a level.
const (
	granted      = "yes"
	notGranted   = "no"
	notTried     = "not tried"
	notSupported = "not supported"
	inconclusive = "inconclusive"
)

// grantWord returns in a word whether a level is granted, by its cases.
func grantWord(g reports.Group) string {
	has := func(v verdicts.Verdict) bool {
		return slices.ContainsFunc(g.Cases, func(r reports.Result) bool { return r.Verdict == v })
	}
	isLeftOut := slices.ContainsFunc(g.NotRun, func(n reports.Omission) bool { return n.Cause == reports.CauseUser })
	switch {
	case has(verdicts.Failed):
		return notGranted
	case has(verdicts.Invalid):
		return inconclusive
	case has(verdicts.NotSupported):
		return notSupported
	case isLeftOut && has(verdicts.Passed):
		return "not tried in full"
	case isLeftOut, !has(verdicts.Passed):
		return notTried
	}
	return granted
}

// GrantedLevels returns the names of those groups that are granted levels.
func GrantedLevels(groups []reports.Group) (names []string) {
	for _, g := range groups {
		if g.Name != challengeCase.Group && grantWord(g) == granted {
			names = append(names, g.Name)
		}
	}
	return names
}

// levelsSection returns the table of levels.
func (run *judgedRun) levelsSection(groups []reports.Group) reports.Section {
	table := reports.Table{Columns: []string{"level", "granted", "answered", "findings"}, Numeric: []int{3}}
	for _, g := range groups {
		if g.Name == challengeCase.Group {
			continue
		}
		word := grantWord(g)
		row := reports.Row{Cells: []string{g.Name, word, "-", "-"}, Verdict: map[string]verdicts.Verdict{
			granted: verdicts.Passed, notGranted: verdicts.Failed, inconclusive: verdicts.Invalid, notSupported: verdicts.NotSupported,
		}[word]}
		i := slices.IndexFunc(run.Results, func(r LevelResult) bool { return string(r.Level) == g.Name })
		if i >= 0 && word != notTried {
			r := run.Results[i]
			row.Cells[2], row.Cells[3] = fmt.Sprintf("%d of %d", r.Reviews, r.Planned), fmt.Sprint(r.Findings)
			if word == granted {
				row.Cells[1] += r.Terms()
			}
			omitted := seq.Count(g.NotRun, func(n reports.Omission) bool { return n.Cause == reports.CauseTarget })
			if word == granted && omitted > 0 {
				row.Cells[1] += fmt.Sprintf(", without %d that are not applicable", omitted)
			}
		}
		table.Rows = append(table.Rows, row)
	}
	text := []string{"A level is granted if everything in it was asked and nothing is wrong."}
	if slices.ContainsFunc(run.Results, func(r LevelResult) bool { return r.Level == Safe }) {
		text = append(text,
			"Level safe asks for what nobody was granted. It does not show that anything is allowed, or that what is granted to one is not allowed to another.",
		)
	}
	return reports.Section{ID: "levels", Title: "Levels", Tables: []reports.Table{table}, Text: text}
}

// safeAdvice returns what has to be known about right answers of level safe.
func (run *judgedRun) safeAdvice() (notes []string) {
	for _, f := range run.Certification.Findings {
		if f.Advice && f.Level == Safe {
			notes = append(notes,
				fmt.Sprintf("%s: %s, which is safe; but %s", f.Reason, reports.Plural(f.Count, "answer"), policy.Why(f.Reason)),
			)
		}
	}
	return notes
}

// findingsSection returns the table of what is wrong.
func (run *judgedRun) findingsSection() reports.Section {
	s := reports.Section{ID: "findings", Title: "Findings"}
	if len(run.Certification.Findings) == 0 {
		s.Text = []string{"Nothing wrong was seen in what was asked."}
		return s
	}
	table := reports.Table{Columns: []string{"finding", "level", "blame", "answers", "what is right", "an example"}, Numeric: []int{3}}
	for _, f := range run.Certification.Findings {
		name, verdict := f.Reason, verdicts.Failed
		if f.Advice {
			name, verdict = name+" (advice)", ""
		}
		table.Rows = append(table.Rows, reports.Row{Verdict: verdict, Cells: []string{
			name,
			string(f.Level),
			string(f.Blame),
			fmt.Sprint(f.Count),
			policy.Why(f.Reason),
			strings.Join(f.Examples[:min(len(f.Examples), 1)], ""),
		}})
	}
	s.Tables = []reports.Table{table}
	return s
}

// measurementSections returns what was measured at rates and in windows, if anything was.
func (run *judgedRun) measurementSections() (out []reports.Section) {
	for _, r := range run.Results {
		if len(r.Rates) > 0 {
			out = append(out, reports.Section{ID: "load", Title: "Load", Tables: rateTables(r.Rates)})
		}
		if len(r.Windows) > 0 {
			table := reports.Table{Columns: []string{"asked by", "seen after", "limit"}, Numeric: []int{1, 2}}
			for _, w := range r.Windows {
				table.Rows = append(table.Rows,
					reports.Row{Cells: []string{w.Name, fmt.Sprintf("%d ms", w.Millis), fmt.Sprintf("%d ms", w.Limit)}},
				)
			}
			out = append(out, reports.Section{ID: "revocation", Title: "Changes of the policy", Tables: []reports.Table{table}})
		}
	}
	return out
}

// observationSections returns how closely the authorizer was observed: how many reviews were in flight at the same
// time, and how short an outage could be without being seen.
func (run *judgedRun) observationSections() (out []reports.Section) {
	s := reports.Section{ID: "watch", Title: "How closely it was watched"}
	if o := run.Observation; o.Duration > 0 {
		s.Text = append(s.Text,
			fmt.Sprintf(
				"Everything was asked once within %s. An outage in which everything is allowed is found if it lasts longer than %s, one in which nothing is allowed if it lasts longer than %s; a shorter one is found by chance.",
				o.Duration.Round(time.Millisecond),
				o.AllowGap,
				o.DenyGap,
			),
		)
	}
	table := reports.Table{
		Columns: []string{"sent together", "answers", fmt.Sprintf("with %d others in flight", minOthersInFlight), "most in flight"},
		Numeric: []int{1, 2, 3},
	}
	for _, r := range run.Results {
		for _, c := range r.Concurrency {
			table.Rows = append(table.Rows,
				reports.Row{Cells: []string{c.Check, fmt.Sprint(c.Answers), fmt.Sprint(c.ConcurrentAnswers), fmt.Sprint(c.MaxInFlight)}},
			)
		}
	}
	if len(table.Rows) > 0 {
		s.Tables = []reports.Table{table}
	}
	if len(s.Text)+len(s.Tables) == 0 {
		return nil
	}
	return []reports.Section{s}
}

// rateTables returns the tables of rates: the times, and what changed while a rate was kept up.
func rateTables(rates []Rate) []reports.Table {
	times := reports.Table{
		Columns: []string{"reviews/s", "achieved", "p50", "p99", "limit", "max", "wrong", "late", "dropped"},
		Numeric: []int{0, 1, 2, 3, 4, 5, 6, 7, 8},
	}
	change := reports.Table{
		Title:   "p99 and memory over time (0 is not known)",
		Columns: []string{"reviews/s", "kept up", "p99 of each tenth in ms", "memory in MiB"},
		Numeric: []int{0},
	}
	for _, r := range rates {
		ms := func(v float64) string { return fmt.Sprintf("%.2f ms", v) }
		times.Rows = append(times.Rows, reports.Row{Cells: []string{
			fmt.Sprint(r.TargetRate),
			fmt.Sprintf("%.1f", r.Achieved),
			ms(r.P50),
			ms(r.P99),
			ms(r.Limit),
			ms(r.Max),
			fmt.Sprint(r.Wrong),
			fmt.Sprint(r.Late),
			fmt.Sprint(r.Dropped),
		}})
		if r.isSteady() {
			memory := seq.Map(r.Memory, func(bytes int64) string { return fmt.Sprint(bytes >> 20) })
			change.Rows = append(change.Rows, reports.Row{Cells: []string{
				fmt.Sprint(r.TargetRate), r.length().String(), fmt.Sprint(r.P99s), strings.Join(memory, " "),
			}})
		}
	}
	if len(change.Rows) == 0 {
		return []reports.Table{times}
	}
	return []reports.Table{times, change}
}

// suiteSection returns what a reader needs to repeat the run, and to compare it with others.
func (t *Trial[A]) suiteSection(run *judgedRun) reports.Section {
	table := reports.Table{Columns: []string{"", ""}}
	add := func(name, value string) {
		if value != "" {
			table.Rows = append(table.Rows, reports.Row{Cells: []string{name, value}})
		}
	}
	add("mode", run.Mode)
	add("wire", run.Wire)
	add("review versions", strings.Join(run.ReviewVersions, ", "))
	add("suite", run.SuiteDigest)
	add("policy", run.PolicyDigest)
	add("asked", fmt.Sprintf("%s until %s", run.Began.Format(time.RFC3339), run.Ended.Format(time.RFC3339)))
	add("certificates of the webhook", strings.Join(run.Certificates, " "))
	if t.Challenge != nil {
		add(
			"challenge",
			fmt.Sprintf(
				"%s, from %s until %s",
				t.Challenge.Nonce,
				t.Challenge.Begins.Format(time.RFC3339),
				t.Challenge.Ends.Format(time.RFC3339),
			),
		)
	}
	return reports.Section{ID: "suite", Title: "What was asked", Tables: []reports.Table{table}}
}
