package reports

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// oneGroup is a report with one group that has the given results.
func oneGroup(results ...Result) *Report {
	can := scenarios.Facts{Capabilities: []scenarios.Capability{scenarios.RequestHeader}}
	return &Report{Groups: []Group{{Name: "c", Cell: &verdicts.Cell{Name: "c"}, Target: &can, Cases: results}}}
}

func result(id string, level scenarios.Level, v verdicts.Verdict) Result {
	r := Result{Case: id, Level: level, Verdict: v, Reason: "reason of " + id}
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
	with := func(r *Report, change func(*Report)) *Report {
		change(r)
		return r
	}
	for _, c := range []struct {
		name   string
		report *Report
		want   verdicts.Verdict
		exit   int
		reason string // of the first reason
		note   string
	}{
		{"all passed", oneGroup(ok), verdicts.Passed, 0, "", ""},
		{"no group", &Report{}, verdicts.Invalid, 3, "nothing was executed", ""},
		{"a group without results", oneGroup(), verdicts.Invalid, 3, "nothing was executed", ""},
		{"only not supported, extended", oneGroup(result("x", extended, verdicts.NotSupported)), verdicts.Invalid, 3, "nothing was executed", ""},
		{"only skipped", oneGroup(result("x", core, verdicts.Skipped)), verdicts.Invalid, 3, "nothing was executed", ""},
		{"one of two groups empty", with(oneGroup(ok), func(r *Report) {
			r.Groups = append(r.Groups, Group{Name: "d", NotRun: []Omission{{Case: "ok", Cause: CauseTarget, Why: "gate"}}})
		}), verdicts.Invalid, 3, "d: nothing was executed", ""},
		{"core failed", oneGroup(ok, result("x", core, verdicts.Failed)), verdicts.Failed, 1, "c: 1 case failed: x: reason of x", ""},
		{"extended failed", oneGroup(ok, result("x", extended, verdicts.Failed)), verdicts.Failed, 1, "c: 1 case failed", ""},
		{"divergence failed", oneGroup(ok, result("x", divergence, verdicts.Failed)), verdicts.Failed, 1, "c: 1 case failed", ""},
		{"two failed", oneGroup(result("x", core, verdicts.Failed), result("y", core, verdicts.Failed)), verdicts.Failed, 1, "c: 2 cases failed; the first: x", ""},
		{"core invalid wins over failed", oneGroup(result("x", core, verdicts.Failed), result("y", core, verdicts.Invalid)), verdicts.Invalid, 3, "c: 1 case of level core invalid", ""},
		{"what nothing explains wins over core invalid", with(oneGroup(result("x", core, verdicts.Failed), result("y", core, verdicts.Invalid)), func(r *Report) {
			r.Groups[0].Cases[0].Certain = true
		}), verdicts.Failed, 1, "c: 1 case failed", ""},
		{"a cell that failed wins over another that is invalid", with(oneGroup(result("x", core, verdicts.Failed)), func(r *Report) {
			r.Groups[0].Cell = &verdicts.Cell{Name: "c"}
			r.Groups = append(r.Groups, Group{Name: "d", Cell: &verdicts.Cell{Name: "d"}, Problem: "died"})
		}), verdicts.Failed, 1, "c: 1 case failed", ""},
		{"a cell that failed and is in doubt itself", with(oneGroup(result("x", core, verdicts.Failed)), func(r *Report) {
			r.Groups[0].Cell, r.Groups[0].Problem = &verdicts.Cell{Name: "c"}, "died"
		}), verdicts.Invalid, 3, "c: the target could not be used", ""},
		{"failed wins over extended invalid", oneGroup(result("x", core, verdicts.Failed), result("y", extended, verdicts.Invalid)), verdicts.Failed, 1, "c: 1 case failed", ""},
		{"extended invalid alone", oneGroup(ok, result("y", extended, verdicts.Invalid)), verdicts.Invalid, 3, "c: 1 case invalid", ""},
		{"core not supported", oneGroup(ok, result("y", core, verdicts.NotSupported)), verdicts.Invalid, 3, "c: 1 case of level core not supported", ""},
		{"extended not supported", oneGroup(ok, result("y", extended, verdicts.NotSupported)), verdicts.Passed, 0, "", "c: 1 case not supported"},
		{"skipped", oneGroup(ok, result("y", core, verdicts.Skipped)), verdicts.Passed, 0, "", "c: 1 case skipped"},
		{"unknown verdict", oneGroup(ok, result("y", core, "fine")), verdicts.Invalid, 3, "c: 1 case of an unknown verdict", ""},
		{"known failing", oneGroup(ok, known), verdicts.Passed, 0, "", "c: 1 case failed as the known-failing list states"},
		{"not judged", oneGroup(ok, unshown), verdicts.Passed, 0, "", "c: 1 case with expectations that the target cannot show"},
		{"left out by the user", with(oneGroup(ok), func(r *Report) {
			r.Groups[0].NotRun = []Omission{{Case: "z", Cause: CauseUser, Why: "matches --skip"}}
		}), verdicts.Passed, 0, "", "c: 1 case left out by the user"},
		{"a whole group left out by the user", with(oneGroup(ok), func(r *Report) {
			r.Groups = append(r.Groups, Group{Name: "d", NotRun: []Omission{{Case: "ok", Cause: CauseUser, Why: "not in --cases"}}})
		}), verdicts.Passed, 0, "", "d: 1 case left out by the user"},
		{"a group for which nothing that is selected is", with(oneGroup(ok), func(r *Report) {
			r.Groups = append(r.Groups, Group{Name: "d", NotRun: []Omission{{Case: "ok", Cause: CauseTarget, Why: "gate"}, {Case: "z", Cause: CauseUser, Why: "does not match --focus"}}})
		}), verdicts.Invalid, 3, "d: nothing was executed", ""},
		{"core not supported by a cluster of somebody else's", with(oneGroup(ok, result("y", core, verdicts.NotSupported)), func(r *Report) {
			r.Groups[0].Target = &scenarios.Facts{Capabilities: scenarios.Capabilities{scenarios.Tokens}}
		}), verdicts.Passed, 0, "", "c: 1 case of level core not supported"},
		{"required and invalid", with(oneGroup(ok, result("y", extended, verdicts.Invalid)), func(r *Report) {
			r.Require = []scenarios.Level{extended}
		}), verdicts.Invalid, 3, "c: 1 case required and not judged: y (reason of y)", ""},
		{"required and left out", with(oneGroup(ok), func(r *Report) {
			r.Require = []scenarios.Level{core}
			r.Groups[0].NotRun = []Omission{{Case: "z", Level: core, Cause: CauseUser, Why: "matches --skip"}}
		}), verdicts.Invalid, 3, "c: 1 case required and not judged: z (matches --skip)", ""},
		{"witness mismatch", with(oneGroup(ok), func(r *Report) {
			r.Groups[0].Witness = &Witness{Mismatches: []string{"gate"}}
		}), verdicts.Invalid, 3, "c: the target is not what was asked for: gate", ""},
		{"a gate that does nothing", with(oneGroup(ok), func(r *Report) {
			r.Groups[0].Witness = &Witness{ExpectedGate: scenarios.GateOn, GateMetric: scenarios.GateOn, GateProbe: &GateProbe{Message: "requested [{Group}] without impersonating a user"}}
		}), verdicts.Failed, 1, "c: the API server contradicts itself: its metric says that the gate ConstrainedImpersonation is on", ""},
		{"target problem", with(oneGroup(ok), func(r *Report) { r.Groups[0].Problem = "died\nlog" }), verdicts.Invalid, 3, "c: the target could not be used: died", ""},
		{"known-failing entry unmatched", with(oneGroup(ok), func(r *Report) {
			r.KnownFailing = []KnownFailingState{{KnownFailing: KnownFailing{Scenario: "q"}, State: KnownUnmatched, Detail: "nothing"}}
		}), verdicts.Failed, 1, "known-failing entry q: nothing", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.report.Conclude()
			o := c.report.Outcome
			if o.Result != c.want || o.ExitCode != c.exit {
				t.Errorf("got %s (%d), want %s (%d): %q", o.Result, o.ExitCode, c.want, c.exit, o.Reasons)
			}
			first := ""
			if len(o.Reasons) > 0 {
				first = o.Reasons[0]
			}
			if !strings.HasPrefix(first, c.reason) ||
				c.reason == "" && first != "" {
				t.Errorf("first reason %q, want %q", first, c.reason)
			}
			if !strings.Contains(strings.Join(o.Notes, "\n"), c.note) {
				t.Errorf("notes %q, want %q", o.Notes, c.note)
			}
		})
	}
}
