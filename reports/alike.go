package reports

import (
	"slices"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// seen is one scenario on one cell: what came of it, and what was seen.
type seen struct {
	cell      *Cell
	result    verdicts.Result
	evidence  *verdicts.Evidence // nil if there is none
	behaviour seenBehaviour
	control   []string
}

func seenResult(c *Cell, r verdicts.Result, e *verdicts.Evidence) seen {
	s := seen{cell: c, result: r, evidence: e}
	if e != nil {
		s.behaviour = behaviourOf(e)
		if e.Control != nil {
			s.control = verdicts.Behaviour(e.Control)
		}
	}
	return s
}

// plain is a text with the scenario's own names.
func (s seen) plain(text string) string {
	if s.evidence == nil {
		return text
	}
	return plainNames(s.evidence.Names, text)
}

// equal says whether two cells cannot be told apart by a reader: the same was seen, and the same made of it.
// What one of them cannot show does not count.
func (s seen) equal(o seen) bool {
	a, b := s.result, o.result
	return markOf(a) == markOf(b) && a.Verdict == b.Verdict && a.Blame == b.Blame && a.KnownFailing == b.KnownFailing &&
		s.plain(a.Reason) == o.plain(b.Reason) && (s.evidence == nil) == (o.evidence == nil) &&
		slices.EqualFunc(a.Differences, b.Differences, func(x, y verdicts.Difference) bool {
			return x.Step == y.Step && x.Field == y.Field && s.plain(x.Want) == o.plain(y.Want) && s.plain(x.Got) == o.plain(y.Got)
		}) && s.behaviour.equal(o.behaviour) && slices.Equal(s.control, o.control)
}

// alike are cells that cannot be told apart; one of them is shown.
type alike struct {
	shown seen
	all   []seen
}

// group puts what was seen on a cell beside its like. Of them the one that shows most is shown.
func group(groups []alike, s seen) []alike {
	for i := range groups {
		g := &groups[i]
		if g.shown.equal(s) {
			g.all = append(g.all, s)
			if s.behaviour.metrics && !g.shown.behaviour.metrics {
				g.shown = s
			}
			return groups
		}
	}
	return append(groups, alike{s, []seen{s}})
}

func (g alike) panel(s *scenarios.Scenario) panel {
	p := newPanel(s, g.shown.cell, g.shown.result, g.shown.evidence)
	for _, other := range g.all {
		if other.cell == g.shown.cell {
			continue
		}
		c := panelCell{Name: other.cell.Name, NotJudged: other.result.NotJudged}
		if other.evidence != nil {
			c.Evidence = evidencePath(other.cell.Name, s.ID)
		}
		p.Cells = append(p.Cells, c)
	}
	return p
}
