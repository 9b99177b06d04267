package run

import (
	"math"
	"testing"
	"time"
)

func TestServed(t *testing.T) {
	first := &Block{Served: []ServedRequests{
		{Verb: "LIST", Scope: "cluster", Count: 90, Within: map[string]int64{"0.05": 80, "1.0": 90, "30.0": 90, "+Inf": 90}},
		{Verb: "GET", Scope: "resource", Count: 100, Within: map[string]int64{"0.05": 98, "1.0": 98, "+Inf": 100}},
	}}
	second := &Block{Served: []ServedRequests{
		{Verb: "LIST", Scope: "cluster", Count: 10, Within: map[string]int64{"0.05": 0, "1.0": 0, "30.0": 9, "+Inf": 10}},
	}}
	all := MergeServed([]*Block{first, second})
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	get, list := all[0], all[1]
	if list.Count != 100 || list.Objective() != 30*time.Second || list.WithinObjective() != 0.99 {
		t.Errorf("lists %+v, %g within %s", list, list.WithinObjective(), list.Objective())
	}
	if bound := list.Bound(0.5); bound != 0.05 {
		t.Errorf("half of the lists took at most %g s", bound)
	}
	if bound := list.Bound(0.99); bound != 30 {
		t.Errorf("99 %% of the lists took at most %g s", bound)
	}
	if get.Objective() != time.Second || get.WithinObjective() != 0.98 || !math.IsInf(get.Bound(0.99), 1) {
		t.Errorf("gets %+v, %g within %s, 99 %% within %g", get, get.WithinObjective(), get.Objective(), get.Bound(0.99))
	}
}
