package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
	"github.com/authzconf/authzconf/verdicts/evidencetest"
)

// makeCell is a cell of a version.
func makeCell(t *testing.T, minor int, gate scenarios.Gate) server.Options {
	t.Helper()
	release, err := local.ParseRelease(fmt.Sprintf("1.%d", minor))
	if err != nil {
		t.Fatal(err)
	}
	return server.Options{Release: release, Cell: verdicts.Cell{
		Name: fmt.Sprintf("1.%d-gate-%s", minor, gate), Provider: server.Local, Kubernetes: release.Version, Gate: gate,
	}}
}

// record records what servers show that do what every scenario expects. change may spoil evidence, or drop it with false.
func recordPlan(t *testing.T, p *Plan, change func(*verdicts.Evidence) bool) record.View {
	t.Helper()
	log, begin := record.New(), evidencetest.Epoch
	for _, c := range p.cells {
		cell := c.Target.Cell
		for _, s := range c.Runs() {
			e := evidencetest.Perfect(
				s,
				cell,
				server.ExpectedFacts(c.Target).Capabilities,
				scenarios.Suffix(p.seed, cell.Name, s.ID),
				begin,
			)
			begin = begin.Add(time.Second)
			if change != nil && !change(e) {
				continue
			}
			if err := log.Append(evidenceKey(cell.Name, s.ID), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Append(cellKey(cell.Name), CellRecord{ReadySeconds: 3, WallSeconds: 14}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Append(machineKey, MachineRecord{Parallel: 2, PeakMemoryBytes: 900 << 20}); err != nil {
		t.Fatal(err)
	}
	return log.View()
}

// conclude judges and concludes a recorded plan.
func conclude(t *testing.T, p *Plan, view record.View) *reports.Report {
	t.Helper()
	var results []reports.Result
	for _, c := range p.Cases() {
		if c.NotRun == nil {
			results = append(results, p.Judge(c.ID, view))
		}
	}
	r, err := p.Conclude(results, view)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func findResult(t *testing.T, r *reports.Report, group, name string) reports.Result {
	t.Helper()
	for _, g := range r.Groups {
		for _, c := range g.Cases {
			if g.Name == group && c.Case == name {
				return c
			}
		}
	}
	t.Fatalf("there is no %s on %s", name, group)
	return reports.Result{}
}

// TestConclude judges a server that does one thing otherwise, and a case without evidence.
func TestConclude(t *testing.T) {
	texts := Texts{Set: evidencetest.Load(t), Scenarios: evidencetest.Scenarios, Fixtures: evidencetest.Fixtures}
	on := makeCell(t, 37, scenarios.GateOn)
	p := NewPlan(PlanOptions{Texts: texts, Cells: []server.Options{on, makeCell(t, 37, scenarios.GateOff)}, Seed: 42})
	const broken, lost = "kep-5284/user-info/list-pods-allowed", "kep-5284/user-info/list-pods-without-action-grant"
	view := recordPlan(t, p, func(e *verdicts.Evidence) bool {
		if e.Scenario == broken {
			e.Steps[0].Reviews[0].Spec.ResourceAttributes.Name = "web"
		}
		return e.Scenario != lost
	})
	r := conclude(t, p, view)
	failed := findResult(t, r, on.Cell.Name, broken)
	if failed.Verdict != verdicts.Failed || len(failed.Tables) != 1 || len(failed.Evidence) != 1 {
		t.Errorf("%+v", failed)
	}
	first := failed.Tables[0].Rows[0]
	if first.Verdict != verdicts.Failed || !strings.Contains(first.Cells[2], "name web") ||
		strings.Contains(fmt.Sprint(failed.Tables), "-"+scenarios.Suffix(42, on.Cell.Name, broken)) {
		t.Errorf("%+v", failed.Tables)
	}
	if invalid := findResult(t, r, on.Cell.Name, lost); invalid.Verdict != verdicts.Invalid || invalid.Blame != verdicts.BlameHarness {
		t.Errorf("%+v", invalid)
	}
	g := r.Groups[0]
	if g.Cell == nil || g.Target == nil || g.Witness == nil || g.WallSeconds != 14 || r.Subject.Provider != server.Local {
		t.Errorf("%+v", g)
	}
	if len(r.Figures) != 3 || r.Figures[2].Value != 900 {
		t.Errorf("%+v", r.Figures)
	}
	if len(r.Sections) == 0 || r.Sections[0].ID != "divergences" || len(r.Sections[0].Tables[0].Rows) == 0 {
		t.Errorf("%+v", r.Sections)
	}
}

const changeText = `description: What it is about.
source: {document: KEP-5284, section: Proposal}
level: core
requires: {%s}
requestors:
  impersonator: {user: impersonator}
steps:
  - request: {by: impersonator, impersonate: {user: bob}, verb: list, resource: pods, namespace: default}
    expect:
      outcome: allowed
%s`

// TestChanges compares cells, in no order, of servers that do what the names of the scenarios say.
func TestChanges(t *testing.T) {
	const on = `gate: on, kubernetes: ">=1.35"`
	files := fstest.MapFS{}
	for id, requires := range map[string]string{
		"a/broken": on, "a/changed": on, "a/same": on, "a/new": `gate: on, kubernetes: ">=1.36"`, "a/gated": "gate: any", "a/chance": on,
	} {
		chance := ""
		if id == "a/chance" {
			chance = "      oneOf: [{message: one}, {message: another}]\n"
		}
		files[id+".yaml"] = &fstest.MapFile{Data: fmt.Appendf(nil, changeText, requires, chance)}
	}
	texts := Texts{Scenarios: files, Fixtures: fstest.MapFS{}}
	var err error
	if texts.Set, err = scenarios.Load(texts.Scenarios, texts.Fixtures); err != nil {
		t.Fatal(err)
	}
	p := NewPlan(PlanOptions{Texts: texts, Seed: 1, Cells: []server.Options{
		makeCell(t, 37, scenarios.GateOn),
		makeCell(t, 35, scenarios.GateOn),
		makeCell(t, 36, scenarios.GateOn),
		makeCell(t, 37, scenarios.GateOff),
	}})
	view := recordPlan(t, p, func(e *verdicts.Evidence) bool {
		is := func(minor string) bool { return strings.HasPrefix(e.Cell.Kubernetes, minor) }
		e.Steps[0].Metrics = nil
		changed := e.Scenario == "a/changed" && is("1.37")
		gated := e.Scenario == "a/gated" && e.Cell.Gate == scenarios.GateOff
		chance := e.Scenario == "a/chance" && is("1.36")
		switch {
		case changed, gated, chance:
			e.Steps[0].Response.Code = 403
		case e.Scenario == "a/broken" && is("1.36"):
			e.Steps, e.Problems = nil, []verdicts.Problem{{Blame: verdicts.BlameEnvironment, Text: "it died"}}
		}
		return true
	})
	sections := describeChanges(texts.Set, p.cells, view)
	if len(sections) != 1 || len(sections[0].Tables) != 3 {
		t.Fatalf("%+v", sections)
	}
	if want := "Node and RBAC: 3 scenarios with more than one behaviour, 3 with one, 1 written for some of the versions only."; sections[0].Text[1] != want {
		t.Errorf("got  %s\nwant %s", sections[0].Text[1], want)
	}
	var got []string
	for _, table := range sections[0].Tables {
		for _, row := range table.Rows {
			got = append(got, strings.Join(row.Cells, " "))
		}
	}
	for _, want := range []string{
		"a/changed · A A B",
		"a/gated A B B B",
		"a/chance · A B A",
		"a/changed 1.36-gate-on 1.37-gate-on + step 0: answer 403",
		"a/gated   depends on the gate, not on the version",
		"a/chance   left to chance by the server",
		`a/new Kubernetes >=1.36, gate on What it is about.`,
	} {
		if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("there is no %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// TestSelectTakesUpTheCells shows what becomes of the cells of other authorizer chains when cases are left out.
func TestSelectTakesUpTheCells(t *testing.T) {
	texts, err := LoadTexts("")
	if err != nil {
		t.Fatal(err)
	}
	plan := func(leave func(product.Case) bool) (names []string) {
		p := NewPlan(PlanOptions{Texts: texts, Cells: []server.Options{makeCell(t, 37, scenarios.GateOn)}})
		p.Select(func(c product.Case) string {
			if leave(c) {
				return "does not match --focus"
			}
			return ""
		})
		for _, c := range p.CellPlans() {
			names = append(names, c.Target.Cell.Name)
		}
		return names
	}
	for name, test := range map[string]struct {
		leave func(product.Case) bool
		want  []string
	}{
		"one scenario of the ordinary chain": {func(c product.Case) bool { return c.Name != "kep-5284/requests/get-by-name" }, []string{"1.37-gate-on"}},
		"one scenario of another chain": {func(c product.Case) bool {
			return !strings.HasPrefix(c.Name, "kubernetes/chains/abac-readonly")
		}, []string{"1.37-gate-on-abac"}},
		"nothing": {func(product.Case) bool { return true }, []string{"1.37-gate-on"}},
	} {
		if got := plan(test.leave); !slices.Equal(got, test.want) {
			t.Errorf("%s: cells %q, want %q", name, got, test.want)
		}
	}
}
