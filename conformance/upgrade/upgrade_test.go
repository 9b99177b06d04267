package upgrade

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// plan plans a path with two setups, which is enough to see that a stage works.
func plan(t *testing.T, text string, highAvailability bool, change ...func(*upgradepath.Path)) *Upgrade {
	t.Helper()
	if testing.Short() {
		t.Skip("starts control planes")
	}
	p, err := upgradepath.Parse(text, upgradepath.Options{HighAvailability: highAvailability})
	if err != nil {
		t.Fatal(err)
	}
	p.Setups = []string{"alice", "associated-node-both", "bob"}
	for _, do := range change {
		do(p)
	}
	texts, err := conformance.LoadTexts("")
	if err != nil {
		t.Fatal(err)
	}
	planned, err := NewPlan(PlanOptions{Path: p, Texts: texts, Base: matrix.Matrix{Binaries: &local.Binaries{}}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return walk(t, planned)
}

// walk prepares to go along a planned path.
func walk(t *testing.T, p *Plan) *Upgrade {
	return newUpgrade(p, conformance.Output{Seed: 1, Log: record.New(), Observer: product.Observer{Say: func(text string) { t.Log(text) }}})
}

// failures lists what did not pass.
func failures(u *Upgrade) (out []string) {
	for _, stage := range u.Stages {
		if stage.Cell.Err != nil {
			out = append(out, stage.Name()+": "+stage.Cell.Err.Error())
		}
		for _, c := range stage.cases() {
			if r := u.plan.Judge(c.ID, u.output.Log.View()); c.NotRun == nil && r.Verdict != verdicts.Passed {
				out = append(out, c.ID+": "+r.Reason)
			}
		}
	}
	return out
}

// ran counts the scenarios of a stage that ran.
func ran(u *Upgrade, stage int) (n int) {
	s := u.Stages[stage]
	for _, r := range s.Cell.Results() {
		e, err := conformance.ReadEvidence(u.output.Log.View(), s.Name(), r.Case)
		if err == nil && len(e.Steps) > 0 {
			n++
		}
	}
	return n
}

// mustReadStage returns what was recorded of a stage as a whole.
func mustReadStage(t *testing.T, u *Upgrade, stage int) *StageRecord {
	t.Helper()
	e, err := readStage(u.output.Log.View(), u.Stages[stage].Name())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestGateCycle turns the gate off and on again: the permissions that were made
// before have no effect, and then have again.
func TestGateCycle(t *testing.T) {
	u := plan(t, "1.37,1.37-gate,1.37", false)
	u.Walk(t.Context())
	if f := failures(u); len(f) > 0 {
		t.Fatal(strings.Join(f, "\n"))
	}
	for i, want := range []bool{true, false, true} {
		constrained := 0
		for verb, n := range mustReadStage(t, u, i).Verbs {
			if strings.HasPrefix(verb, "impersonate-on:") || strings.HasPrefix(verb, "impersonate:") {
				constrained += n
			}
		}
		if (constrained > 0) != want {
			t.Errorf("stage %d: %d constrained reviews", i+1, constrained)
		}
		if ran(u, i) != 3 || len(mustReadStage(t, u, i).Objects) == 0 {
			t.Errorf("stage %d: %d scenarios, %d objects", i+1, ran(u, i), len(mustReadStage(t, u, i).Objects))
		}
	}
	first, last := mustReadStage(t, u, 0).Objects, mustReadStage(t, u, 2).Objects
	for i := range first {
		if first[i] != last[i] {
			t.Errorf("%s changed", first[i].Path)
		}
	}
}

// TestNextVersionDoesNotStart has a second stage whose API server ends at once. What
// was seen on the first has to be kept, the second to say why, with the log, and
// the third that it was not reached.
func TestNextVersionDoesNotStart(t *testing.T) {
	u := plan(t, "1.37,1.37-gate,1.37", false)
	program := filepath.Join(t.TempDir(), "kube-apiserver")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho 'the disk is on fire' >&2\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	u.Stages[1].Target.KubeAPIServerPath = program
	u.Walk(t.Context())
	if ran(u, 0) != 3 || u.Stages[0].Cell.Err != nil {
		t.Errorf("stage 1: %d scenarios, %v", ran(u, 0), u.Stages[0].Cell.Err)
	}
	if p := u.Stages[1].Cell.Err; p == nil || !strings.Contains(p.Error(), "the disk is on fire") {
		t.Errorf("stage 2: %v", p)
	}
	if p := u.Stages[2].Cell.Err; p == nil || !strings.Contains(p.Error(), "not reached: the path stopped at stage 2, 2-1.37-gate-off") {
		t.Errorf("stage 3: %v", p)
	}
}

// TestInterrupt ends the walk in the middle of the second stage.
func TestInterrupt(t *testing.T) {
	u := plan(t, "1.37,1.37-gate,1.37", false)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(0, func() {
		u.Stages[0].Cell.Results()
		time.Sleep(200 * time.Millisecond)
		cancel()
	})
	u.Walk(ctx)
	if ran(u, 0) != 3 || u.Stages[1].Cell.Err == nil || u.Stages[2].Cell.Err == nil {
		t.Errorf("stage 1: %d scenarios, stage 2: %v, stage 3: %v", ran(u, 0), u.Stages[1].Cell.Err, u.Stages[2].Cell.Err)
	}
}

// TestFaults goes a path with each fault: what flows meanwhile is never answered
// wrongly, and the objects and permissions survive.
func TestFaults(t *testing.T) {
	for _, fault := range upgradepath.Faults() {
		t.Run(string(fault), func(t *testing.T) {
			u := plan(t, "1.37,1.37-gate", false, func(p *upgradepath.Path) { p.Stages[1].Fault = fault })
			u.Walk(t.Context())
			if f := failures(u); len(f) > 0 {
				t.Fatal(strings.Join(f, "\n"))
			}
			f := u.plan.judgeFlow(mustReadStage(t, u, 1))
			if f.Sent == 0 || len(f.Answers) == 0 || f.Unanswered == 0 {
				t.Fatalf("flow: %+v", f)
			}
			for _, a := range f.Answers {
				if a.Verdict != verdicts.Passed {
					t.Errorf("%d × %s on %s: %s", a.Count, a.Scenario, a.Cell, a.Reason)
				}
			}
		})
	}
}

// TestHighAvailability replaces two API servers one after the other.
func TestHighAvailability(t *testing.T) {
	u := plan(t, "1.37,1.37-gate", true)
	u.Walk(t.Context())
	if f := failures(u); len(f) > 0 {
		t.Fatal(strings.Join(f, "\n"))
	}
	if len(u.Stages) != 4 {
		t.Fatalf("%d stages", len(u.Stages))
	}
	both := map[string]bool{}
	for _, a := range u.plan.judgeFlow(mustReadStage(t, u, 2)).Answers {
		both[a.Cell] = true
		if a.Verdict != verdicts.Passed {
			t.Errorf("%d × %s on %s: %s", a.Count, a.Scenario, a.Cell, a.Reason)
		}
	}
	if !both["1-1.37-b"] || !both["2-1.37-gate-off-a"] {
		t.Errorf("answers came from %v", both)
	}
	// A request that is sent while the balancer closes its connection has no answer: of each worker this may be one.
	if f := u.plan.judgeFlow(mustReadStage(t, u, 2)); f.Unanswered > flowWorkers {
		t.Errorf("%d requests without an answer: %v", f.Unanswered, f.Errors)
	}
}
