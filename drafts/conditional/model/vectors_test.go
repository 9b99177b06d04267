package model

import (
	"testing"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// TestVectors checks that the model agrees with every API-server vector that a revision of the wire can express, in
// both readings.
func TestVectors(t *testing.T) {
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.APIServer == nil {
			continue
		}
		for _, w := range wire.Revisions() {
			if w.Cannot(v) != "" {
				continue
			}
			for _, r := range []vectors.Reading{vectors.Lazy, vectors.Eager} {
				want := v.APIServer.WantIn(r)
				for _, d := range want.Differences(predict(w, v.APIServer, r)) {
					t.Errorf("%s, %s, %s: %s", v.ID, w.Name, r, d)
				}
			}
		}
	}
}
