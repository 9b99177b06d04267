package granular

import (
	"os"
	"testing"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// enforcesExcludedFields has the API server enforce the fields of the KEP's list by the policies that are printed for them if all
// of them are excluded from the ordinary permission: who holds that alone is refused, and who holds the permission of the
// field, or a more general one, is not. It is turned off again then, and who was refused is not any more.
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
	if len(results) != len(without) || refused < 9 {
		t.Errorf("%d attempts with policies, of which %d are refused, and %d without", len(results), refused, len(without))
	}
}

// withoutPolicies are scenarios in which every actor holds the ordinary permission, as an API server answers by itself.
func withoutPolicies(all []*Scenario) []*Scenario {
	for _, s := range all {
		for _, a := range s.Attempts {
			a.Outcome, a.Missing, a.Checks = Allowed, "", a.Checks[:1]
		}
	}
	return all
}
