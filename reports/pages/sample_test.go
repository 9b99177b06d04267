package pages

import (
	"fmt"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/reports/statistics"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// newReport returns a report of a product without groups.
func newReport(product string) *reports.Report {
	started := time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)
	return &reports.Report{
		APIVersion:   reports.ReportVersion,
		Kind:         reports.ReportKind,
		Product:      product,
		SuiteVersion: "v0.9.0",
		Command:      []string{"authzconf", product, "--seed", "42"},
		Seed:         42,
		Started:      started,
		Finished:     started.Add(47_300 * time.Millisecond),
		Subject:      reports.Subject{Name: "kube-apiserver", Provider: "local"},
		Record:       record.Head{Entries: 7, Digest: strings.Repeat("3f", 32)},
	}
}

// newCell returns a group with a witness that is as asked.
func newCell(name string, gate scenarios.Gate) reports.Group {
	digest := strings.Repeat("de9b", 16)
	return reports.Group{
		Name: name,
		Cell: &verdicts.Cell{Name: name, Provider: "local", Kubernetes: "1.37.1", Gate: gate},
		Target: &scenarios.Facts{
			Kubernetes:   "1.37",
			Binary:       "1.37",
			Gate:         gate,
			Capabilities: []scenarios.Capability{scenarios.Reviews, scenarios.Metrics},
		},
		Witness: &reports.Witness{
			GitVersion:       "v1.37.1",
			Platform:         "linux/amd64",
			EmulatedVersion:  "1.37",
			ExpectedGate:     gate,
			GateMetric:       gate,
			GateProbe:        &reports.GateProbe{Code: 400, Message: probeAnswer(gate), Gate: gate},
			AskedAuthorizers: []reports.Authorizer{{Type: "Webhook", Name: "recorder-front"}, {Type: "RBAC", Name: "rbac"}},
			SeenAuthorizers: []reports.AuthorizerEvidence{
				{Authorizer: reports.Authorizer{Type: "Webhook", Name: "recorder-front"}, Evidence: "review 1 of the probe arrived"},
				{Authorizer: reports.Authorizer{Type: "RBAC", Name: "rbac"}, Evidence: "apiserver_authorization_decisions_total"},
			},
			Programs: []reports.Program{
				{Name: "kube-apiserver", Version: "1.37.1", Origin: "official release, digest pinned", SHA256: digest},
			},
		},
		ReadySeconds: 4.5,
		WallSeconds:  40.2,
		Cases:        []reports.Result{},
	}
}

// probeAnswer returns what an API server answers to the probe of the gate.
func probeAnswer(gate scenarios.Gate) string {
	if gate == scenarios.GateOn {
		return `requested &user.DefaultInfo{Name:""} without impersonating a user name`
	}
	return "requested without impersonating a user"
}

// pass returns a result that passed.
func pass(name string, level scenarios.Level) reports.Result {
	return reports.Result{Case: name, Level: level, Verdict: verdicts.Passed, Judged: 5, Seconds: 0.035}
}

// fail returns a result that failed, with a table of access reviews.
func fail(group, name string, level scenarios.Level) reports.Result {
	return reports.Result{
		Case: name, Level: level, Verdict: verdicts.Failed, Blame: verdicts.BlameAPIServer, Judged: 5, Seconds: 0.041,
		Reason: `step 0: reviews[0].verb: want "impersonate:user-info", got "impersonate-on:user-info:list"; the control run saw the same`,
		Differences: []verdicts.Difference{
			{Step: 0, Field: "reviews[0].verb", Want: `"impersonate:user-info"`, Got: `"impersonate-on:user-info:list"`},
			{Step: 1, Field: "reviews[0].group", Want: `"authentication.k8s.io"`, Got: "absent"},
		},
		Evidence: []string{"evidence/" + group + "/" + name + ".json"},
		Tables: []reports.Table{{
			Title: "Access reviews of step 0", Columns: []string{"", "Expected", "Observed"}, Numeric: []int{0},
			Rows: []reports.Row{
				{Cells: []string{"1", "impersonate:user-info users.authentication.k8s.io \"bob\": Allow", "impersonate-on:user-info:list users.authentication.k8s.io \"bob\": Allow"}, Verdict: verdicts.Failed},
				{Cells: []string{"2", "list pods in default: Allow", "list pods in default: Allow"}},
			},
		}},
	}
}

