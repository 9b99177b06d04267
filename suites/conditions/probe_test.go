package conditions

import (
	"context"
	"testing"

	"github.com/authzconf/authzconf/vectors"
)

func TestProbe(t *testing.T) {
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.Machinery == nil {
			continue
		}
		got, err := fromLibrary(context.Background(), v.Machinery)
		if err != nil {
			t.Fatal(err)
		}
		lazy, eager := v.Machinery.Wanted(vectors.Lazy), v.Machinery.Wanted(vectors.Eager)
		if d := lazy.Differences(got); len(d) > 0 {
			if e := eager.Differences(got); len(e) == 0 {
				continue
			} else {
				t.Log(v.ID, e)
			}
		}
	}
}
