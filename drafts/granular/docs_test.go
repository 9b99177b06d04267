package granular

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/docs"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// TestDocumentedClaims compares the number of scenarios about the status of ResourceClaims in docs/granular.md with the
// files.
func TestDocumentedClaims(t *testing.T) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	const folder = "kubernetes/granular-status/"
	counts, all := map[string]int{}, 0
	for _, s := range set.All() {
		if rest, isOne := strings.CutPrefix(s.ID, folder); isOne {
			subject, _, _ := strings.Cut(rest, "/")
			counts[subject]++
			all++
		}
	}
	var list []string
	for _, subject := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d in %s", counts[subject], subject))
	}
	docs.ComparePart(
		t,
		"../../docs/granular.md",
		"granular-status",
		fmt.Sprintf("%d scenarios: %s.\n", all, strings.Join(list, ", ")),
		*update,
	)
}

// TestDocumentedSections compares the table of docs/granular-kep.md with the scenarios.
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
	docs.ComparePart(t, "../../docs/granular-kep.md", "sections", table.String(), *update)
}
