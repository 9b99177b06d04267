package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
)

// unchangedPair is a cell whose API server keeps its defaults, and the ordinary cell that is the same otherwise, by their
// places in the plan.
type unchangedPair struct{ unchanged, ordinary int }

// pairUnchanged returns the cells whose API servers keep their defaults, with the ordinary cells to compare them with.
func pairUnchanged(cells []CellPlan) (pairs []unchangedPair) {
	for i, c := range cells {
		if !c.Target.Cell.Unchanged {
			continue
		}
		other := slices.IndexFunc(cells, func(o CellPlan) bool { return isOrdinaryTwin(o.Target, c.Target) })
		if other >= 0 {
			pairs = append(pairs, unchangedPair{i, other})
		}
	}
	return pairs
}

// isOrdinaryTwin reports whether a target differs from an unchanged one in nothing but that.
func isOrdinaryTwin(o, unchanged server.Options) bool {
	a, b := o.Cell, unchanged.Cell
	a.Name, b.Name = "", ""
	a.Gate, b.Gate = server.EffectiveGate(o.Effective(), a.Gate), server.EffectiveGate(unchanged.Effective(), b.Gate)
	b.Unchanged = false
	return a == b && o.Chain == unchanged.Chain
}

// describeUnchanged compares cells whose API servers keep their defaults with ordinary ones. It returns nil where there is
// no such pair.
func describeUnchanged(set *scenarios.Set, plans []CellPlan, groups []reports.Group, view record.View) []reports.Section {
	pairs := pairUnchanged(plans)
	if len(pairs) == 0 {
		return nil
	}
	section := reports.Section{ID: "unchanged", Title: "API servers that keep their defaults", Text: []string{
		"The API servers of most cells go without some admission plugins and metric families; docs/running.md says why. " +
			"Those of the cells named unchanged keep them. What each has was read back from it, see What was judged.",
	}}
	settings := reports.Table{
		Title:   "Settings that differ",
		Columns: []string{"Cell", "Compared with", "Setting", "Unchanged", "Elsewhere"},
	}
	behaviours := reports.Table{
		Title:   "Scenarios that behaved otherwise on an unchanged API server",
		Columns: []string{"Cell", "Scenario", "Verdict", "Verdict elsewhere", "Change"},
	}
	for _, p := range pairs {
		unchanged, ordinary := plans[p.unchanged].Target.Cell.Name, plans[p.ordinary].Target.Cell.Name
		if isOrdinary := plans[p.unchanged].Target.Chain == ""; isOrdinary { // other chains differ in the same
			for _, row := range compareSettings(groups[p.unchanged].Witness, groups[p.ordinary].Witness) {
				settings.Rows = append(settings.Rows, reports.Row{Cells: append([]string{unchanged, ordinary}, row...)})
			}
		}
		comparisons, changed := compareBehaviours(set, ordinary, unchanged, view)
		section.Text = append(section.Text, fmt.Sprintf("%s: %s ran there and on %s, and %d of them behaved otherwise.",
			unchanged, reports.Plural(comparisons, "scenario"), ordinary, len(changed)))
		for _, id := range slices.Sorted(maps.Keys(changed)) {
			for _, line := range changed[id] {
				behaviours.Rows = append(behaviours.Rows, reports.Row{Cells: []string{
					unchanged, id, findVerdict(&groups[p.unchanged], id), findVerdict(&groups[p.ordinary], id), line,
				}})
			}
		}
	}
	section.Tables = seq.Filter([]reports.Table{settings, behaviours}, func(t reports.Table) bool { return len(t.Rows) > 0 })
	return []reports.Section{section}
}

// compareSettings returns the settings in which two API servers differ, each with its two values.
func compareSettings(unchanged, ordinary *reports.Witness) (rows [][]string) {
	if !hasSettings(unchanged) || !hasSettings(ordinary) {
		return nil
	}
	a, b := unchanged.SeenSettings, ordinary.SeenSettings
	if a.Admission() != b.Admission() {
		rows = append(rows, []string{"admission plugins that are off", a.Admission(), b.Admission()})
	}
	if a.MetricsOff != b.MetricsOff {
		rows = append(rows, []string{"metric families that are off", fmt.Sprint(a.MetricsOff), fmt.Sprint(b.MetricsOff)})
	}
	for _, arg := range leaveOut(unchanged.Arguments, ordinary.Arguments) {
		rows = append(rows, []string{"argument", arg, ""})
	}
	for _, arg := range leaveOut(ordinary.Arguments, unchanged.Arguments) {
		rows = append(rows, []string{"argument", "", arg})
	}
	return rows
}

func hasSettings(w *reports.Witness) bool { return w != nil && w.SeenSettings != nil }

// leaveOut returns the arguments that are not among others, but for the port, which is another one in every cell.
func leaveOut(args, others []string) []string {
	return seq.Filter(args, func(arg string) bool {
		return !slices.Contains(others, arg) && !strings.HasPrefix(arg, "--secure-port=")
	})
}

// findVerdict returns the verdict on a scenario in a group, as a text.
func findVerdict(g *reports.Group, scenario string) string {
	for _, c := range g.Cases {
		if c.Case == scenario {
			return string(c.Verdict)
		}
	}
	return ""
}

// compareBehaviours returns how many scenarios ran on both cells, and what changed from the first to the second in those
// that behaved otherwise. A scenario that leaves something to chance is not compared, nor is the order within a step: that
// of requests which are sent side by side is another one in every run, and each scenario judges it where it counts.
func compareBehaviours(set *scenarios.Set, from, to string, view record.View) (comparisons int, changed map[string][]string) {
	changed = map[string][]string{}
	for _, s := range set.All() {
		before, after := findEvidence(view, from, s.ID), findEvidence(view, to, s.ID)
		if before == nil || after == nil || leavesToChance(s) {
			continue
		}
		comparisons++
		was, is := behaviourOf(before), behaviourOf(after)
		slices.Sort(was.lines)
		slices.Sort(is.lines)
		if !was.equal(is) {
			changed[s.ID] = changedLines(was, is)
		}
	}
	return comparisons, changed
}
