package granular

import (
	"os"
	"testing"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// enforcesExcludedFields checks the policies that are printed for the fields of the KEP's list if all these fields are
// excluded from the ordinary permission. An actor with the ordinary permission alone is refused. An actor who also has
// the permission of the field, or a more general one, is not. Then the policies are removed, and nobody is refused.
func enforcesExcludedFields(t *testing.T, b *Bench) {
	const folder = "testdata/excluded"
	set, err := permissions.Load(os.DirFS(folder + "/descriptions"))
	if err != nil {
		t.Fatal(err)
	}
	load := func() []*Scenario {
		all, err := Load(os.DirFS(folder + "/scenarios"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	results, err := b.Run(t.Context(), Enforcement{Kind: Policies, Descriptions: set}, load())
	b.remove(t)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, r := range results {
		if r.attempt.Outcome == Denied {
			refused++
		}
		for _, p := range r.problems() {
			t.Errorf("%s: %s", r.ID(), p)
		}
	}
	without, err := b.Run(t.Context(), Enforcement{Kind: off, Descriptions: set}, withoutPolicies(load()))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range without {
		for _, p := range r.problems() {
			t.Errorf("%s, without policies: %s", r.ID(), p)
		}
	}
	if len(results) != len(without) || refused < 12 {
		t.Errorf("%d attempts with policies, %d of them refused, and %d without", len(results), refused, len(without))
	}
}

// withoutPolicies returns scenarios in which every actor has the ordinary permission, with the outcomes on an API
// server without policies.
func withoutPolicies(all []*Scenario) []*Scenario {
	for _, s := range all {
		for _, a := range s.Attempts {
			a.Outcome, a.Missing, a.Checks = Allowed, "", a.Checks[:1]
		}
	}
	return all
}
