package recorder

import (
	"context"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestScript asks a scripted point through the API server's own webhook client.
func TestScript(t *testing.T) {
	const point Point = "policy"
	answers := map[string]ScriptedReply{
		"allow":   {Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "because"}},
		"deny":    {Status: authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "never"}},
		"nothing": {},
		"error":   {Code: 500, Body: "broken"},
		"garbage": {Code: 200, Body: "<html>"},
		"slow":    {Delay: time.Minute},
	}
	r := startRecorder(t, Options{Scripts: map[Point]Script{point: func(s authorizationv1.SubjectAccessReviewSpec) ScriptedReply {
		return answers[s.ResourceAttributes.Verb]
	}}})
	for verb, want := range map[string]authorizer.Decision{
		"allow": authorizer.DecisionAllow, "deny": authorizer.DecisionDeny, "nothing": authorizer.DecisionNoOpinion,
		"error": authorizer.DecisionDeny, "garbage": authorizer.DecisionDeny, "slow": authorizer.DecisionDeny,
	} {
		t.Run(verb, func(t *testing.T) {
			mark := r.Mark()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			got, reason, err := apiServer(t, r, point, new(string)).Authorize(ctx, authorizer.AttributesRecord{
				User: &user.DefaultInfo{Name: "alice"}, Verb: verb, Resource: "pods", APIVersion: "v1", ResourceRequest: true,
			})
			broken := verb == "error" || verb == "garbage" || verb == "slow"
			if got != want || (err != nil) != broken {
				t.Errorf("got %v, %q, %v", got, reason, err)
			}
			if records := r.Since(mark, "alice"); len(records) == 0 || records[0].Point != point {
				t.Errorf("recorded %v", records)
			}
		})
	}
}
