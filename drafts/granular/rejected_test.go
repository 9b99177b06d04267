package granular

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/verdicts"
)

var update = flag.Bool("update", false, "write the kill table anew")

const killTable = "testdata/kills.json"

// TestFaultyEnforcersAreRejected runs faulty enforcers: each has to fail, and in the scenarios of the kill table.
func TestFaultyEnforcersAreRejected(t *testing.T) {
	all := faultyEnforcers()
	if !*update {
		all = sample.Some(2, all)
	}
	b := bench(t)
	kills := map[string][]string{}
	for _, r := range all {
		steps := enforcer.Reference()
		r.steps(&steps)
		faulty := by(t, Reference)
		faulty.Steps = steps
		results, err := b.Run(t.Context(), faulty, builtIn(t))
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		var killers []string
		for _, result := range results {
			switch result.Verdict {
			case verdicts.Invalid:
				t.Errorf("%s: %s: %s", r.name, result.ID(), result.Reason)
			case verdicts.Failed:
				killers = append(killers, strings.TrimPrefix(result.scenario.ID, "kep-3617/")+" "+result.attempt.Name)
			}
		}
		if len(killers) == 0 {
			t.Errorf("%s is not rejected: %s", r.name, r.wrong)
		}
		kills[r.name] = killers
		t.Logf("%s: %d attempts fail", r.name, len(killers))
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
	for _, r := range faultyEnforcers() {
		known = append(known, r.name)
	}
	if len(known) != len(want) {
		t.Error(fmt.Errorf("%d faulty enforcers, %d in %s", len(known), len(want), killTable))
	}
}
