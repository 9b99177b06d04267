package verdicts

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/authzconf/authzconf/scenarios"
)

// unappliedGrant returns evidence of a server that stores alice's grant and does not follow it.
func unappliedGrant(t *testing.T) *Evidence {
	t.Helper()
	e := newEvidence()
	bound, _ := listAsBob().BindOn(e.Suffix, nil)
	o := scenarios.RenderRBAC(bound)[0]
	e.Steps, e.UnappliedGrant = nil, &UnappliedGrant{Review: o.Check, Want: true, Reviews: 300, Millis: 14_990}
	for _, object := range o.Objects() {
		stored, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		e.UnappliedGrant.Stored = append(e.UnappliedGrant.Stored, stored)
	}
	return e
}

// TestUnappliedGrant checks that a server which shows a role and does not follow it has failed, and that the result is
// invalid where there may be another cause.
func TestUnappliedGrant(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*UnappliedGrant)
		verdict Verdict
		blame   Blame
		reason  string
	}{
		"kept, never allowed": {func(*UnappliedGrant) {}, Failed, BlameAPIServer, "there was no control run"},
		"gone, still allowed": {func(u *UnappliedGrant) {
			u.Want = false
			u.Answer.Allowed = true
			u.Stored = nil
		}, Failed, BlameAPIServer, "step 0: grant: want allowed=false"},
		"revoked, still there": {func(u *UnappliedGrant) {
			u.Want = false
			u.Answer.Allowed = true
		}, Invalid, BlameEnvironment, "not those that it was given"},
		"no rules":           {func(u *UnappliedGrant) { delete(u.Stored[0], "rules") }, Invalid, BlameEnvironment, "not those that it was given"},
		"no subjects":        {func(u *UnappliedGrant) { delete(u.Stored[1], "subjects") }, Invalid, BlameEnvironment, "not those that it was given"},
		"another user":       {func(u *UnappliedGrant) { u.Review.User = "mallory" }, Invalid, BlameEnvironment, "not those that it was given"},
		"nothing kept":       {func(u *UnappliedGrant) { u.Stored = nil }, Invalid, BlameEnvironment, "not those that it was given"},
		"a busy server":      {func(u *UnappliedGrant) { u.Reviews = 3 }, Invalid, BlameEnvironment, "could not be seen"},
		"not waited":         {func(u *UnappliedGrant) { u.Millis = 900 }, Invalid, BlameEnvironment, "could not be seen"},
		"nobody denies, yet": {func(u *UnappliedGrant) { u.Answer.Denied = true }, Failed, BlameAPIServer, "step 0: grant: want allowed=true"},
		"a webhook broke": {func(u *UnappliedGrant) { u.Answer.Denied, u.Answer.EvaluationError = true, "context deadline exceeded" },
			Invalid, BlameEnvironment, "could not be seen"},
		"another authorizer": {func(u *UnappliedGrant) { u.Answer.Denied = true }, Invalid, BlameEnvironment, "could not be seen"},
		"it is in force":     {func(u *UnappliedGrant) { u.Answer.Allowed = true }, Invalid, BlameEnvironment, "could not be seen"},
	} {
		t.Run(name, func(t *testing.T) {
			e := unappliedGrant(t)
			test.change(e.UnappliedGrant)
			e.Authorizer = name == "another authorizer"
			r := Judge(listAsBob(), e)
			if r.Verdict != test.verdict || r.Blame != test.blame || !strings.Contains(r.Reason, test.reason) {
				t.Errorf("%s, blamed on %s: %s", r.Verdict, r.Blame, r.Reason)
			}
		})
	}
}

// TestRefusedAdministratorIsAPIServerFault checks that the API server is to blame if authentication or authorization refuses an administrator.
// What admission or validation refuses may be the scenario's fault.
func TestRefusedAdministratorIsAPIServerFault(t *testing.T) {
	forbidden := `namespaces is forbidden: User "admin" cannot create resource "namespaces" in API group "" at the cluster scope`
	for name, test := range map[string]struct {
		answer   *metav1.Status
		provider string
		verdict  Verdict
		blame    Blame
	}{
		"not authorized":      {&metav1.Status{Code: 403, Message: forbidden}, "local", Failed, BlameAPIServer},
		"not authenticated":   {&metav1.Status{Code: 401, Message: "Unauthorized"}, "kind", Failed, BlameAPIServer},
		"no such resource":    {&metav1.Status{Code: 404, Message: "the server could not find the requested resource"}, "local", Failed, BlameAPIServer},
		"no such namespace":   {&metav1.Status{Code: 404, Message: `namespaces "x" not found`}, "local", Invalid, BlameHarness},
		"method not allowed":  {&metav1.Status{Code: 405}, "local", Failed, BlameAPIServer},
		"an existing cluster": {&metav1.Status{Code: 403, Message: forbidden}, "existing", Invalid, BlameHarness},
		"admission": {&metav1.Status{Code: 403, Message: `pods "x" is forbidden: violates PodSecurity "restricted:latest"`},
			"local", Invalid, BlameHarness},
		"validation": {&metav1.Status{Code: 422, Message: `ClusterRole "x" is invalid`}, "local", Invalid, BlameHarness},
		"overloaded": {&metav1.Status{Code: 429}, "local", Invalid, BlameHarness},
		"no answer":  {nil, "local", Invalid, BlameHarness},
		"a panic":    {nil, "local", Failed, BlameAPIServer},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvidence()
			text := textIf(name == "a panic", "stream error: stream ID 7; INTERNAL_ERROR; received from peer", "it broke")
			e.Steps, e.Cell.Provider = nil, test.provider
			if test.provider == "existing" {
				e.Capabilities = scenarios.Capabilities{scenarios.Tokens, scenarios.RBAC}
			}
			e.Problems = []Problem{{Blame: BlameHarness, Text: "provisioning: " + text, Answer: test.answer}}
			again := *e
			e.Control = &again
			if r := Judge(listAsBob(), e); r.Verdict != test.verdict || r.Blame != test.blame {
				t.Errorf("%s, blamed on %s: %s", r.Verdict, r.Blame, r.Reason)
			}
		})
	}
}
