package scenarios_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// TestDivergencesAreListed checks that docs/divergences.md names only scenarios that exist, and all divergences.
func TestDivergencesAreListed(t *testing.T) {
	page, err := os.ReadFile("../docs/divergences.md")
	if err != nil {
		t.Fatal(err)
	}
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?:kep-5284|docs-user-impersonation|kubernetes|periscope)/[a-z0-9./*-]*[a-z0-9*]`).
		FindAllString(string(page), -1)
	listed := func(id string) bool {
		for _, n := range named {
			if folder, ok := strings.CutSuffix(n, "*"); n == id ||
				ok && strings.HasPrefix(id, folder) {
				return true
			}
		}
		return false
	}
	for _, n := range named {
		folder, many := strings.CutSuffix(n, "*")
		found := false
		for _, s := range set.All() {
			found = found ||
				s.ID == n ||
				many && strings.HasPrefix(s.ID, folder)
		}
		if !found {
			t.Errorf("docs/divergences.md names %s, which does not exist", n)
		}
	}
	for _, s := range set.All() {
		if s.Level == scenarios.Divergence && !listed(s.ID) {
			t.Errorf("docs/divergences.md does not name the divergence %s", s.ID)
		}
	}
}
