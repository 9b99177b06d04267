package reports

import (
	"strings"
	"testing"
)

func TestDiffLines(t *testing.T) {
	tests := []struct{ name, a, b, want string }{
		{"same", "a b", "a b", "  a|  b"},
		{"nothing", "", "", ""},
		{"added", "a c", "a b c", "  a|+ b|  c"},
		{"removed", "a b c", "a c", "  a|- b|  c"},
		{"changed", "a b c", "a x c", "  a|- b|+ x|  c"},
		{"all", "a b", "x y", "- a|- b|+ x|+ y"},
		{"empty side", "", "x", "+ x"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := strings.Join(diffLines(strings.Fields(test.a), strings.Fields(test.b)), "|")
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestParseSide(t *testing.T) {
	for in, want := range map[string]Side{
		"out":              {Dir: "out"},
		"out:1.37-gate-on": {Dir: "out", Cell: "1.37-gate-on"},
	} {
		if got := ParseSide(in); got != want {
			t.Errorf("%q: got %+v", in, got)
		}
	}
}

func TestCellOfSide(t *testing.T) {
	r := &ConformanceReport{Cells: make([]Cell, 2)}
	r.Cells[0].Name, r.Cells[1].Name = "on", "off"
	for cell, want := range map[string]string{"on": "", "": "say which", "other": "has no cell"} {
		c, err := r.cell(Side{Dir: "out", Cell: cell})
		switch {
		case want == "" && (err != nil || c.Name != cell):
			t.Errorf("%q: got %q, %v", cell, c.Name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %v, want %q", cell, err, want)
		}
	}
}
