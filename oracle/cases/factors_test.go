package cases

import (
	"slices"
	"testing"
)

// Factors are all factors, in the order of a Choice.
func Factors() []Factor { return slices.Clone(factors[:]) }

// TestFactors says that the file names the factors in the order of the constants.
func TestFactors(t *testing.T) {
	names := map[int]string{
		wanted: "wanted", requestor: "requestor", uid: "uid", groups: "groups", extra: "extra", mode: "mode", action: "action",
		identity: "identity", legacy: "legacy", request: "request", selector: "selector", rights: "rights", sequence: "sequence", change: "change",
	}
	for f, name := range names {
		if factors[f].Name != name || len(factors[f].Levels) < 2 {
			t.Errorf("factor %d is %+v, and the constant is %s", f, factors[f], name)
		}
	}
	if len(names) != factorCount {
		t.Errorf("%d names of %d factors", len(names), factorCount)
	}
}
