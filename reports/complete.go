package reports

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Complete derives everything that follows from what the run filled in: the scenarios and their digest,
// summaries, findings, what became of the known-failing entries, and the outcome. It may be called again.
func (r *ConformanceReport) Complete(set *scenarios.Set, evidence []*verdicts.Evidence, known []KnownFailing) Outcome {
	r.APIVersion, r.Kind = APIVersion, Kind
	r.Started, r.Finished = r.Started.UTC(), r.Finished.UTC()
	r.Scenarios = seq.Map(set.All(), func(s *scenarios.Scenario) ScenarioRef {
		return ScenarioRef{ID: s.ID, Level: s.Level, Digest: s.Digest}
	})
	slices.SortFunc(r.Scenarios, func(a, b ScenarioRef) int { return strings.Compare(a.ID, b.ID) })
	r.ScenariosDigest = digestOf(r.Scenarios)
	for i := range r.Cells {
		c := &r.Cells[i]
		slices.SortStableFunc(c.Results, func(a, b verdicts.Result) int { return strings.Compare(a.Scenario, b.Scenario) })
		slices.SortStableFunc(c.NotRun, func(a, b NotRun) int { return strings.Compare(a.Scenario, b.Scenario) })
	}
	r.applyKnownFailing(known)
	for i := range r.Cells {
		r.Cells[i].summarize(set)
	}
	r.findings(set, evidence)
	if r.Path != nil {
		r.Path.derive(r, set, evidence)
	}
	return r.Conclude()
}

