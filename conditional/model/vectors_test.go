package model

import (
	"testing"

	"github.com/authzconf/authzconf/conditional/vectors"
)

// The model agrees with every API-server vector, in both readings.
func TestVectors(t *testing.T) {
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.APIServer == nil {
			continue
		}
		for _, r := range []vectors.Reading{vectors.Lazy, vectors.Eager} {
			want := v.APIServer.Wanted(r)
			for _, d := range want.Differences(predict(v.APIServer, r)) {
				t.Errorf("%s, %s: %s", v.ID, r, d)
			}
		}
	}
}
