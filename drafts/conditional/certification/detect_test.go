package certification

import (
	"testing"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// TestDetectWire checks that the revision that a webhook speaks is found out, and that it is said if it cannot be.
func TestDetectWire(t *testing.T) {
	b := plan(t, 7)
	for _, want := range wire.Revisions() {
		a := newReference(t, want)
		if err := into(a)(t.Context(), b.Policies()); err != nil {
			t.Fatal(err)
		}
		found, unknown, err := b.DetectWire(t.Context(), served(t, reference.Handler(want, a)))
		if err != nil || unknown != "" || found != want {
			t.Errorf("a webhook of revision %s: %v, %q, %v", want.Name, found, unknown, err)
		}
	}
	withoutPolicies := served(t, reference.Handler(wire.Seed, newReference(t, wire.Seed)))
	found, unknown, err := b.DetectWire(t.Context(), withoutPolicies)
	if err != nil || found != wire.Newest() || unknown != "no answer has conditions, in whichever way they are asked for" {
		t.Errorf("a webhook without policies: %v, %q, %v", found, unknown, err)
	}
}
