package reports

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// oneCell is a report with one cell and the given results, all of it accounted
// for.
func oneCell(results ...verdicts.Result) *ConformanceReport {
	r := &ConformanceReport{Cells: []Cell{{Cell: verdicts.Cell{Name: "c"}, Results: results}}}
	for _, res := range results {
		r.Scenarios = append(r.Scenarios, ScenarioRef{ID: res.Scenario, Level: res.Level})
	}
	return r
}

func result(id string, level scenarios.Level, v verdicts.Verdict) verdicts.Result {
	r := verdicts.Result{Scenario: id, Level: level, Verdict: v, Reason: "reason of " + id}
	if v == verdicts.Failed {
		r.Differences = []verdicts.Difference{{Field: r.Reason, Want: "x", Got: "y"}}
	}
	return r
}

func TestConclude(t *testing.T) {
	const core, extended, divergence = scenarios.Core, scenarios.Extended, scenarios.Divergence
	ok := result("ok", core, verdicts.Passed)
	known := result("known", core, verdicts.Failed)
	known.KnownFailing = "stated"
	unshown := result("unshown", extended, verdicts.Passed)
	unshown.NotJudged = []string{"metrics"}
	with := func(r *ConformanceReport, change func(*ConformanceReport)) *ConformanceReport {
		change(r)
		return r
	}
	for _, c := range []struct {
		name   string
		report *ConformanceReport
		want   verdicts.Verdict
		exit   int
		reason string // of the first reason
		note   string
	}{
		{"all passed", oneCell(ok), verdicts.Passed, 0, "", ""},
		{"no cell", &ConformanceReport{}, verdicts.Invalid, 3, "nothing was executed", ""},
		{"a cell without results", oneCell(), verdicts.Invalid, 3, "c: nothing was executed", ""},
		{"only not supported, extended", oneCell(result("x", extended, verdicts.NotSupported)), verdicts.Invalid, 3, "c: nothing was executed", ""},
		{"only skipped", oneCell(result("x", core, verdicts.Skipped)), verdicts.Invalid, 3, "c: nothing was executed", ""},
		{"one of two cells empty", with(oneCell(ok), func(r *ConformanceReport) {
			r.Cells = append(r.Cells, Cell{Cell: verdicts.Cell{Name: "d"}, NotRun: []NotRun{{"ok", CauseTarget, "gate"}}})
		}), verdicts.Invalid, 3, "d: nothing was executed", ""},
		{"core failed", oneCell(ok, result("x", core, verdicts.Failed)), verdicts.Failed, 1, "c: 1 scenario failed: x: reason of x", ""},
		{"extended failed", oneCell(ok, result("x", extended, verdicts.Failed)), verdicts.Failed, 1, "c: 1 scenario failed", ""},
		{"divergence failed", oneCell(ok, result("x", divergence, verdicts.Failed)), verdicts.Failed, 1, "c: 1 scenario failed", ""},
		{"two failed", oneCell(result("x", core, verdicts.Failed), result("y", core, verdicts.Failed)), verdicts.Failed, 1, "c: 2 scenarios failed; the first: x", ""},
		{"core invalid wins over failed", oneCell(result("x", core, verdicts.Failed), result("y", core, verdicts.Invalid)), verdicts.Invalid, 3, "c: 1 scenario of level core invalid", ""},
		{"failed wins over extended invalid", oneCell(result("x", core, verdicts.Failed), result("y", extended, verdicts.Invalid)), verdicts.Failed, 1, "c: 1 scenario failed", ""},
		{"extended invalid alone", oneCell(ok, result("y", extended, verdicts.Invalid)), verdicts.Invalid, 3, "c: 1 scenario invalid", ""},
		{"core not supported", oneCell(ok, result("y", core, verdicts.NotSupported)), verdicts.Invalid, 3, "c: 1 scenario of level core not supported", ""},
		{"extended not supported", oneCell(ok, result("y", extended, verdicts.NotSupported)), verdicts.Passed, 0, "", "c: 1 scenario not supported"},
		{"skipped", oneCell(ok, result("y", core, verdicts.Skipped)), verdicts.Passed, 0, "", "c: 1 scenario skipped"},
		{"unknown verdict", oneCell(ok, result("y", core, "fine")), verdicts.Invalid, 3, "c: 1 scenario of an unknown verdict", ""},
		{"known failing", oneCell(ok, known), verdicts.Passed, 0, "", "c: 1 scenario failed as the known-failing list states"},
		{"not judged", oneCell(ok, unshown), verdicts.Passed, 0, "", "c: 1 scenario with expectations that the target cannot show"},
		{"left out by the user", with(oneCell(ok), func(r *ConformanceReport) {
			r.Scenarios = append(r.Scenarios, ScenarioRef{ID: "z"})
			r.Cells[0].NotRun = []NotRun{{"z", CauseUser, "--skip"}}
		}), verdicts.Passed, 0, "", "c: 1 scenario left out by the user"},
		{"unaccounted", with(oneCell(ok), func(r *ConformanceReport) {
			r.Scenarios = append(r.Scenarios, ScenarioRef{ID: "z"})
		}), verdicts.Invalid, 3, "c: z has neither a result nor a reason", ""},
		{"twice", with(oneCell(ok), func(r *ConformanceReport) {
			r.Cells[0].NotRun = []NotRun{{"ok", CauseUser, "--skip"}}
		}), verdicts.Invalid, 3, "c: ok is reported 2 times", ""},
		{"a stranger", with(oneCell(ok), func(r *ConformanceReport) { r.Scenarios = nil }), verdicts.Invalid, 3, "c: ok is reported but is not one", ""},
		{"two cells of one name", with(oneCell(ok), func(r *ConformanceReport) { r.Cells = append(r.Cells, r.Cells[0]) }), verdicts.Invalid, 3, "c: there are two cells", ""},
		{"witness mismatch", with(oneCell(ok), func(r *ConformanceReport) {
			r.Cells[0].Witness.Mismatches = []string{"gate"}
		}), verdicts.Invalid, 3, "c: the target is not what was asked for: gate", ""},
		{"a gate that does nothing", with(oneCell(ok), func(r *ConformanceReport) {
			r.Cells[0].Witness = Witness{ExpectedGate: "on", GateMetric: "on", GateProbe: &GateProbe{Message: "requested [{Group}] without impersonating a user"}}
		}), verdicts.Failed, 1, "c: the API server contradicts itself: its metric says that the gate ConstrainedImpersonation is on", ""},
		{"target problem", with(oneCell(ok), func(r *ConformanceReport) { r.Cells[0].Problem = "died\nlog" }), verdicts.Invalid, 3, "c: the target could not be used: died", ""},
		{"known-failing entry unmatched", with(oneCell(ok), func(r *ConformanceReport) {
			r.KnownFailing = []KnownFailingState{{KnownFailing: KnownFailing{Scenario: "q"}, State: KnownUnmatched, Detail: "nothing"}}
		}), verdicts.Failed, 1, "known-failing entry q: nothing", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.report.Conclude()
			if o.Result != c.want || o.ExitCode != c.exit {
				t.Errorf("got %s (%d), want %s (%d): %q", o.Result, o.ExitCode, c.want, c.exit, o.Reasons)
			}
			first := ""
			if len(o.Reasons) > 0 {
				first = o.Reasons[0]
			}
			if !strings.HasPrefix(first, c.reason) || c.reason == "" && first != "" {
				t.Errorf("first reason %q, want %q", first, c.reason)
			}
			if !strings.Contains(strings.Join(o.Notes, "\n"), c.note) {
				t.Errorf("notes %q, want %q", o.Notes, c.note)
			}
		})
	}
}
