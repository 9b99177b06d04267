package granular

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/granular/catalogue"
)

// TestDocumentedSections holds the table of docs/granular.md against the scenarios.
func TestDocumentedSections(t *testing.T) {
	const path = "../../docs/granular.md"
	type row struct{ scenarios, attempts, denied int }
	rows, all := map[string]*row{}, &row{}
	for _, s := range scenarios(t) {
		if rows[s.Section] == nil {
			rows[s.Section] = &row{}
		}
		for _, r := range []*row{rows[s.Section], all} {
			r.scenarios++
			for _, a := range s.Attempts {
				r.attempts++
				if a.Outcome == catalogue.Denied {
					r.denied++
				}
			}
		}
	}
	var table strings.Builder
	table.WriteString("<!-- sections -->\n| section | scenarios | attempts | denied |\n|---|---:|---:|---:|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&table, "| %s | %d | %d | %d |\n", name, rows[name].scenarios, rows[name].attempts, rows[name].denied)
	}
	fmt.Fprintf(&table, "| all | %d | %d | %d |\n<!-- end -->", all.scenarios, all.attempts, all.denied)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	begin, end := strings.Index(text, "<!-- sections -->"), strings.Index(text, "<!-- end -->")
	if begin < 0 || end < begin {
		t.Fatalf("%s has no table of sections", path)
	}
	end += len("<!-- end -->")
	if *update {
		if err := os.WriteFile(path, []byte(text[:begin]+table.String()+text[end:]), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text[begin:end] != table.String() {
		t.Errorf("%s is not up to date; run go test ./suites/granular -run TestDocumentedSections -update\n%s", path, table.String())
	}
}
