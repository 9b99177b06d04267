package vectors

import (
	"testing"
)

// TestBuiltin checks that the built-in vectors can be read.
func TestBuiltin(t *testing.T) {
	all, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, v := range all {
		if seen[v.ID] {
			t.Errorf("%s is there twice", v.ID)
		}
		seen[v.ID] = true
		if (v.APIServer != nil) == (v.Webhook != nil) {
			t.Errorf("%s has both kinds or neither", v.ID)
		}
	}
	t.Logf("%d vectors", len(all))
}
