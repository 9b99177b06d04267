package mutants

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

func scenario(id string, wait time.Duration) *scenarios.Scenario {
	s := &scenarios.Scenario{ID: id}
	if wait > 0 {
		s.Steps = []scenarios.Step{{Wait: scenarios.Duration(wait)}}
	}
	return s
}

// TestOrder wants killers of the same function first, then one of each kind, any killer before the quick ones; those
// that wait apart.
func TestOrder(t *testing.T) {
	m := Mutant{File: "cache.go", Function: "buildKey"}
	k := &killers{}
	k.killed(m, "k/neighbour")
	k.killed(Mutant{File: "mode.go", Function: "other"}, "k/killer")
	candidates := []*scenarios.Scenario{
		scenario("k/slow", 0), scenario("k/waits", time.Second), scenario("k/quick", 0),
		scenario("k/killer", 0), scenario("k/neighbour", 0), scenario("k/other-kind", 0),
	}
	base := &cellBaseline{
		took:    map[string]time.Duration{"k/slow": 2, "k/quick": 1, "k/other-kind": 3},
		mutants: []Mutant{m, {Number: 1, File: m.File, Function: m.Function}},
		reached: map[int][]*scenarios.Scenario{0: candidates, 1: candidates[5:]},
	}
	quick, waiting := k.order(m, base, candidates)
	var ids []string
	for _, s := range append(quick, waiting...) {
		ids = append(ids, s.ID)
	}
	want := []string{"k/neighbour", "k/killer", "k/other-kind", "k/quick", "k/slow", "k/waits"}
	if !slices.Equal(ids, want) {
		t.Errorf("order %v, want %v", ids, want)
	}
}

// TestCompareSetups wants what needs no token first, and then what needs few grants.
func TestCompareSetups(t *testing.T) {
	requestors := map[string]scenarios.Requestor{"agent": {ServiceAccount: &scenarios.ServiceAccount{}}, "alice": {User: "alice"}}
	all := []*scenarios.Scenario{
		{ID: "token", Requestors: requestors},
		{ID: "grants", Grants: make([]scenarios.Grant, 2)},
		{ID: "nothing"},
	}
	slices.SortStableFunc(all, compareSetups)
	var ids []string
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	if want := []string{"nothing", "grants", "token"}; !slices.Equal(ids, want) {
		t.Errorf("order %v, want %v", ids, want)
	}
}

// TestCandidates wants what reaches a mutant, or all for what only starts it.
func TestCandidates(t *testing.T) {
	a, b := scenario("a", 0), scenario("b", 0)
	base := &cellBaseline{
		all:     []*scenarios.Scenario{a, b},
		reached: map[int][]*scenarios.Scenario{1: {b}},
		atStart: map[int]bool{1: true, 2: true},
	}
	for number, want := range map[int]int{1: 1, 2: 2, 3: 0} {
		if got := len(base.candidates(number)); got != want {
			t.Errorf("mutant %d has %d candidates, want %d", number, got, want)
		}
	}
	if base.needsStart(Mutant{Number: 1, File: "mode.go"}) {
		t.Error("a mutant that scenarios reach needs no server of its own")
	}
	if !base.needsStart(Mutant{Number: 2, File: "mode.go"}) || !base.needsStart(Mutant{Number: 1, File: "cache.go"}) {
		t.Error("a mutant of the start, or of a cache, needs a server of its own")
	}
}

// TestNote wants a difference to be a kill, an unsteady one and a failed setup nothing, and what
// cannot be judged to be detected, until something kills.
func TestNote(t *testing.T) {
	c := &Campaign{}
	s := scenario("a", 0)
	r := Result{Status: Survived}
	outcomeOf := func(v verdicts.Verdict) outcome {
		return outcome{Result: verdicts.Result{Verdict: v, Reason: "why\nmore"}}
	}
	unsteady := outcomeOf(verdicts.Failed)
	unsteady.unsteady = true
	setup := outcomeOf(verdicts.Invalid)
	setup.setup = true
	if c.note(&r, s, outcomeOf(verdicts.Passed)) || c.note(&r, s, unsteady) || c.note(&r, s, setup) || r.Status != Survived {
		t.Fatalf("status %s", r.Status)
	}
	if !c.note(&r, s, outcomeOf(verdicts.Invalid)) || r.Status != Detected || r.Difference != "why" {
		t.Fatalf("status %s, difference %q", r.Status, r.Difference)
	}
	if !c.note(&r, s, outcomeOf(verdicts.Failed)) || r.Status != Killed {
		t.Fatalf("status %s", r.Status)
	}
	if r.Tried != 5 || len(r.Unsteady) != 2 {
		t.Errorf("tried %d, unsteady %v", r.Tried, r.Unsteady)
	}
}

// TestSharedFile writes what the program would, and reads it back.
func TestSharedFile(t *testing.T) {
	s, err := newSharedFile(5, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.choose(4); err != nil {
		t.Fatal(err)
	}
	if _, err := s.file.WriteAt([]byte{1}, SharedHeader+5); err != nil {
		t.Fatal(err)
	}
	reached, err := s.take()
	if err != nil || !slices.Equal(reached, []int{5}) {
		t.Errorf("reached %v, %v", reached, err)
	}
	if again, err := s.take(); err != nil || len(again) != 0 {
		t.Errorf("after taking them, reached %v, %v", again, err)
	}
	data, err := os.ReadFile(s.path)
	if err != nil || data[0] != 4 {
		t.Errorf("file %v, %v: want mutant 4", data, err)
	}
	s.close()
	if _, err := os.Stat(s.file.Name()); !os.IsNotExist(err) {
		t.Errorf("the file is left behind: %v", err)
	}
}
