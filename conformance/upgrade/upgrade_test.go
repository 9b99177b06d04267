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
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// plan plans a path with two setups, which is enough to see that a stage works.
func plan(t *testing.T, text string, highAvailability bool) *Upgrade {
	t.Helper()
	if testing.Short() {
		t.Skip("starts control planes")
	}
	p, err := upgradepath.Parse(text, highAvailability)
	if err != nil {
		t.Fatal(err)
	}
	p.Setups = []string{"alice", "associated-node-both", "bob"}
	all, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	set, err := Setups(p, all)
	if err != nil {
		t.Fatal(err)
	}
	u, err := New(p, set, matrix.Matrix{Binaries: &local.Binaries{}}, 1, func(e conformance.Event) {
		if e.Text != "" {
			t.Log(e.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// failures lists what did not pass.
func failures(u *Upgrade) (out []string) {
	for _, stage := range u.Stages {
		if stage.Err != nil {
			out = append(out, stage.Plan.Target.Cell.Name+": "+stage.Err.Error())
		}
		_, results := stage.Outcomes()
		for _, r := range results {
			if r.Verdict != verdicts.Passed {
				out = append(out, r.Cell+" "+r.Scenario+": "+r.Reason)
			}
		}
	}
	return out
}

// ran counts the scenarios of a stage that ran.
func ran(stage *Stage) (n int) {
	evidence, _ := stage.Outcomes()
	for _, e := range evidence {
		if len(e.Steps) > 0 {
			n++
		}
	}
	return n
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
		for verb, n := range u.Stages[i].Evidence.Verbs {
			if strings.HasPrefix(verb, "impersonate-on:") || strings.HasPrefix(verb, "impersonate:") {
				constrained += n
			}
		}
		if (constrained > 0) != want {
			t.Errorf("stage %d: %d constrained reviews", i+1, constrained)
		}
		if ran(u.Stages[i]) != 3 || len(u.Stages[i].Evidence.Objects) == 0 {
			t.Errorf("stage %d: %d scenarios, %d objects", i+1, ran(u.Stages[i]), len(u.Stages[i].Evidence.Objects))
		}
	}
	first, last := u.Stages[0].Evidence.Objects, u.Stages[2].Evidence.Objects
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
	u.Stages[1].Plan.Target.KubeAPIServerPath = program
	u.Walk(t.Context())
	if ran(u.Stages[0]) != 3 || u.Stages[0].Err != nil {
		t.Errorf("stage 1: %d scenarios, %v", ran(u.Stages[0]), u.Stages[0].Err)
	}
	if p := u.Stages[1].Err; p == nil || !strings.Contains(p.Error(), "the disk is on fire") {
		t.Errorf("stage 2: %v", p)
	}
	if p := u.Stages[2].Err; p == nil || !strings.Contains(p.Error(), "not reached: the path stopped at stage 2, 2-1.37-gate-off") {
		t.Errorf("stage 3: %v", p)
	}
}

// TestInterrupt ends the walk in the middle of the second stage.
func TestInterrupt(t *testing.T) {
	u := plan(t, "1.37,1.37-gate,1.37", false)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(0, func() {
		u.Stages[0].Outcomes()
		time.Sleep(200 * time.Millisecond)
		cancel()
	})
	u.Walk(ctx)
	if ran(u.Stages[0]) != 3 || u.Stages[1].Err == nil || u.Stages[2].Err == nil {
		t.Errorf("stage 1: %d scenarios, stage 2: %v, stage 3: %v", ran(u.Stages[0]), u.Stages[1].Err, u.Stages[2].Err)
	}
}

// TestFaults goes a path with each fault: what flows meanwhile is never answered
// wrongly, and the objects and permissions survive.
func TestFaults(t *testing.T) {
	for _, fault := range upgradepath.Faults() {
		t.Run(string(fault), func(t *testing.T) {
			u := plan(t, "1.37,1.37-gate", false)
			u.Path.Stages[1].Fault, u.Stages[1].Fault = fault, fault
			u.Walk(t.Context())
			if f := failures(u); len(f) > 0 {
				t.Fatal(strings.Join(f, "\n"))
			}
			f := u.Stages[1].Evidence.Flow
			if f == nil || f.Sent == 0 || len(f.Answers) == 0 || f.Unanswered == 0 {
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
	for _, a := range u.Stages[2].Evidence.Flow.Answers {
		both[a.Cell] = true
		if a.Verdict != verdicts.Passed {
			t.Errorf("%d × %s on %s: %s", a.Count, a.Scenario, a.Cell, a.Reason)
		}
	}
	if !both["1-1.37-b"] || !both["2-1.37-gate-off-a"] {
		t.Errorf("answers came from %v", both)
	}
	if n := u.Stages[2].Evidence.Flow.Unanswered; n > 0 {
		t.Errorf("%d requests without an answer", n)
	}
}
