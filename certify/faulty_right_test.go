package certify

import (
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// TestEngineIsRight compares the unchanged engine with the policy. A faulty authorizer is wrong in only one way if the
// rest of the engine is right.
func TestEngineIsRight(t *testing.T) {
	t.Parallel()
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	p := policy.New(policy.Bound(set.All(), 1), 1)
	decide := newEngine().decider(p)
	asked := 0
	for i := range p.Grants {
		if !sample.TakesIndex(i, 5) {
			continue
		}
		for _, r := range makeNeighbours(p.Grants[i], p.Grants[(i+1)%len(p.Grants)]) {
			if got, want := decide(r), p.Decide(r); got != want {
				t.Errorf("%+v: %s, and the policy says %s", r, got, want)
			}
			asked++
		}
	}
	if asked < 300 {
		t.Errorf("only %d reviews", asked)
	}
}

// makeNeighbours returns reviews of what a grant allows, with a part of another grant.
func makeNeighbours(g, other scenarios.Grant) (out []review) {
	for _, verb := range slices.Concat(g.Verbs, other.Verbs) {
		base := review{User: g.Subject.User, Groups: []string{g.Subject.Group}}
		for _, path := range append(g.NonResourceURLs, other.NonResourceURLs...) {
			r := base
			r.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: verb, Path: path + "x"}
			out = append(out, r)
		}
		for _, resource := range slices.Concat(g.Resources, other.Resources) {
			resource, sub, _ := strings.Cut(resource, "/")
			for _, name := range slices.Concat([]string{""}, g.Names, other.Names) {
				r := base
				r.ResourceAttributes = &authorizationv1.ResourceAttributes{
					Verb:        verb,
					Resource:    resource,
					Subresource: sub,
					Name:        name,
					Namespace:   g.Namespace,
				}
				if len(g.APIGroups) > 0 {
					r.ResourceAttributes.Group = g.APIGroups[0]
				}
				out = append(out, r)
			}
		}
	}
	return out
}
