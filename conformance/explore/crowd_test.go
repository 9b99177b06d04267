package explore

import (
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// TestIsApart: only a case whose users are all its own is sent beside others.
func TestIsApart(t *testing.T) {
	for name, test := range map[string]struct {
		requestor, wanted, granted string
		want                       bool
	}{
		"own users":                      {"bob", "alice", "bob", true},
		"somebody whom all impersonate":  {"bob", "system:admin", "bob", false},
		"somebody who is all requestors": {"system:anonymous", "alice", "bob", false},
		"grants for somebody else":       {"bob", "alice", "system:anonymous", false},
	} {
		s := &scenarios.Scenario{
			Requestors: map[string]scenarios.Requestor{"r": {User: test.requestor}},
			Grants:     []scenarios.Grant{{ID: "g", Subject: scenarios.Subject{User: test.granted}}},
			Steps: []scenarios.Step{{Request: &scenarios.Request{
				By: "r", Verb: "get", Resource: "pods", Impersonate: &scenarios.Impersonate{User: test.wanted},
			}}},
		}
		bound, _ := s.Bind("abc123")
		if got := isApart(bound); got != test.want {
			t.Errorf("%s: apart: %t (%+v)", name, got, bound.Requestors)
		}
	}
}

// TestDropDisturbances: of what arrived the reviews about disturbers are dropped, each with its place.
func TestDropDisturbances(t *testing.T) {
	seen := &server.BatchObservations{}
	for i, user := range []string{"bob-abc", disturbing + "1-0", "alice-abc", disturbing + "1-1-victim"} {
		seen.Reviews = append(seen.Reviews, verdicts.Review{Spec: authorizationv1.SubjectAccessReviewSpec{User: user}})
		seen.Seqs = append(seen.Seqs, uint64(10+i))
	}
	dropDisturbances(seen)
	if len(seen.Reviews) != 2 || seen.Reviews[1].Spec.User != "alice-abc" || !slices.Equal(seen.Seqs, []uint64{10, 12}) {
		t.Errorf("left %+v at %v", seen.Reviews, seen.Seqs)
	}
}

// TestGrantsInForce: each case has its own grants until it ends.
func TestGrantsInForce(t *testing.T) {
	grant := scenarios.Grant{
		ID:        "g",
		Subject:   scenarios.Subject{User: "bob"},
		Verbs:     []string{"get"},
		APIGroups: []string{""},
		Resources: []string{"pods"},
	}
	may := authorizationv1.SubjectAccessReviewSpec{
		User: "bob", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "default"},
	}
	granted, other := &scenarios.Scenario{Suffix: "a", Grants: []scenarios.Grant{grant}}, &scenarios.Scenario{Suffix: "b"}
	var g grantsInForce
	if g.cover(may) {
		t.Error("covered before anything was granted")
	}
	g.put(granted, 0)
	g.put(other, 0)
	if !g.cover(may) {
		t.Error("not covered beside another case")
	}
	g.end(other)
	if !g.cover(may) {
		t.Error("another case has ended its grants")
	}
	g.end(granted)
	if g.cover(may) {
		t.Error("covered after its end")
	}
}
