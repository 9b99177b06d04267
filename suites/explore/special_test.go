package explore

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/scenarios"
)

// TestSpecials wants the batches that go past an expiry, reloads and a restart to be among the first ones.
func TestSpecials(t *testing.T) {
	cells, err := matrix.Matrix{Provider: "local", Kubernetes: []string{matrix.Newest()}, Gate: "on"}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	x := &explorer{o: Options{Cases: 5*batchSize + 20, Seed: 2}, cell: cells[0]}
	var names []string
	var before *batch
	cases := 0
	for b, err := range x.newLane(0, 1).all() {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.TrimPrefix(b.name, cells[0].Cell.Name+"/lane-0-"))
		objects := slices.ContainsFunc(b.cases, func(p *prepared) bool { return p.objects })
		if objects != (b.special == "") {
			t.Errorf("%s: grants are RBAC objects: %t", b.name, objects)
		}
		if b.special != restarted {
			cases += len(b.walks)
		}
		for i, p := range b.cases {
			steps := p.bound.Steps
			last := steps[len(steps)-1].Request
			switch {
			case b.special == expired && (steps[len(steps)-2].Wait != scenarios.Duration(expiry) || !cmp.Equal(steps[len(steps)-3].Request, last)),
				b.special == reloaded && !cmp.Equal(steps[len(steps)-2].Request, last):
				t.Errorf("%s: case %d does not end with its last request once more", b.name, p.number)
			case b.special == restarted && !cmp.Equal(p.bound, before.cases[i].bound):
				t.Errorf("%s: case %d is another one than before", b.name, p.number)
			}
		}
		before = b
	}
	if want := []string{"0000", "0001-expired", "0002-before", "0002-restarted", "0003-reloaded", "0004-flipped", "0005-beside"}; !slices.Equal(names, want) {
		t.Errorf("batches %v, want %v", names, want)
	}
	if cases != x.o.Cases {
		t.Errorf("%d cases, want %d", cases, x.o.Cases)
	}
}

// TestLanes wants all cases in the batches of two lanes, and no batch without any where one lane has the last case.
func TestLanes(t *testing.T) {
	cells, err := matrix.Matrix{Provider: "local", Kubernetes: []string{matrix.Newest()}, Gate: "on"}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	x := &explorer{o: Options{Cases: 2 * batchSize, Seed: 2}, cell: cells[0]}
	cases := 0
	for index := range 2 {
		for b, err := range x.newLane(index, 2).all() {
			if err != nil || len(b.walks) == 0 {
				t.Errorf("%s has %d cases: %v", b.name, len(b.walks), err)
			}
			cases += len(b.walks)
		}
	}
	if cases != x.o.Cases {
		t.Errorf("%d cases, want %d", cases, x.o.Cases)
	}
}

// TestKeyWithoutAName wants no RBAC objects where nothing could show that they are in force: of a rule on userextras/.
func TestKeyWithoutAName(t *testing.T) {
	grant := func(resource string) scenarios.Grant {
		return scenarios.Grant{Subject: scenarios.Subject{User: "caller-x1"}, Verbs: []string{"impersonate"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{resource}}
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
