package verdicts

import (
	"fmt"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
)

func status(code int, message string) Response {
	return Response{Code: code, Body: fmt.Sprintf(`{"kind":"Status","code":%d,"message":%q}`, code, message)}
}

// TestOutcomeOf classifies texts of real API servers.
func TestOutcomeOf(t *testing.T) {
	tests := []struct {
		name string
		r    Response
		want scenarios.Outcome
	}{
		{"list", Response{Code: 200}, scenarios.Allowed},
		{"object that does not exist", status(404, `pods "p" not found`), scenarios.Allowed},
		{"conflict", status(409, "exists"), scenarios.Allowed},
		{"action check", status(403, `pods is forbidden: User "a" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "default"`), scenarios.ImpersonationForbidden},
		{"identity check", status(403, `users.authentication.k8s.io "bob" is forbidden: User "a" cannot impersonate:user-info resource "users" in API group "authentication.k8s.io" at the cluster scope`), scenarios.ImpersonationForbidden},
		{"legacy", status(403, `users "bob" is forbidden: User "a" cannot impersonate resource "users" in API group "" at the cluster scope`), scenarios.ImpersonationForbidden},
		{"non-resource action", status(403, `forbidden: User "a" cannot impersonate-on:user-info:get path "/x"`), scenarios.ImpersonationForbidden},
		{"impersonated user", status(403, `pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default"`), scenarios.RequestForbidden},
		{"non-resource", status(403, `forbidden: User "bob" cannot get path "/x"`), scenarios.RequestForbidden},
		{"escalation", status(403, `clusterroles.rbac.authorization.k8s.io "x" is forbidden: user "bob" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held: {…}`), scenarios.EscalationForbidden},
		{"a name that looks like a verb", status(403, `pods "cannot impersonate" is forbidden: User "bob" cannot get resource "pods" in API group "" in the namespace "default"`), scenarios.RequestForbidden},
		{"no user", status(400, `requested [{Group  x  v1  }] without impersonating a user`), scenarios.BadRequest},
		{"other 400", status(400, "the body is empty"), ""},
		{"401", status(401, "Unauthorized"), scenarios.Unauthenticated},
		{"500", Response{Code: 500, Body: "Internal Server Error"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := OutcomeOf(test.r); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestImpersonationMode(t *testing.T) {
	tests := map[string]string{
		"impersonate":                           "legacy",
		"impersonate:user-info":                 "user-info",
		"impersonate-on:user-info:list":         "user-info",
		"impersonate-on:associated-node:get":    "associated-node",
		"impersonate:serviceaccount":            "serviceaccount",
		"impersonate-on:arbitrary-node:get:log": "arbitrary-node",
		"impersonate:new-mode":                  "unknown",
		"impersonate-on:":                       "unknown",
		"impersonator":                          "",
		"list":                                  "",
	}
	for verb, want := range tests {
		mode, ok := scenarios.ImpersonationMode(verb)
		if mode != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", verb, mode, ok, want)
		}
	}
}

func TestDeriveDecisions(t *testing.T) {
	a, b := review("u", "get", "", "pods", "a"), review("u", "get", "", "pods", "b")
	back := func(r Review) Review { r.Point = Back; return r }
	decided, stray := DeriveDecisions([]Review{a, back(a), b, a})
	if len(stray) != 0 || len(decided) != 3 {
		t.Fatalf("decided %v, stray %v", decided, stray)
	}
	for i, want := range []scenarios.Decision{scenarios.NoOpinion, scenarios.Allow, scenarios.Allow} {
		if decided[i].Decision != want {
			t.Errorf("review %d was %s, want %s", i, decided[i].Decision, want)
		}
	}
	for name, reviews := range map[string][]Review{
		"back without front": {back(a)},
		"back of another":    {a, back(b)},
		"back twice":         {a, back(a), back(a)},
	} {
		if _, stray := DeriveDecisions(reviews); len(stray) != 1 {
			t.Errorf("%s: stray %v", name, stray)
		}
	}
}