// mixedReport returns a report with every kind of verdict, and with failures that are the same in two groups.
func mixedReport() *reports.Report {
	r := newReport("conformance")
	r.Require = []scenarios.Level{scenarios.Core}
	on, off := newCell("1.37-gate-on", scenarios.GateOn), newCell("1.37-gate-off", scenarios.GateOff)
	for _, g := range []*reports.Group{&on, &off} {
		known := fail(g.Name, "kep-5284/user-info/list-pods-without-action-grant", scenarios.Core)
		known.Differences = []verdicts.Difference{{Field: "message", Want: `"a"`, Got: `"b"`}}
		passed := pass("kep-5284/user-info/list-pods-allowed", scenarios.Core)
		passed.NotJudged = []string{"metrics"}
		passed.Evidence = []string{"evidence/" + g.Name + "/kep-5284/user-info/list-pods-allowed.json"}
		g.Cases = append(g.Cases,
			passed,
			fail(g.Name, "kep-5284/review-details/identity-check-comes-first", scenarios.Core),
			known,
			reports.NotSupported("kep-5284/associated-node/own-node", scenarios.Extended, "the target lacks nodes"),
		)
	}
	on.Cases = append(on.Cases, reports.Result{
		Case:    "kep-5284/user-info/extras-in-any-order",
		Level:   scenarios.Extended,
		Verdict: verdicts.Invalid,
		Blame:   verdicts.BlameEnvironment,
		Reason:  "kube-apiserver died: signal: killed\nlast lines of its log",
		Details: []string{"it used 3 GiB"},
	})
	off.NotRun = []reports.Omission{{Case: "kep-5284/user-info/extras-in-any-order", Level: scenarios.Extended, Cause: reports.CauseTarget, Why: "needs the gate ConstrainedImpersonation on, the target has it off"}}
	on.NotRun = []reports.Omission{{Case: "kep-5284/groups/two-groups", Level: scenarios.Core, Cause: reports.CauseUser, Why: "matches --skip"}}
	off.Witness.Mismatches = []string{"version: asked for v1.37.1, the server says v1.36.0"}
	r.Groups = []reports.Group{on, off}
	r.ApplyKnownFailing([]reports.KnownFailing{
		{Scenario: "kep-5284/*/*-without-action-grant", Cell: "1.37-*", Reason: "message: want", Issue: "https://example.com/issues/7",
			Since: "2026-01-02", Until: "2036-01-02"},
		{Scenario: "kep-5284/no/such", Reason: "anything"},
	})
	r.Conclude()
	return r
}

// diceReport returns a report of a product with figures, with a section that has a table and a plot, and with groups
// that have no case in common.
func diceReport() *reports.Report {
	r := newReport("dice")
	r.Subject = reports.Subject{Name: "a die", Vendor: "Example Inc.", Version: "2", Contact: "dice@example.com"}
	r.Groups = []reports.Group{
		{Name: "fair", Facts: []reports.Fact{{Name: "sides", Value: "6"}}, Cases: []reports.Result{
			{Case: "mean", Verdict: verdicts.Passed, Judged: 1, Details: []string{"3.48 of 3.5"}},
			{Case: "runs", Verdict: verdicts.Passed, Judged: 1},
		}},
		{Name: "quick", Cases: []reports.Result{{Case: "p99", Verdict: verdicts.Passed, Judged: 1}}},
	}
	r.Answers = &reports.Table{
		Columns: []string{"question", "answer", "how many", "interval", "where it holds"},
		Rows:    []reports.Row{{Cells: []string{"is the die fair?", "yes", "120,000 throws", "[0.166, 0.168]", "on a table"}}},
	}
	r.Figures = []reports.Figure{
		{Name: "throws", Value: 120_000},
		{Name: "median time", Value: 0.01234, Unit: "ms"},
		{Name: "p99", Value: 12.345, Unit: "ms"},
	}
	r.Sections = []reports.Section{{
		ID: "latency", Title: "Latency by rate", Text: []string{"The time from `throw` to rest. It grows with the rate."},
		Tables: []reports.Table{{
			Title: "Quantiles", Columns: []string{"rate", "p50", "p99"}, Numeric: []int{0, 1, 2},
			Rows: []reports.Row{{Cells: []string{"100", "1.2", "3.4"}}, {Cells: []string{"200", "1.3", "9.8"}, Verdict: verdicts.Failed}},
		}},
		Plots: []statistics.Plot{{Title: "Time over rate", Chart: &statistics.Chart{
			Label:  "time over rate",
			Height: 240,
			X:      statistics.Axis{Label: "throws per second"},
			Y:      statistics.Axis{Label: "ms", Zero: true},
			Curves: []statistics.Curve{
				{Name: "p50", Points: []statistics.Point{{X: 100, Y: 1.2}, {X: 200, Y: 1.3}}},
				{Name: "p99", Points: []statistics.Point{{X: 100, Y: 3.4}, {X: 200, Y: 9.8}}},
			},
		}}},
	}}
	r.Conclude()
	return r
}

// largeReport returns a report whose cells have the same cases in folders of 20. failing decides which of them fail.
func largeReport(cells, cases int, failing func(cell, i int) bool) *reports.Report {
	r := newReport("conformance")
	levels := []scenarios.Level{scenarios.Core, scenarios.Extended, scenarios.Extended, scenarios.Divergence}
	for c := range cells {
		gate := []scenarios.Gate{scenarios.GateOn, scenarios.GateOff}[c%2]
		g := newCell(fmt.Sprintf("1.%d-gate-%s", 30+c/2, gate), gate)
		for i := range cases {
			name := fmt.Sprintf("kep-5284/behaviour-%02d/a-request-with-headers-%d", i/20, i)
			switch {
			case failing(c, i):
				g.Cases = append(g.Cases, fail(g.Name, name, levels[i%4]))
			case i%7 == c%2:
				g.NotRun = append(g.NotRun,
					reports.Omission{
						Case:  name,
						Level: levels[i%4],
						Cause: reports.CauseTarget,
						Why:   "needs the gate ConstrainedImpersonation, the target has it otherwise",
					},
				)
			default:
				passed := pass(name, levels[i%4])
				passed.Evidence = []string{"evidence/" + g.Name + "/" + name + ".json"}
				g.Cases = append(g.Cases, passed)
			}
		}
		r.Groups = append(r.Groups, g)
	}
	r.Conclude()
	return r
}
