package granular

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/docs"
)

// TestDocumentedSections holds the table of docs/granular.md against the scenarios.
func TestDocumentedSections(t *testing.T) {
	type row struct{ scenarios, attempts, denied int }
	rows, all := map[string]*row{}, &row{}
	for _, s := range builtIn(t) {
		if rows[s.Section] == nil {
			rows[s.Section] = &row{}
		}
		for _, r := range []*row{rows[s.Section], all} {
			r.scenarios++
			for _, a := range s.Attempts {
				r.attempts++
				if a.Outcome == Denied {
					r.denied++
				}
			}
		}
	}
	var table strings.Builder
	table.WriteString("| section | scenarios | attempts | denied |\n|---|---:|---:|---:|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&table, "| %s | %d | %d | %d |\n", name, rows[name].scenarios, rows[name].attempts, rows[name].denied)
	}
	fmt.Fprintf(&table, "| all | %d | %d | %d |\n", all.scenarios, all.attempts, all.denied)
	docs.ComparePart(t, "../../docs/granular.md", "sections", table.String(), *update)
}
