package explore

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// TestSpecials wants the batches that go past an expiry, reloads and a restart to be among the first ones.
func TestSpecials(t *testing.T) {
	sample.InTurn(t, 1, 2)
	cells, err := matrix.Matrix{Provider: "local", Kubernetes: []string{matrix.Newest()}, Gates: matrix.Gates{scenarios.GateOn}}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	p := NewPlan(Options{Cells: cells, Cases: 7*batchSize + 20, Seed: 2}).(*plan)
	c := &cell{plan: p, options: cells[0]}
	s := newSequence(c, 0, 1)
	var names []string
	var last *batch
	total := 0
	for _, ref := range s.batches() {
		b, err := s.source.batch(ref)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.TrimPrefix(ref.name(), "sequence-0/batch-"))
		objects := slices.ContainsFunc(b.cases, func(p *preparedCase) bool { return p.objects })
		if objects != (b.special == "") {
			t.Errorf("%s: grants are RBAC objects: %t", ref.name(), objects)
		}
		if b.special != restarted {
			total += len(b.walks)
		}
		testLastRequests(t, b, last)
		last = b
		if b.special == balancedSuffix {
			inTurn(t, b)
		}
	}
	want := []string{
		"0000",
		"0001-expired",
		"0002-before",
		"0002-restarted",
		"0003-reloaded",
		"0004-flipped",
		"0005-edged",
		"0006-crowded",
		"0007-balanced",
	}
	if !slices.Equal(names, want) {
		t.Errorf("batches %v, want %v", names, want)
	}
	if total != p.o.Cases {
		t.Errorf("%d cases, want %d", total, p.o.Cases)
	}
	// An earlier batch is the same again.
	repeated, err := s.source.batch(s.batches()[1])
	if err != nil || repeated.special != expired || repeated.cases[0].number != batchSize+1 {
		t.Errorf("%v, %v", repeated, err)
	}
}

// testLastRequests wants the cases of a special batch to end with their last requests once more.
func testLastRequests(t *testing.T, b, before *batch) {
	t.Helper()
	for i, p := range b.cases {
		steps := p.bound.Steps
		last := steps[len(steps)-1].Request
		switch {
		case b.special == expired &&
			(steps[len(steps)-2].Wait != scenarios.Duration(expiry) || !cmp.Equal(steps[len(steps)-3].Request, last)),
			b.special == reloaded && !cmp.Equal(steps[len(steps)-2].Request, last):
			t.Errorf("%s: case %d does not end with its last request once more", b.ref.name(), p.number)
		case b.special == edgedSuffix &&
			(countRequests(p.scenario) <= edges || steps[len(steps)-2].Wait == 0):
			t.Errorf("%s: case %d does not end with its last request at the edges", b.ref.name(), p.number)
		case b.special == restarted && !cmp.Equal(p.bound, before.cases[i].bound):
			t.Errorf("%s: case %d is another one than before", b.ref.name(), p.number)
		}
	}
}

// TestInTime wants requests to be told by their times that came too early or too late for what the waits say.
func TestInTime(t *testing.T) {
	step := scenarios.Step{Request: &scenarios.Request{}}
	s := &scenarios.Scenario{Steps: []scenarios.Step{step, {Grant: "a"}, step, {Wait: scenarios.Duration(expiry)}, step}}
	for name, test := range map[string]struct {
		second, third, took time.Duration
		want                bool
	}{
		"as the waits say": {time.Millisecond, expiry + 2*time.Millisecond, time.Millisecond, true},
		"late":             {time.Second, expiry + time.Second, time.Millisecond, false},
		"early":            {time.Millisecond, expiry - time.Second, time.Millisecond, false},
		"answered late":    {time.Millisecond, expiry, time.Second, false},
	} {
		times := []oracle.Span{
			{Sent: 0, Answered: time.Millisecond},
			{Sent: test.second, Answered: test.second + test.took},
			{Sent: test.third, Answered: test.third + test.took},
		}
		if got := isInTime(s, times); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// inTurn wants requests with a connection of their own to go to the next server, and others to the same as before.
func inTurn(t *testing.T, b *batch) {
	t.Helper()
	at, watched, turns, fresh := 1, true, 0, 0
	for _, w := range b.walks {
		for _, next := range w.turns {
			turns++
			if next.fresh {
				at, fresh = 1-at, fresh+1
			}
			if next.part.at.server != at ||
				watched && !next.fresh {
				t.Fatalf(
					"case %d: request %d goes to server %d on a new connection: %t",
					next.part.number,
					turns,
					next.part.at.server,
					next.fresh,
				)
			}
			watched = next.part.scenario.Steps[next.step].Request.Verb == "watch"
		}
	}
	if fresh < turns/4 || fresh > turns/2 {
		t.Errorf("%d of %d requests have a connection of their own, want about a third", fresh, turns)
	}
}

// TestSequences wants all cases in the batches of two sequences, and no batch without any where one sequence has the last
// case.
func TestSequences(t *testing.T) {
	cells, err := matrix.Matrix{Provider: "local", Kubernetes: []string{matrix.Newest()}, Gates: matrix.Gates{scenarios.GateOn}}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	p := NewPlan(Options{Cells: cells, Cases: 2 * batchSize, Seed: 2}).(*plan)
	if n := len(p.cells[0].sequences); n != 2 || len(p.Cases()) != 2 {
		t.Fatalf("%d sequences, %d cases", n, len(p.Cases()))
	}
	total := 0
	for _, s := range p.cells[0].sequences {
		for _, ref := range s.batches() {
			b, err := s.source.batch(ref)
			if err != nil || len(b.walks) == 0 {
				t.Errorf("%s has no cases: %v", ref.name(), err)
				continue
			}
			total += len(b.walks)
		}
	}
	if total != p.o.Cases {
		t.Errorf("%d cases, want %d", total, p.o.Cases)
	}
}

// TestKeyWithoutAName wants no RBAC objects where nothing could show that they are in force: of a rule on userextras/.
func TestKeyWithoutAName(t *testing.T) {
	grant := func(resource string) scenarios.Grant {
		return scenarios.Grant{
			Subject:   scenarios.Subject{User: "caller-x1"},
			Verbs:     []string{"impersonate"},
			APIGroups: []string{"authentication.k8s.io"},
			Resources: []string{resource},
		}
	}
	for resource, want := range map[string]bool{"userextras/key": true, "userextras/": false} {
		s := &scenarios.Scenario{
			Requestors: map[string]scenarios.Requestor{"requestor": {User: "caller-x1"}},
			Grants:     []scenarios.Grant{grant(resource)},
		}
		if got := canBeObjects(s); got != want {
			t.Errorf("%s: %t, want %t", resource, got, want)
		}
	}
}
