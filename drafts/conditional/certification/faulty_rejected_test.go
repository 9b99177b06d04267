package certification

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/docs"
)

var update = flag.Bool("update", false, "write the kill table")

func TestFaultyAuthorizersAreRejected(t *testing.T) {
	b := plan(t, 1)
	ids := map[string]bool{}
	all := faultyAuthorizers()
	if len(all) < 20 {
		t.Errorf("there are %d faulty authorizers", len(all))
	}
	for i, r := range all {
		if !sample.TakesIndex(i, 5) {
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			if ids[r.ID] {
				t.Errorf("there are two faulty authorizers %s", r.ID)
			}
			ids[r.ID] = true
			a := newReference(t, r.revision())
			findings, results := run(t, b, r.Handler(a), into(a))
			var reasons []string
			for _, f := range findings {
				if !f.Advice {
					reasons = append(reasons, f.Reason)
				}
			}
			if !slices.Contains(reasons, r.Finding) {
				t.Errorf("%s is not rejected for %s, but for %v", r.Description, r.Finding, reasons)
			}
			if !slices.ContainsFunc(results, func(r Result) bool { return !r.Granted }) {
				t.Error("every level is granted")
			}
		})
	}
}

// TestTableOfFaultyAuthorizers holds the table in docs/conditional-results.md to the faulty authorizers.
func TestTableOfFaultyAuthorizers(t *testing.T) {
	table := "| faulty authorizer | what is wrong | rejected for | speaks |\n|---|---|---|---|\n"
	for _, r := range faultyAuthorizers() {
		table += fmt.Sprintf("| %s | %s | %s | `%s` |\n", r.ID, r.Description, r.Finding, r.revision().Name)
	}
	docs.ComparePart(t, "../../../docs/conditional-results.md", "kill table", table, *update)
}
