package reports

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Complete derives everything that follows from what the run filled in: the scenarios and their digest,
// summaries, findings, what became of the known-failing entries, and the outcome. It may be called again.
func (r *ConformanceReport) Complete(set *scenarios.Set, evidence []*verdicts.Evidence, known []KnownFailing) Outcome {
	r.APIVersion, r.Kind = APIVersion, Kind
	r.Started, r.Finished = r.Started.UTC(), r.Finished.UTC()
	r.Scenarios = scenarios.Each(set.All(), func(s *scenarios.Scenario) ScenarioRef {
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

// digestOf is the digest over all scenarios, which are sorted.
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
		*n.of(markOf(r))++
		c.Summary[r.Level] = n
	}
	for _, n := range c.NotRun {
		s, ok := set.Get(n.Scenario)
		if !ok {
			continue // Conclude says that it is not one of the loaded ones.
		}
		counts, m := c.Summary[s.Level], markNotRun
		if n.Cause == CauseUser {
			m = markSkipped
		}
		*counts.of(m)++
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
				if result.Scenario != s.ID || !executed(result.Verdict) {
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
func seenLines(s *scenarios.Scenario, e *verdicts.Evidence, result verdicts.Result) []string {
	if e == nil || result.Verdict == verdicts.Invalid {
		return []string{firstLine(result.Reason)}
	}
	var lines []string
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

// plainNames turns unique names back into those of the scenario. Longer ones go first, for one name may begin another.
func plainNames(names map[string]string, text string) string {
	plain := sortedKeys(names)
	slices.SortStableFunc(plain, func(a, b string) int { return len(names[b]) - len(names[a]) })
	var pairs []string
	for _, n := range plain {
		if names[n] != "" && names[n] != n {
			pairs = append(pairs, names[n], n)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
