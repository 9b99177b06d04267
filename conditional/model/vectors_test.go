package model

import (
	"testing"

	"github.com/authzconf/authzconf/conditional/vectors"
)

// The model agrees with every machinery vector, in both readings.
func TestVectors(t *testing.T) {
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.Machinery == nil {
			continue
		}
		for _, r := range []vectors.Reading{vectors.Lazy, vectors.Eager} {
			want := v.Machinery.Wanted(r)
			for _, d := range want.Differences(predict(v.Machinery, r)) {
				t.Errorf("%s, %s: %s", v.ID, r, d)
			}
		}
	}
}
