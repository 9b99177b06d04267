package residual

import (
	"testing"

	"github.com/authzconf/authzconf/conditional/vectors"
)

// The model agrees with every webhook vector.
func TestVectors(t *testing.T) {
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, v := range all {
		if v.Webhook == nil {
			continue
		}
		n++
		wrong, err := Check(v.Webhook)
		if err != nil {
			t.Errorf("%s: %v", v.ID, err)
		}
		for _, w := range wrong {
			t.Errorf("%s: %s", v.ID, w)
		}
	}
	if n < 50 {
		t.Errorf("only %d vectors", n)
	}
}
