package reports

import (
	"os"
	"strings"
	"testing"
	"io/fs"
	"testing/fstest"
	"encoding/json"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

func TestDemo(t *testing.T) {
	texts := testTexts(t)
	big := manyTexts(t, 40)
	m := fstest.MapFS{}
	for _, f := range []fs.FS{texts.Scenarios, big.Scenarios} {
		fs.WalkDir(f, ".", func(p string, d fs.DirEntry, err error) error { if err == nil && !d.IsDir() { b, _ := fs.ReadFile(f, p); m[p] = &fstest.MapFile{Data: b} }; return nil })
	}
	texts.Scenarios = m
	var err error
	texts.Set, err = scenarios.Load(m, texts.Fixtures)
	if err != nil { t.Fatal(err) }
	mk := func(cells []Cell, out string, known []KnownFailing) {
		r, ev := testRun(t, texts, cells, func(e *verdicts.Evidence) {
			on := strings.HasSuffix(e.Cell.Name, "on")
			switch {
			case strings.Contains(e.Scenario, "list-pods-allowed") && on:
				e.Steps[0].Reviews[1].Spec.ResourceAttributes.Name = "*"
				e.Steps[0].Reviews[1].Spec.ResourceAttributes.Namespace = "default"
				e.Steps[0].Audit = json.RawMessage(strings.Replace(string(e.Steps[0].Audit), `"impersonationConstraint":"impersonate:user-info"`, `"impersonationConstraint":"impersonate:serviceaccount"`, 1))
			case strings.Contains(e.Scenario, "groups-03") && on && !strings.Contains(e.Scenario, "denied"):
				e.Steps[0].Reviews = append(e.Steps[0].Reviews[:2:2], e.Steps[0].Reviews[3:]...)
				e.Steps[0].Metrics = nil
				e.Capabilities = e.Capabilities[:2]
			case strings.Contains(e.Scenario, "groups-05") && on && !strings.Contains(e.Scenario, "denied"):
				e.Problems = []verdicts.Problem{{Blame: verdicts.BlameEnvironment, Text: "kube-apiserver died: signal: killed"}}
			case strings.Contains(e.Scenario, "groups-07-denied"):
				e.Steps[0].Response.Body = strings.Replace(e.Steps[0].Response.Body, "in the namespace", "within the namespace", 1)
			}
		})
		r.Complete(texts.Set, ev, known)
		os.RemoveAll(out)
		if err := Write(out, r, ev, texts); err != nil { t.Fatal(err) }
		v, err := Verify(out, VerifyOptions{Builtin: texts.Set, SuiteVersion: r.SuiteVersion})
		if err != nil { t.Fatal(err) }
		t.Log(v.OK(), v.Verdicts, v.Differences, v.Notes)
	}
	known := []KnownFailing{{Scenario: "*/*/*-07-denied", Reason: "within the namespace", Issue: "https://example.com/issues/7"}}
	on, off := gateCell("on"), gateCell("off")
	mk([]Cell{on, off}, "/tmp/demo", known)
	bad := off
	bad.Witness.Mismatches = []string{"the gate was to be off, kubernetes_feature_enabled says on"}
	bad.Witness.GateMetric = "on"
	mk([]Cell{on, bad}, "/tmp/demo-bad", known)
	mk(manyCells(12), "/tmp/demo12", known)
}
