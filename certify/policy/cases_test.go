package policy_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/scenarios"
)

// TestCasesAskBothSides checks that every relation of every attribute has at least two questions: one that only a wrong
// authorizer allows, and one that only a wrong authorizer refuses.
func TestCasesAskBothSides(t *testing.T) {
	for seed := range int64(3) {
		p := load(t, seed)
		count := map[string]map[scenarios.Decision]int{}
		for _, c := range policy.Cases(seed) {
			if count[c.Reason] == nil {
				count[c.Reason] = map[scenarios.Decision]int{}
			}
			for _, s := range c.Reviews {
				count[c.Reason][p.Decide(s)]++
			}
		}
		total := 0
		for _, reason := range slices.Sorted(maps.Keys(count)) {
			n := count[reason]
			total += n[scenarios.Allow] + n[scenarios.NoOpinion]
			t.Log(reason, n)
			// What seems to be granted only by its name is never allowed.
			if n[scenarios.NoOpinion] == 0 ||
				n[scenarios.Allow] == 0 && reason != "shortcut-for-a-name" {
				t.Errorf("seed %d: %s: %v", seed, reason, n)
			}
		}
		t.Log(len(p.Grants), "grants", total, "questions")
	}
}

// TestReasonsBelongToNoRelation checks that the name of no other reason is that of a relation of an attribute, such as
// user-cut. Questions with this reason would be counted and explained as those of the relation.
func TestReasonsBelongToNoRelation(t *testing.T) {
	reasons := policy.Reasons()
	if len(reasons) == 0 {
		t.Fatal("there are no reasons")
	}
	for _, reason := range reasons {
		if class := policy.Class(reason); class != "" {
			t.Errorf("relations.yaml: the reason %s is taken for the relation %s of an attribute, because of how it ends", reason, class)
		}
	}
}
