package run

import (
	"strings"
	"testing"
)

// TestExceeds has servers that go back to what they held, and servers that do not.
func TestExceeds(t *testing.T) {
	before := Held{Goroutines: 1200, Files: 300, Heap: 200 << 20}
	for name, c := range map[string]struct {
		after Held
		want  string
	}{
		"as before":          {before, ""},
		"a little more":      {Held{Goroutines: 1500, Files: 350, Heap: 300 << 20}, ""},
		"goroutines stay":    {Held{Goroutines: 5200, Files: 300, Heap: 200 << 20}, "5200 goroutines, 1200 before the storm, at most 1800"},
		"connections stay":   {Held{Goroutines: 1200, Files: 900, Heap: 200 << 20}, "900 open files"},
		"memory is not free": {Held{Goroutines: 1200, Files: 300, Heap: 600 << 20}, "bytes of heap"},
	} {
		got := Growth{Server: "gate-on", Before: before, After: c.after}.Exceeds()
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
