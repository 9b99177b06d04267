package reports

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// versionCell is a cell of a version; before 1.36 there are no metrics.
func versionCell(minor int, gate scenarios.Gate) Cell {
	c := gateCell(gate)
	c.Kubernetes = fmt.Sprintf("1.%d.1", minor)
	c.Facts.Kubernetes, c.Facts.Binary = c.Kubernetes, c.Kubernetes
	c.Name = fmt.Sprintf("1.%d-gate-%s", minor, gate)
	if minor < 36 {
		c.Facts.Capabilities = slices.DeleteFunc(c.Facts.Capabilities, func(x scenarios.Capability) bool { return x == scenarios.Metrics })
	}
	return c
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

// changeTexts are scenarios named by what becomes of them.
func changeTexts(t *testing.T) Texts {
	t.Helper()
	on := `gate: on, kubernetes: ">=1.35"`
	files := fstest.MapFS{}
	for id, requires := range map[string]string{
		"a/broken": on, "a/changed": on, "a/counted": on, "a/same": on, "a/new": `gate: on, kubernetes: ">=1.36"`, "a/gated": "gate: any", "a/chance": on,
	} {
		chance := ""
		if id == "a/chance" {
			chance = "      oneOf: [{message: one}, {message: another}]\n"
		}
		files[id+".yaml"] = &fstest.MapFile{Data: fmt.Appendf(nil, changeText, requires, chance)}
	}
	texts := Texts{Scenarios: files, Fixtures: fstest.MapFS{"none.yaml": {}}}
	var err error
	if texts.Set, err = scenarios.Load(texts.Scenarios, texts.Fixtures); err != nil {
		t.Fatal(err)
	}
	return texts
}

// changeRun has cells in no order, and servers that do what the scenarios' names
// say.
func changeRun(t *testing.T, texts Texts) (*ConformanceReport, []*verdicts.Evidence) {
	t.Helper()
	cells := []Cell{versionCell(37, scenarios.GateOn), versionCell(35, scenarios.GateOn), versionCell(36, scenarios.GateOn), versionCell(37, scenarios.GateOff), versionCell(34, scenarios.GateOff)}
	r, evidence := testRun(t, texts, cells, func(e *verdicts.Evidence) {
		o := &e.Steps[0]
		is := func(minor string) bool { return strings.HasPrefix(e.Cell.Kubernetes, minor) }
		o.Metrics = nil
		if slices.Contains(e.Capabilities, scenarios.Metrics) {
			o.Metrics = []verdicts.MetricSample{{Name: "apiserver_impersonation_attempts_total", Mode: "user-info", Decision: "allowed", Delta: 1}}
		}
		switch {
		case e.Scenario == "a/changed" && is("1.37"), e.Scenario == "a/gated" && e.Cell.Gate == "off", e.Scenario == "a/chance" && is("1.36"):
			o.Response.Code = 403
			o.Audit = bytes.ReplaceAll(o.Audit, []byte(`"code":200`), []byte(`"code":403`))
		case e.Scenario == "a/counted" && is("1.37"):
			o.Metrics[0].Delta = 2
		case e.Scenario == "a/broken" && is("1.36"):
			e.Steps, e.Problems = nil, []verdicts.Problem{{Blame: verdicts.BlameEnvironment, Text: "it died"}}
		}
	})
	r.Complete(texts.Set, evidence, nil)
	return r, evidence
}

// The table is read by people, so all of it is compared.
func TestChangesGolden(t *testing.T) {
	texts := changeTexts(t)
	r, evidence := changeRun(t, texts)
	tables := behaviourTables(r, evidence, texts.Set)
	b, err := renderText("changes", tables)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "golden", "changes.md")
	if *update {
		if err := os.WriteFile(golden, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(b)); d != "" {
		t.Errorf("(-want +got; go test -update writes it again):\n%s", d)
	}
	if len(tables) != 1 || len(tables[0].Limited) != 1 || tables[0].Limited[0].ID != "a/new" {
		t.Errorf("%+v", tables)
	}
}

// Without two cells of one chain there is nothing to compare.
func TestNoChanges(t *testing.T) {
	texts := changeTexts(t)
	chain := versionCell(37, scenarios.GateOn)
	chain.Name, chain.Facts.Chain = "1.37-gate-on-abac", "abac"
	r, evidence := testRun(t, texts, []Cell{versionCell(37, scenarios.GateOn), chain}, nil)
	r.Complete(texts.Set, evidence, nil)
	if tables := behaviourTables(r, evidence, texts.Set); len(tables) != 0 {
		t.Errorf("%+v", tables)
	}
}

// Cells that did the same share a panel, which says what could not be seen on
// some; one that did not has its own.
func TestAlikeCellsShareAPanel(t *testing.T) {
	texts := changeTexts(t)
	r, evidence := changeRun(t, texts)
	p := newPage(r, evidence, texts.Set)
	got := map[string]string{}
	for _, f := range p.Folders {
		for _, row := range f.Rows {
			var panels []string
			for _, pn := range row.Panels {
				var cells []string
				for _, c := range pn.Cells {
					cells = append(cells, c.Name)
					if c.Evidence != evidencePath(c.Name, row.ID) {
						t.Errorf("%s: evidence %s", row.ID, c.Evidence)
					}
				}
				panels = append(panels, string(pn.Result.Verdict)+" "+strings.Join(cells, " "))
			}
			got[row.ID] = strings.Join(panels, ", ")
		}
	}
	want := map[string]string{
		"a/same":    "passed 1.37-gate-on 1.35-gate-on 1.36-gate-on",
		"a/counted": "passed 1.37-gate-on 1.35-gate-on, passed 1.36-gate-on",
		"a/changed": "passed 1.37-gate-on, passed 1.36-gate-on 1.35-gate-on",
		"a/broken":  "passed 1.37-gate-on 1.35-gate-on, invalid 1.36-gate-on",
		"a/new":     "passed 1.37-gate-on 1.36-gate-on",
	}
	for id := range want {
		if got[id] != want[id] {
			t.Errorf("%s: %s, want %s", id, got[id], want[id])
		}
	}
}

// On many cells a row says how many did what, and the page stays small.
func TestManyCells(t *testing.T) {
	texts := changeTexts(t)
	var cells []Cell
	for i := range 20 {
		c := versionCell(37, scenarios.GateOn)
		c.Name += fmt.Sprintf("-%02d", i)
		cells = append(cells, c)
	}
	r, evidence := testRun(t, texts, cells, nil)
	r.Complete(texts.Set, evidence, nil)
	page, root := pageOf(t, r, evidence, texts)
	if n := strings.Count(page, `class="panel"`); n != 7 {
		t.Errorf("%d panels of 7 scenarios", n)
	}
	if want := `title="passed">✓ 20</span>`; strings.Count(page, want) != 6 { // but for a/chance
		t.Errorf("%d rows have %s", strings.Count(page, want), want)
	}
	checkLinks(t, root)
}
