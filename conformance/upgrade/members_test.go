package upgrade

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/nodes"
)

// TestMembers: of a cluster with three API servers each is replaced by itself, beside the others as they are by then.
func TestMembers(t *testing.T) {
	path, err := upgradepath.Parse("1.36,1.37-gate", upgradepath.Options{HighAvailability: true})
	if err != nil {
		t.Fatal(err)
	}
	texts, err := conformance.LoadTexts("")
	if err != nil {
		t.Fatal(err)
	}
	base := matrix.Matrix{Provider: "kind", ControlPlanes: []string{"", ""}, Binaries: &local.Binaries{}}
	p, err := NewPlan(PlanOptions{Path: path, Texts: texts, Base: base, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !p.hasBalancer() || p.serverCount() != 3 {
		t.Errorf("%d API servers, a balancer of its own: %t", p.serverCount(), p.hasBalancer())
	}
	on, off := true, false
	want := []struct {
		name   string
		others []string // minors
		gates  nodes.Gates
	}{
		{"1-kind-1.36-a", []string{"1.36", "1.36"}, nodes.Gates{Before: []bool{on, on, on}, Now: []bool{on}}},
		{"1-kind-1.36-b", []string{"1.36", "1.36"}, nodes.Gates{Before: []bool{on, on, on}, Now: []bool{on}}},
		{"1-kind-1.36-c", []string{"1.36", "1.36"}, nodes.Gates{Before: []bool{on, on, on}, Now: []bool{on}}},
		{"2-kind-1.37-gate-off-a", []string{"1.36", "1.36"}, nodes.Gates{Before: []bool{on, on, on}, Now: []bool{off, on}}},
		{"2-kind-1.37-gate-off-b", []string{"1.37", "1.36"}, nodes.Gates{Before: []bool{off, on, on}, Now: []bool{off, on}}},
		{"2-kind-1.37-gate-off-c", []string{"1.37", "1.37"}, nodes.Gates{Before: []bool{off, off, on}, Now: []bool{off}}},
	}
	if len(p.stages) != len(want) {
		t.Fatalf("%d stages, want %d", len(p.stages), len(want))
	}
	for i, w := range want {
		stage := p.stages[i]
		if stage.Name() != w.name {
			t.Errorf("stage %d is %s, want %s", i+1, stage.Name(), w.name)
		}
		others := strings.Split(stage.Target.Cell.ControlPlanes, ",")
		if !slices.EqualFunc(others, w.others, strings.HasPrefix) {
			t.Errorf("%s: beside it are %v, want %v", w.name, others, w.others)
		}
		if got := p.podGates(stage); !reflect.DeepEqual(got, w.gates) {
			t.Errorf("%s: pods can meet %+v, want %+v", w.name, got, w.gates)
		}
	}
}
