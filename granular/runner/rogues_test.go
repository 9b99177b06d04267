package runner

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/granular/enforcer"
	"github.com/authzconf/authzconf/granular/rogue"
)

var update = flag.Bool("update", false, "write the kill table anew")

const killTable = "testdata/kills.json"

// TestRoguesAreRejected runs rogue enforcers: each has to fail, and in the scenarios
// of the kill table. Without AUTHZCONF_ROGUES=all it takes a few.
func TestRoguesAreRejected(t *testing.T) {
	all := rogue.All()
	if os.Getenv("AUTHZCONF_ROGUES") != "all" && !*update {
		all = slices.DeleteFunc(all, func(r rogue.Rogue) bool {
			return !slices.Contains([]string{"granular-alone", "dry-run", "keys-ignored", "first-success", "no-name"}, r.Name)
		})
	}
	b := bench(t)
	kills := map[string][]string{}
	for _, r := range all {
		steps := enforcer.Reference()
		r.Steps(&steps)
		results, err := b.Run(t.Context(), steps, scenarios(t))
		if err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		var killers []string
		for _, result := range results {
			if result.Invalid != "" {
				t.Errorf("%s: %s: %s", r.Name, result.Scenario, result.Invalid)
			}
			if len(result.Problems) > 0 {
				killers = append(killers, strings.TrimPrefix(result.Scenario, "kep-3617/")+" "+result.Attempt)
			}
		}
		if len(killers) == 0 {
			t.Errorf("%s is not rejected: %s", r.Name, r.Wrong)
		}
		kills[r.Name] = killers
		t.Logf("%s: %d attempts fail", r.Name, len(killers))
	}
	compareKills(t, kills)
}

func compareKills(t *testing.T, kills map[string][]string) {
	t.Helper()
	if *update {
		raw, err := json.MarshalIndent(kills, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(killTable, append(raw, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	var want map[string][]string
	raw, err := os.ReadFile(killTable)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	for name, killers := range kills {
		if !slices.Equal(killers, want[name]) {
			t.Errorf("%s fails in %q, and %s says %q", name, killers, killTable, want[name])
		}
	}
	var known []string
	for _, r := range rogue.All() {
		known = append(known, r.Name)
	}
	if len(known) != len(want) {
		t.Error(fmt.Errorf("%d rogues, %d in %s", len(known), len(want), killTable))
	}
}
