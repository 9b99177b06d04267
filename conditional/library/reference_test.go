package library

import (
	"testing"

	"github.com/authzconf/authzconf/conditional/equivalence"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// TestReference: the reference authorizer's two phases are one.
func TestReference(t *testing.T) {
	r, err := equivalence.Run(t.Context(), Reference{}, equivalence.Options{Cases: 4000, Seed: 1, FailureMode: ReferenceMode})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Disagreements {
		t.Errorf("case %d: %s\n%s", d.Case, d.Reason, d.Vector)
	}
	if r.Cases != 4000 || r.ByAnswer[vectors.Conditional] < 1000 {
		t.Errorf("%+v", r)
	}
}
