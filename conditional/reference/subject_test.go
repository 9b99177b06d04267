package reference_test

import (
	"testing"

	"github.com/authzconf/authzconf/conditional/model"
	"github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// TestSubject: the reference authorizer's two phases are one.
func TestSubject(t *testing.T) {
	r, err := model.Explore(t.Context(), reference.Subject, model.Exploration{Cases: 4000, Seed: 1, FailureMode: reference.FailureMode})
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
