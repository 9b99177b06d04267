package granular

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
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

// enforcesExcludedValues checks excluded values where policies cannot enforce what the reference does: in the items of a
// list, and of a field that has a default. A policy sees an object with its defaults, so it also refuses whoever creates
// an object without the field. It asks without the name about what is created by an apply.
func enforcesExcludedValues(t *testing.T, b *Bench) {
	const folder = "testdata/values"
	reference := Enforcement{Kind: Reference, Steps: enforcer.Reference()}
	var err error
	if reference.Descriptions, err = permissions.Load(os.DirFS(folder + "/descriptions")); err != nil {
		t.Fatal(err)
	}
	all, err := Load(os.DirFS(folder + "/scenarios"))
	if err != nil {
		t.Fatal(err)
	}
	results, err := b.Run(t.Context(), reference, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		for _, p := range r.problems() {
			t.Errorf("%s: %s", r.ID(), p)
		}
	}
	policies := Enforcement{Kind: Policies}
	policies.Descriptions, err = permissions.Parse("mode.yaml", []byte(`kind: FieldPermissions
resources:
  - group: granular.authzconf.dev
    versions: [v1]
    resource: widgets
    fields: [{path: spec, verb: specification}, {path: spec.mode, verb: automation, excludedValues: [auto]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	ofMode := slices.DeleteFunc(all, func(s *Scenario) bool { return s.ID == "items-of-a-list" || s.ID == "two-fields" })
	results, err = b.Run(t.Context(), policies, ofMode)
	b.remove(t)
	if err != nil {
		t.Fatal(err)
	}
	const refused, withoutName = "code 403, expected 200", "the authorizer was asked"
	differences := map[string]string{
		"default-on-creation/filled-in-by-the-server": refused,
		"creation-by-apply/default":                   refused,
		"creation-by-apply/ordinary-user":             withoutName,
	}
	for _, r := range results {
		want, isDifferent := differences[r.ID()]
		isExpected := func(problem string) bool { return strings.HasPrefix(problem, want) }
		problems := r.problems()
		if isDifferent && !slices.ContainsFunc(problems, isExpected) {
			t.Errorf("%s by a policy: %q, expected %q", r.ID(), problems, want)
		}
		if !isDifferent && len(problems) > 0 {
			t.Errorf("%s by a policy: %q", r.ID(), problems)
		}
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
