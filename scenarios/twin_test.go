package scenarios_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// allowedTwin is the scenario from which the denials of these tests differ.
const allowedTwin = `description: allowed
source: {document: KEP-5284, section: Tests}
level: core
requires: {kubernetes: ">=1.35", gate: on}
requestors:
  agent: {user: agent}
grants:
  - {subject: {user: agent}, verbs: ["impersonate:user-info"], apiGroups: [authentication.k8s.io], resources: [users], resourceNames: [bob]}
  - {subject: {user: agent}, verbs: [list], apiGroups: [""], resources: [pods]}
  - {subject: {user: bob}, verbs: [list], apiGroups: [""], resources: [pods]}
steps:
  - request: {by: agent, impersonate: {user: bob}, verb: list, resource: pods, fieldSelector: spec.nodeName=bob}
    expect: {outcome: allowed}
`

// deniedTwin makes the denied copy of allowedTwin that the tests change.
var deniedTwin = strings.NewReplacer("outcome: allowed", "outcome: impersonationForbidden", "steps:", "twin: allowed\nsteps:").
	Replace(allowedTwin)

func TestTwin(t *testing.T) {
	const (
		here   = "denied.yaml:13:14: "
		atTwin = "denied.yaml:11:7: "
		inAll  = "twin \"allowed\" differs in "
	)
	for _, c := range []struct {
		name    string
		changes []string // pairs of texts, for the denied copy of allowedTwin
		want    string
	}{
		{"another user", []string{"impersonate: {user: bob}", "impersonate: {user: alice}"}, ""},
		{"another node, and the selector that follows",
			[]string{"impersonate: {user: bob}", "impersonate: {user: \"system:node:node1\"}", "spec.nodeName=bob", "spec.nodeName=node1"}, ""},
		{"another user, without the selector that follows", []string{"impersonate: {user: bob}", "impersonate: {user: alice}", ", fieldSelector: spec.nodeName=bob", ""}, ""},
		{"no headers", []string{" impersonate: {user: bob},", ""}, ""},
		{"another verb", []string{"verb: list, resource", "verb: watch, resource"}, ""},
		{"without the selector", []string{", fieldSelector: spec.nodeName=bob", ""}, ""},
		{"a grant less", []string{"resourceNames: [bob]", "resourceNames: [carol]"}, ""},
		{"another requestor", []string{"agent: {user: agent}", "agent: {user: agent, groups: [crew]}"}, ""},
		{"another gate", []string{"gate: on", "gate: off"}, ""},
		{"another version", []string{">=1.35", ">=1.36"}, ""},
		{"the version written out", []string{"resource: pods, f", "version: v1, resource: pods, f", "resourceNames: [bob]", "resourceNames: [carol]"}, ""},
		{"the impersonated user's grants, which decide nothing here",
			[]string{"{subject: {user: bob}", "{subject: {user: alice}", "impersonate: {user: bob}", "impersonate: {user: alice}"}, ""},
		{"grants written in another way", []string{
			"resourceNames: [bob]", "resourceNames: [bob], id: one", "verbs: [list], apiGroups: [\"\"], resources: [pods]}\n  - {subject: {user: bob}",
			"verbs: [list, list], apiGroups: [\"\"], resources: [pods, pods]}\n  - {subject: {user: bob}", "user: bob}, verb", "user: eve}, verb"}, ""},
		{"no difference", nil, here + `twin "allowed" is the same in every respect and allowed (expected it to differ in one)`},
		{"user and verb", []string{"user: bob}, verb: list", "user: eve}, verb: get, name: x"},
			here + inAll + "2 respects: impersonation headers, request (expected an allowed request that differs in one)"},
		{"everything", []string{"gate: on", "gate: off", "agent: {user: agent}", "agent: {user: agent2}", "user: bob}, verb: list", "user: eve}, verb: watch"},
			here + inAll + "5 respects: gate, requestor, impersonation headers, request, permissions (expected an allowed request that differs in one)"},
		{"the user's own grant where the request is forbidden",
			[]string{"impersonationForbidden", "requestForbidden", "{subject: {user: bob}, verbs: [list]", "{subject: {user: bob}, verbs: [get]"}, ""},
		{"headers and the user's own grant where the request is forbidden",
			[]string{"impersonationForbidden", "requestForbidden", "{subject: {user: bob}", "{subject: {user: alice}", "impersonate: {user: bob}", "impersonate: {user: alice, groups: [a]}"}, ""},
		{"bad request", []string{"impersonationForbidden", "badRequest", "impersonate: {user: bob}", "impersonate: {groups: [a]}", "resourceNames: [bob]", "resourceNames: [carol]"}, ""},
		{"no twin", []string{"twin: allowed\n", ""},
			"denied.yaml:13:23: the request is denied and the scenario has no twin (expected the ID of a scenario that differs in one respect and is allowed, or the same request allowed in another step)"},
		{"itself", []string{"twin: allowed", "twin: denied"}, atTwin + "the scenario is its own twin (expected another, or the same request allowed in another step and no twin)"},
		{"dangling", []string{"twin: allowed", "twin: nothing"}, atTwin + `twin "nothing" does not exist (expected the ID of a scenario)`},
		{"another denial", []string{"twin: allowed", "twin: denied-too"}, atTwin + `twin "denied-too" has no allowed request (expected one)`},
		{"its own twin", []string{"twin: allowed\n", "", "expect: {outcome: impersonationForbidden}",
			"expect: {outcome: impersonationForbidden}\n  - request: {by: agent, impersonate: {user: bob}, verb: list, resource: pods, fieldSelector: spec.nodeName=bob}\n    expect: {outcome: allowed}"}, ""},
		{"no twin needed", []string{"twin: allowed\n", "", "impersonationForbidden", "serverError"}, ""},
		{"but possible", []string{"impersonationForbidden", "unauthenticated", "resourceNames: [bob]", "resourceNames: [carol]"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := fstest.MapFS{
				"allowed.yaml": file(allowedTwin),
				"denied.yaml":  file(strings.NewReplacer(c.changes...).Replace(deniedTwin)),
				// This is another denial that is right.
				"denied-too.yaml": file(strings.Replace(deniedTwin, "resourceNames: [bob]", "resourceNames: [carol]", 1)),
			}
			_, err := scenarios.Load(files, nil)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestTwinByManifests checks that permissions in fixtures count like grants.
func TestTwinByManifests(t *testing.T) {
	base := `description: x
source: {document: docs/user-impersonation, section: x}
level: core
requires: {gate: on}
requestors:
  agent: {serviceAccount: {namespace: default, name: my-controller}}
`
	step := "steps:\n  - request: {by: agent, impersonate: {user: jane.doe@example.com}, verb: list, resource: pods, namespace: default}\n    expect: {outcome: OUTCOME}\n"
	fx := "fixtures: [docs-user-impersonation/user-identity.yaml, docs-user-impersonation/user-list-watch-pods.yaml]\n"
	files := fstest.MapFS{
		"both.yaml": file(base + fx + strings.Replace(step, "OUTCOME", "allowed", 1)),
		"one.yaml":  file(base + "twin: both\n" + strings.Replace(fx, "user-identity.yaml, docs-user-impersonation/", "", 1) + strings.Replace(step, "OUTCOME", "impersonationForbidden", 1)),
	}
	mustLoad(t, files, fixtures.FS)
	files["one.yaml"] = file(base + "twin: both\n" + fx + strings.Replace(step, "OUTCOME", "impersonationForbidden", 1))
	if _, err := scenarios.Load(files, fixtures.FS); err == nil || !strings.Contains(err.Error(), "same in every respect") {
		t.Errorf("got %v", err)
	}
}

func TestTwinThatIsWrongItself(t *testing.T) {
	files := fstest.MapFS{"allowed.yaml": file(strings.Replace(allowedTwin, "level: core", "level: 1", 1)), "denied.yaml": file(deniedTwin)}
	_, err := scenarios.Load(files, nil)
	if want := "allowed.yaml:3:8: level is a number (expected a string; quote it)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want only %s", err, want)
	}
}
