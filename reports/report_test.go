package reports

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

var update = flag.Bool("update", false, "write the golden files again")

func bothGates() []Cell {
	return []Cell{gateCell(scenarios.GateOn), gateCell(scenarios.GateOff)}
}

// mixedRun is a run with one of everything: passed, failed (core), known
// failing, invalid, not supported, not for this cell, left out, a divergence.
func mixedRun(t testing.TB, texts Texts) (*ConformanceReport, []*verdicts.Evidence) {
	t.Helper()
	const (
		failing = "kep-5284/user-info/list-pods-allowed"
		known   = "kep-5284/user-info/list-pods-without-action-grant"
		broken  = "kep-5284/user-info/extras-in-any-order"
		left    = "kep-5284/associated-node/agent-lists-pods"
	)
	r, evidence := testRun(t, texts, bothGates(), func(e *verdicts.Evidence) {
		o := &e.Steps[0]
		switch e.Scenario {
		case failing:
			o.Reviews[1].Spec.ResourceAttributes.Name = "*"
			o.Audit = json.RawMessage(strings.Replace(string(o.Audit), `"impersonationConstraint":"impersonate:user-info"`, `"impersonationConstraint":""`, 1))
			e.Control = e // testRun makes it, under other names
		case known:
			o.Response.Body = strings.Replace(o.Response.Body, "is forbidden", "is not allowed", 1)
		case broken:
			e.Problems = []verdicts.Problem{{Blame: verdicts.BlameEnvironment, Text: "kube-apiserver died: signal: killed\nlast line of its log"}}
			e.Steps = nil
		}
	})
	r.Cells[0].leaveOut(left)
	kept := evidence[:0]
	for _, e := range evidence {
		if e.Scenario != left {
			kept = append(kept, e)
		}
	}
	r.Complete(texts.Set, kept, []KnownFailing{
		{Scenario: "kep-5284/*/*-without-action-grant", Cell: "1.37-*", Reason: "message: want", Issue: "https://example.com/issues/7"},
		{Scenario: "kep-5284/no/such", Reason: "anything"},
	})
	return r, kept
}

// leaveOut turns a result into one that the user did not want.
func (c *Cell) leaveOut(id string) {
	for i, r := range c.Results {
		if r.Scenario == id {
			c.Results = append(c.Results[:i], c.Results[i+1:]...)
			c.NotRun = append(c.NotRun, NotRun{Scenario: id, Cause: CauseUser, Why: "matches --skip"})
			return
		}
	}
}

func TestPerfectServerPasses(t *testing.T) {
	texts := testTexts(t)
	r, evidence := testRun(t, texts, bothGates(), nil)
	o := r.Complete(texts.Set, evidence, nil)
	if o.Result != verdicts.Passed || o.ExitCode != ExitPassed {
		t.Errorf("outcome %+v", o)
	}
}

// The files that machines and people read are part of the interface.
func TestGolden(t *testing.T) {
	texts := testTexts(t)
	r, evidence := mixedRun(t, texts)
	dir := t.TempDir()
	if err := Write(dir, r, evidence, texts); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{reportFile, junitFile, summaryFile} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		// The page changes with its style; that is no change of the interface.
		got := strings.ReplaceAll(string(data), r.Files[htmlFile], "digest-of-the-page")
		golden := filepath.Join("testdata", "golden", name)
		if *update {
			if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s (-want +got; go test -update writes it again):\n%s", name, d)
		}
	}
}

// What was written is read as it was.
func TestReportRoundTrip(t *testing.T) {
	texts := testTexts(t)
	r, _ := mixedRun(t, texts)
	data, err := encodeReport(r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeReport("report.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r, again); d != "" {
		t.Error(d)
	}
	for _, c := range []struct{ name, text, want string }{
		{"unknown field", string(data) + "verdict: passed\n", `unknown field "verdict"`},
		{"another kind", strings.Replace(string(data), "kind: ConformanceReport", "kind: Report", 1), `is "Report"`},
		{"another version", strings.Replace(string(data), "v1alpha2", "v2", 1), "authzconf.dev/v2"},
		{"no YAML", "a: [", "r.yaml: "},
		{"empty", "", "r.yaml: is"},
	} {
		if _, err := DecodeReport("r.yaml", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}