func digestOf(refs []ScenarioRef) string {
	h := sha256.New()
	for _, s := range refs {
		_, _ = fmt.Fprintf(h, "%s %s\n", s.ID, s.Digest)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (c *Cell) summarize(set *scenarios.Set) {
	c.Summary = map[scenarios.Level]Counts{}
	for _, r := range c.Results {
		n := c.Summary[r.Level]
		*n.Of(markOf(r))++
		c.Summary[r.Level] = n
	}
	for _, n := range c.NotRun {
		s, ok := set.Get(n.Scenario)
		if !ok {
			continue // Conclude says that it is not one of the loaded ones.
		}
		counts, m := c.Summary[s.Level], MarkNotRun
		if n.Cause == CauseUser {
			m = MarkSkipped
		}
		*counts.Of(m)++
		c.Summary[s.Level] = counts
	}
}

type key struct{ cell, scenario string }

func index(evidence []*verdicts.Evidence) map[key]*verdicts.Evidence {
	m := map[key]*verdicts.Evidence{}
	for _, e := range evidence {
		m[key{e.Cell.Name, e.Scenario}] = e
	}
	return m
}

// findings lists the divergences that were run: what the text says beside what was seen.
func (r *ConformanceReport) findings(set *scenarios.Set, evidence []*verdicts.Evidence) {
	r.Findings = nil
	at := index(evidence)
	for _, s := range set.All() {
		if s.Level != scenarios.Divergence {
			continue
		}
		for _, c := range r.Cells {
			for _, result := range c.Results {
				if result.Scenario != s.ID || !Executed(result.Verdict) {
					continue
				}
				r.Findings = append(r.Findings, Finding{
					Scenario: s.ID, Cell: c.Name, Documented: strings.TrimSpace(s.Documented),
					Source: s.Source.Document + ", " + s.Source.Section,
					Seen:   seenLines(s, at[key{c.Name, s.ID}], result), Verdict: result.Verdict,
				})
			}
		}
	}
}

// seenLines says what a server did, a line per request, in the names of the scenario.
func seenLines(s *scenarios.Scenario, e *verdicts.Evidence, result verdicts.Result) (lines []string) {
	if e == nil || result.Verdict == verdicts.Invalid {
		return []string{FirstLine(result.Reason)}
	}
	for i := range e.Steps {
		o := &e.Steps[i]
		for n, line := range observedLines(o) {
			if n == 0 && o.Step < len(s.Steps) && s.Steps[o.Step].Name != "" {
				line = s.Steps[o.Step].Name + ": " + line
			}
			lines = append(lines, plainNames(e.Names, line))
		}
	}
	return lines
}

// requestLine is who asked what, for example "deputy as bob: GET /api/v1/pods".
func requestLine(o *verdicts.Observation) string {
	who := o.Request.Requestor
	if as := o.Request.Headers["Impersonate-User"]; len(as) > 0 {
		who += " as " + strings.Join(as, ", ")
	}
	target := o.Request.URL
	if u, err := url.Parse(target); err == nil {
		target = u.RequestURI()
	}
	return who + ": " + o.Request.Method + " " + target
}

// answerLine is the class of an answer, its code, and the resulting user or the refusal.
func answerLine(o *verdicts.Observation) string {
	event := verdicts.AuditOf(o)
	line := fmt.Sprintf("%d", o.Response.Code)
	if outcome := verdicts.OutcomeOf(o.Response); outcome != "" {
		line = fmt.Sprintf("%s (%d)", outcome, o.Response.Code)
	}
	switch st := verdicts.StatusOf(o.Response); {
	case event != nil && event.ImpersonatedUser != nil:
		line += fmt.Sprintf(" as %s, groups %q", event.ImpersonatedUser.Username, event.ImpersonatedUser.Groups)
		if c := verdicts.ConstraintOf(event); c != "" {
			line += ", constraint " + c
		}
	case st != nil && st.Message != "":
		line += ": " + st.Message
	}
	return line
}

func plainNames(names map[string]string, text string) string {
	plain := slices.Sorted(maps.Keys(names))
	slices.SortStableFunc(plain, func(a, b string) int { return len(names[b]) - len(names[a]) })
	var pairs []string
	for _, n := range plain {
		if names[n] != "" && names[n] != n {
			pairs = append(pairs, names[n], n)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// KnownFailing states that a scenario is expected to fail, and why. It is a claim like any other: it has to hold.
type KnownFailing struct {
	// Scenario is an exact ID, or a pattern as of path.Match, in which * does not cross a slash.
	Scenario string `json:"scenario" yaml:"scenario"`
	// Cell is a pattern for the names of cells; left out it is every cell.
	Cell string `json:"cell,omitempty" yaml:"cell,omitempty"`
	// Reason is the beginning of one of the failure's differences in the form "field: want …, got …", with the whole
	// field. It must be given: a scenario that begins to fail otherwise is news.
	Reason string `json:"reason" yaml:"reason"`
	Issue  string `json:"issue,omitempty" yaml:"issue,omitempty"` // where the failure is being dealt with
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

// Describe returns what the entry is about: a pattern for cases, and one for groups if there is one.
func (k KnownFailing) Describe() string {
	if k.Cell == "" {
		return k.Scenario
	}
	return k.Scenario + " on " + k.Cell
}

// matches says whether the entry is about a result. Patterns were checked when the list was loaded; a bad one
// matches nothing, which is then an error.
func (k KnownFailing) matches(cell string, r verdicts.Result) bool {
	return Executed(r.Verdict) && glob(k.Scenario, r.Scenario) && (k.Cell == "" || glob(k.Cell, cell))
}

func glob(pattern, name string) bool {
	if pattern == name {
		return true
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// explains says whether the stated reason is that of a failure: a part of one of its differences that names the field.
func (k KnownFailing) explains(r verdicts.Result) bool {
	return slices.ContainsFunc(r.Differences, func(d verdicts.Difference) bool {
		text := fmt.Sprintf("step %d: %s: want %s, got %s", d.Step, d.Field, d.Want, d.Got)
		return strings.HasPrefix(stepOf.ReplaceAllString(k.Reason, ""), d.Field) && strings.Contains(text, k.Reason)
	})
}

// stepOf is what a reason may begin with.
var stepOf = regexp.MustCompile(`^step \d+: `)

// applyKnownFailing marks the results that fail as the entries state, and sets what became of each entry. Marks
// of before are dropped, so that it can be done again from a report that was read.
func (r *ConformanceReport) applyKnownFailing(entries []KnownFailing) {
	for i := range r.Cells {
		for j := range r.Cells[i].Results {
			r.Cells[i].Results[j].KnownFailing = ""
		}
	}
	r.KnownFailing = seq.Map(entries, r.state)
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
				wrong(KnownInvalid, "%s is invalid, so it is not known whether it still fails: %s", where, FirstLine(result.Reason))
			case !e.explains(*result):
				wrong(KnownFailsOtherwise, "%s failed, but not for the stated reason %q: %s", where, e.Reason, FirstLine(result.Reason))
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
			bad("", "entry %d states no reason: say a difference that is expected, from its field on", i+1)
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
