package conformance_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix/matrixtest"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// short is a scenario with one request.
const short = `
description: One request.
source: {document: test, section: panics}
level: core
requires: {gate: any}
requestors:
  alice: {user: alice}
steps:
  - request: {by: alice, verb: get, path: /version}
    expect: {outcome: allowed, code: 200}
`

// TestPanic has a bug of the harness in one scenario of two. That one has to be
// invalid, and say where the bug is; the other one is judged as ever.
func TestPanic(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	set, err := scenarios.Load(fstest.MapFS{"broken.yaml": {Data: []byte(short)}, "good.yaml": {Data: []byte(short)}}, fstest.MapFS{})
	if err != nil {
		t.Fatal(err)
	}
	broken, _ := set.Get("broken")
	broken.Steps[0].Expect = nil // which the loader would have refused
	cells := matrixtest.NewestCells(t, scenarios.GateDefault)
	plan, err := conformance.PlanCells(set, cells, conformance.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	s := conformance.New(plan, conformance.Output{Seed: 1, Log: record.New()})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	results := s.Cells[0].Results()
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if len(results) != 2 {
		t.Fatalf("%d results", len(results))
	}
	if r := results[0]; r.Verdict != verdicts.Invalid || r.Blame != verdicts.BlameHarness ||
		!strings.HasPrefix(r.Reason, "panic: ") || !strings.Contains(r.Reason, "verdicts.") {
		t.Errorf("broken: %s, blame %s: %s", r.Verdict, r.Blame, r.Reason)
	}
	if r := results[1]; r.Verdict != verdicts.Passed {
		t.Errorf("good: %s: %s", r.Verdict, r.Reason)
	}
}
