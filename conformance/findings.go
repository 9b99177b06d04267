package conformance

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// sight is what servers did in a divergence scenario, and on which cells.
type sight struct {
	cells    []string
	observed string
	verdict  verdicts.Verdict
}

// DescribeDivergences shows what documents say beside what servers did, for each divergence scenario that was run. It
// returns nil if none was.
func DescribeDivergences(groups []reports.Group, set *scenarios.Set, view record.View) []reports.Section {
	table := reports.Table{Columns: []string{"Scenario", "Source", "Documented", "Observed", "Cells"}}
	for _, s := range set.All() {
		if s.Level != scenarios.Divergence {
			continue
		}
		for _, at := range collectSights(groups, s, view) {
			table.Rows = append(table.Rows, reports.Row{Verdict: at.verdict, Cells: []string{
				s.ID,
				s.Source.Document + ", " + s.Source.Section,
				strings.TrimSpace(s.Documented),
				at.observed,
				strings.Join(at.cells, ", "),
			}})
		}
	}
	if len(table.Rows) == 0 {
		return nil
	}
	return []reports.Section{{
		ID: "divergences", Title: "Where documents and servers differ",
		Text:   []string{"Judged against the servers: passed means that the server does what servers are known to do, not what the text says."},
		Tables: []reports.Table{table},
	}}
}

// collectSights returns what was seen of a scenario. Cells on which the same was seen share one.
func collectSights(groups []reports.Group, s *scenarios.Scenario, view record.View) (sights []sight) {
	for _, g := range groups {
		i := slices.IndexFunc(g.Cases, func(r reports.Result) bool { return r.Case == s.ID })
		if i < 0 {
			continue
		}
		e := findEvidence(view, g.Name, s.ID)
		if e == nil {
			continue
		}
		now := sight{cells: []string{g.Name}, observed: describeSight(s, e, g.Cases[i]), verdict: g.Cases[i].Verdict}
		same := slices.IndexFunc(sights, func(before sight) bool { return before.observed == now.observed && before.verdict == now.verdict })
		if same >= 0 {
			sights[same].cells = append(sights[same].cells, g.Name)
		} else {
			sights = append(sights, now)
		}
	}
	return sights
}

func describeSight(s *scenarios.Scenario, e *verdicts.Evidence, r reports.Result) string {
	if r.Verdict == verdicts.Invalid {
		return reports.FirstLine(r.Reason)
	}
	return strings.Join(describeSteps(e, stepNamer(s)), "; ")
}
