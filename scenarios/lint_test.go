package scenarios_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/scenarios"
)

// valid is a scenario that the tests of the rules change in one place.
const valid = `description: Bob may list pods.
source: {document: KEP-5284, section: Tests}
level: core
requires: {kubernetes: ">=1.35, <1.38", gate: on, capabilities: [reviews]}
requestors:
  agent: {user: agent, groups: [crew]}
grants:
  - id: identity
    subject: {user: agent}
    verbs: ["impersonate:user-info"]
    apiGroups: [authentication.k8s.io]
    resources: [users]
    resourceNames: [bob]
  - subject: {group: crew}
    verbs: [get]
    nonResourceURLs: [/version, "/healthz*"]
steps:
  - request: {by: agent, impersonate: {user: bob}, verb: list, resource: pods, namespace: ns1}
    expect:
      outcome: allowed
      code: 200
  - revoke: identity
  - wait: 10s
  - grant: identity
`

func TestValid(t *testing.T) {
	for name, text := range map[string]string{
		"as it is":            valid,
		"after ---":           "---\n" + valid,
		"with a directive":    "%YAML 1.1\n---\n" + valid,
		"with a closing dots": valid + "...\n",
		"CRLF":                strings.ReplaceAll(valid, "\n", "\r\n"),
		"no final newline":    strings.TrimSuffix(valid, "\n"),
	} {
		t.Run(name, func(t *testing.T) { mustLoad(t, fstest.MapFS{"a/x.yaml": file(text)}, nil) })
	}
}

// edit is one change of the valid scenario.
type edit struct{ name, from, to string }

var update = flag.Bool("update", false, "write lint-errors.golden anew")

// TestLintErrors changes the valid scenario so that it breaks one rule each (or none, to show the limits of a rule), and
// compares the errors with lint-errors.golden.
func TestLintErrors(t *testing.T) {
	var got strings.Builder
	for _, group := range [][]edit{formRules, identityRules, requestorRules, grantRules, stepRules, expectRules, nameRules, nodeRules, fixtureRules} {
		for _, c := range group {
			if strings.Count(valid, c.from) == 0 {
				t.Fatalf("%s: the valid scenario has no %q", c.name, c.from)
			}
			_, err := scenarios.Load(fstest.MapFS{"a/x.yaml": file(strings.Replace(valid, c.from, c.to, 1))}, ruleFixtures)
			fmt.Fprintf(&got, "== %s\n%s\n", c.name, lines(t, err))
		}
	}
	if *update {
		if err := os.WriteFile("lint-errors.golden", []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("lint-errors.golden")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("lint-errors.golden (-want +got):\n%s", diff)
	}
}

// lines returns the text of an error of Load, or "ok" if there is none. Each line must name file, line and column.
func lines(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return "ok"
	}
	var list scenarios.Errors
	if !errors.As(err, &list) {
		t.Fatalf("the error is a %T: %v", err, err)
	}
	for _, e := range list {
		if e.File == "" || e.Line < 1 || e.Col < 1 || !strings.HasSuffix(e.Msg, ")") {
			t.Errorf("%v: a place or what was expected is missing", e)
		}
	}
	return err.Error()
}

var formRules = []edit{
	{"unknown field", "level: core", "level: core\nlevle: core"},
	{"unknown nested field", "verbs: [get]", "verbs: [get]\n    verb: [get]"},
	{"duplicate key", "level: core", "level: core\nlevel: extended"},
	{"duplicate key in a body", "resource: pods,", "resource: pods, body: {a: 1, b: {c: 1, c: 2}},"},
	{"number for a string", "resource: pods", "resource: 5"},
	{"string for a list", "verbs: [get]", "verbs: get"},
	{"list for a mapping", "requestors:\n  agent: {user: agent, groups: [crew]}", "requestors: [agent]"},
	{"mapping for a string", "level: core", "level: {core: true}"},
	{"string for a number", "code: 200", "code: \"200\""},
	{"fraction for a whole number", "code: 200", "code: 200.5"},
	{"string for a boolean", "code: 200", "code: 200\n      audit: {impersonatedUser: \"yes\"}"},
	{"no value", "level: core", "level:"},
	{"no value in a list", "verbs: [get]", "verbs: [get, ~]"},
	{"bad duration", "wait: 10s", "wait: 10 seconds"},
	{"duration without a unit", "wait: 10s", "wait: 10"},
	{"anchor", "level: core", "level: &l core"},
	{"alias", "level: core", "level: &l core\nsetup: *l"},
	{"tag", "level: core", "level: !!str core"},
	{"merge key", "{user: agent, groups: [crew]}", "{user: agent, groups: [crew], <<: {uid: x}}"},
	{"key that is a number", "resource: pods,", "resource: pods, body: {1: a},"},
	{"body of every type", "resource: pods,", "resource: pods, body: {a: 1, b: 1.5, c: true, d: ~, e: [x, {f: g}], h: 'i', j: 18446744073709551615},"},
	{"body that JSON cannot hold", "resource: pods,", "resource: pods, body: {a: .inf, b: .nan, c: &x 1},"},
	{"number out of range", "code: 200", "code: 18446744073709551615"},
	{"block text", "description: Bob may list pods.", "description: |-\n  Bob may\n  list pods."},
	{"not YAML", "level: core", "level: [core"},
	{"tab", "level: core", "\tlevel: core"},
	{"several at once", "level: core\nrequires: {kubernetes: \">=1.35, <1.38\", gate: on,", "level: cora\nrequires: {kubernetes: \">=x\", gate: maybe, x: y,"},
}

var identityRules = []edit{
	{"no description", "description: Bob may list pods.\n", ""},
	{"empty description", "Bob may list pods.", "\" \""},
	{"no source", "source: {document: KEP-5284, section: Tests}\n", ""},
	{"no document", "document: KEP-5284, ", ""},
	{"no section", ", section: Tests", ""},
	{"no level", "level: core\n", ""},
	{"unknown level", "level: core", "level: Core"},
	{"divergence without documented", "level: core", "level: divergence"},
	{"documented without divergence", "level: core", "level: core\ndocumented: it says so"},
	{"divergence", "level: core", "level: divergence\ndocumented: it says so"},
	{"no requires", "requires: {kubernetes: \">=1.35, <1.38\", gate: on, capabilities: [reviews]}\n", ""},
	{"no gate", ", gate: on", ""},
	{"unknown gate", "gate: on", "gate: yes"},
	{"gate that is a boolean", "gate: on", "gate: true"},
	{"bad version range", ">=1.35, <1.38", ">=1.35 but <1.38"},
	{"patch version", ">=1.35, <1.38", ">=1.35.2"},
	{"bad binary range", "kubernetes: \">=1.35, <1.38\"", "binary: latest"},
	{"unknown capability", "[reviews]", "[reviews, logs]"},
	{"capability twice", "[reviews]", "[reviews, reviews]"},
	{"twin of an allowed scenario", "level: core", "level: core\ntwin: a/x"},
}

var requestorRules = []edit{
	{"no requestors", "requestors:\n  agent: {user: agent, groups: [crew]}\n", ""},
	{"empty requestors", "requestors:\n  agent: {user: agent, groups: [crew]}", "requestors: {}"},
	{"neither user nor account", "{user: agent, groups: [crew]}", "{groups: [crew]}"},
	{"both", "{user: agent, groups: [crew]}", "{user: agent, serviceAccount: {namespace: ns1, name: a}}"},
	{"account with groups", "{user: agent, groups: [crew]}", "{groups: [crew], serviceAccount: {namespace: ns1, name: a}}"},
	{"account with a certificate", "{user: agent, groups: [crew]}", "{certificate: true, serviceAccount: {namespace: ns1, name: a}}"},
	{"certificate with a UID", "{user: agent, groups: [crew]}", "{user: agent, certificate: true, uid: '1'}"},
	{"account without names", "{user: agent, groups: [crew]}", "{serviceAccount: {}}"},
	{"nodeObject without node", "{user: agent, groups: [crew]}", "{serviceAccount: {namespace: ns1, name: a, nodeObject: false}}"},
	{"account with an invalid name", "{user: agent, groups: [crew]}", "{serviceAccount: {namespace: Ns, name: A_b}}"},
	{"with somebody unknown", "{by: agent,", "{by: agent, with: [nobody],"},
	{"with oneself", "{by: agent,", "{by: agent, with: [agent],"},
	{"await as somebody else", "  - request:", "  - await: true\n    request:"},
	{"beside nothing", "  - request:", "  - beside: true\n    request:"},
	{"beside a held watch", "verb: list, resource: pods, namespace: ns1}\n    expect:\n      outcome: allowed\n      code: 200\n", "verb: watch, hold: true, resource: pods, namespace: ns1}\n    expect: {outcome: allowed, code: 200}\n  - beside: true\n    request: {by: agent, impersonate: {user: bob}, verb: get, path: /version}\n    expect: {outcome: allowed, code: 200}\n"},
	{"backend without its capability", "code: 200", "code: 200\n      admission: [{}]"},
	{"log", "code: 200", "code: 200\n      log: ['(']"},
	{"unused", "{user: agent, groups: [crew]}", "{user: agent, groups: [crew]}\n  idle: {user: idle}"},
	{"unknown alias", "by: agent", "by: agnet"},
}

var grantRules = []edit{
	{"no subject", "    subject: {user: agent}\n", ""},
	{"two subjects", "{user: agent}\n    verbs", "{user: agent, group: crew}\n    verbs"},
	{"no verbs", "    verbs: [get]\n", ""},
	{"empty verbs", "verbs: [get]", "verbs: []"},
	{"empty verb", "verbs: [get]", "verbs: [\"\"]"},
	{"paths and resources", "nonResourceURLs:", "namespace: ns1\n    nonResourceURLs:"},
	{"neither paths nor resources", "    nonResourceURLs: [/version, \"/healthz*\"]\n", ""},
	{"no API groups", "    apiGroups: [authentication.k8s.io]\n", ""},
	{"bad path", "[/version, \"/healthz*\"]", "[version, \"/a*b\"]"},
	{"duplicate ID", "  - subject: {group: crew}", "  - id: identity\n    subject: {group: crew}"},
	{"unknown grant", "revoke: identity", "revoke: identify"},
	{"granted twice", "- revoke: identity", "- grant: identity"},
	{"revoked twice", "- grant: identity", "- revoke: identity"},
	{"granted later", "  - revoke: identity\n", ""},
}

var stepRules = []edit{
	{"no steps", valid[strings.Index(valid, "steps:"):], ""},
	{"no request", valid[strings.Index(valid, "  - request:"):strings.Index(valid, "  - revoke")], ""},
	{"review of a user's token", "verb: list, resource: pods, namespace: ns1}", "verb: create, apiGroup: authentication.k8s.io, resource: tokenreviews, body: {kind: TokenReview, spec: {token: agent}}}"},
	{"no action", "- wait: 10s", "- name: nothing"},
	{"two actions", "- wait: 10s", "- wait: 10s\n    grant: identity"},
	{"negative wait", "wait: 10s", "wait: -1s"},
	{"long wait", "wait: 10s", "wait: 61s"},
	{"request without expect", "    expect:\n      outcome: allowed\n      code: 200\n", ""},
	{"expect without request", "- wait: 10s", "- wait: 10s\n    expect: {outcome: allowed}"},
	{"no by", "by: agent, ", ""},
	{"no verb", "verb: list, ", ""},
	{"unknown verb", "verb: list", "verb: lst"},
	{"path and resource", "resource: pods, ", "resource: pods, path: /version, "},
	{"neither path nor resource", ", resource: pods, namespace: ns1", ""},
	{"verb of another kind", "verb: list, resource: pods, namespace: ns1", "verb: list, path: /version"},
	{"relative path", "verb: list, resource: pods, namespace: ns1", "verb: get, path: version"},
	{"subresource in the resource", "verb: list, resource: pods", "verb: create, resource: pods/exec"},
	{"list with a name", "resource: pods,", "resource: pods, name: web,"},
	{"get without a name", "verb: list", "verb: get"},
	{"create with a name", "verb: list, resource: pods", "verb: create, name: web, resource: pods"},
	{"patch type with another verb", "resource: pods,", "resource: pods, patch: apply,"},
	{"unknown patch type", "verb: list, resource: pods", "verb: patch, name: web, patch: json6902, resource: pods"},
	{"JSON patch without operations", "verb: list, resource: pods", "verb: patch, name: web, patch: json, resource: pods"},
	{"operations and body", "verb: list, resource: pods", "verb: patch, name: web, patch: json, operations: [{op: remove, path: /x}], body: {a: b}, resource: pods"},
	{"unknown upgrade", "resource: pods,", "resource: pods, upgrade: h2c,"},
	{"hold of another verb", "resource: pods,", "resource: pods, hold: true,"},
	{"kubectl without its expectations", "- wait: 10s", "- kubectl: {by: agent, args: [version]}"},
	{"kubectl by a user", "- wait: 10s", "- kubectl: {by: agent, args: [version]}\n    expectClient: {exitCode: 0, requests: []}"},
	{"kubectl by nobody, with nothing", "- wait: 10s", "- kubectl: {args: []}\n    expectClient: {}"},
	{"kubectl's flags", "- wait: 10s", "- kubectl: {by: x, args: [get, pods, -n, x, --as, bob, --token=x]}\n    expectClient: {exitCode: 0, requests: [{method: FETCH, path: api, expect: {code: 200}}]}"},
	{"create of a subresource", "verb: list, resource: pods", "verb: create, name: web, resource: pods, subresource: exec"},
}

var expectRules = []edit{
	{"no outcome", "outcome: allowed", "message: ok"},
	{"unknown outcome", "outcome: allowed", "outcome: forbidden"},
	{"code of another outcome", "code: 200", "code: 401"},
	{"code of a denial", "outcome: allowed", "outcome: requestForbidden"},
	{"code of a bad request", "outcome: allowed", "outcome: badRequest"},
	{"code of an unknown user", "outcome: allowed", "outcome: unauthenticated"},
	{"code of a server error", "outcome: allowed", "outcome: serverError"},
	{"user without a name", "code: 200", "user: {groups: [a]}"},
	{"review", "code: 200", "reviews: [{verb: get, resource: pods, decision: allow}]"},
	{"review without a decision", "code: 200", "reviews: [{verb: get, resource: pods}]"},
	{"unknown decision", "code: 200", "reviews: [{verb: get, resource: pods, decision: allowed}]"},
	{"unknown by", "code: 200", "reviews: [{by: user, verb: get, resource: pods, decision: allow}]"},
	{"review without a verb", "code: 200", "reviews: [{resource: pods, decision: allow}]"},
	{"review with path and resource", "code: 200", "reviews: [{verb: get, resource: pods, path: /x, decision: allow}]"},
	{"review of nothing", "code: 200", "reviews: [{verb: get, decision: allow}]"},
	{"unordered alone", "code: 200", "reviews: [{unordered: [{verb: get, resource: pods, decision: allow}]}]"},
	{"unordered with others", "code: 200", "reviews: [{verb: get, unordered: [{verb: get, resource: pods, decision: allow}, {verb: list, resource: pods, decision: allow}]}]"},
	{"unordered in unordered", "code: 200", "reviews: [{unordered: [{verb: get, resource: pods, decision: allow}, {unordered: []}]}]"},
	{"audit decision", "code: 200", "audit: {decision: allowed}"},
	{"metrics", "code: 200", "metrics: {attempts: [{mode: \"\", decision: denied, count: 1}], authorizations: []}"},
	{"unknown mode", "code: 200", "metrics: {attempts: [{mode: node, decision: denied, count: 1}]}"},
	{"unknown metric decision", "code: 200", "metrics: {attempts: [{mode: legacy, decision: deny, count: 1}]}"},
	{"no count", "code: 200", "metrics: {attempts: [{mode: legacy, decision: denied}]}"},
	{"series twice", "code: 200", "metrics: {attempts: [{mode: legacy, decision: denied, count: 1}, {mode: legacy, decision: denied, count: 2}]}"},
}

var nameRules = []edit{
	{"user like a verb", "user: agent, groups", "user: list, groups"},
	{"namespace like a resource", "namespace: ns1", "namespace: pods"},
	{"user like part of a verb", "user: agent, groups", "user: user-info, groups"},
	{"user like a message's word", "user: agent, groups", "user: cluster, groups"},
	{"listed name like a group", "requestors:", "names: [authentication.k8s.io]\nrequestors:"},
	{"long namespace", "namespace: ns1", "namespace: " + strings.Repeat("n", 57)},
	{"longest namespace", "namespace: ns1", "namespace: " + strings.Repeat("n", 56)},
	{"long node", "{user: bob}", "{user: \"system:node:" + strings.Repeat("n", 247) + "\"}"},
	{"listed name that is not used", "requestors:", "names: [carol]\nrequestors:"},
	{"listed name", "requestors:", "names: [bob]\nrequestors:"},
	{"name with an odd end", "user: agent, groups", "user: agent-, groups"},
	{"system user", "impersonate: {user: bob}", "impersonate: {user: \"system:anonymous\"}"},
}

var nodeRules = []edit{
	{"running", "requestors:\n  agent: {user: agent, groups: [crew]}", runningAgent},
	{"running on no node", "requestors:\n  agent: {user: agent, groups: [crew]}", strings.Replace(runningAgent, "node: node-a", "node: node-c", 1)},
	{"running without a pod", "requestors:\n  agent: {user: agent, groups: [crew]}", strings.Replace(runningAgent, "pod: p, ", "", 1)},
	{"running with nodeObject", "requestors:\n  agent: {user: agent, groups: [crew]}", strings.Replace(runningAgent, "running: true", "running: true, nodeObject: true", 1)},
	{"real node without running", "requestors:\n  agent: {user: agent, groups: [crew]}", strings.Replace(runningAgent, ", running: true", "", 1)},
	{"invalid node", "requestors:\n  agent: {user: agent, groups: [crew]}", strings.ReplaceAll(runningAgent, "node-a", "Node_a")},
	{"node like a resource", "requestors:\n  agent: {user: agent, groups: [crew]}", strings.ReplaceAll(runningAgent, "node-a", "pods")},
	{"node that is not used", "requestors:", "nodes: [node-a]\nrequestors:"},
	{"node twice", "requestors:\n  agent: {user: agent, groups: [crew]}", strings.Replace(runningAgent, "[node-a]", "[node-a, node-a]", 1)},
	{"three nodes", "requestors:\n  agent: {user: agent, groups: [crew]}", strings.Replace(runningAgent, "[node-a]", "[node-a, bob, agent]", 1)},
	{"capability without nodes", "[reviews]", "[nodes]"},
}

// runningAgent are the requestors of a scenario with a pod on a real node.
const runningAgent = `nodes: [node-a]
requestors:
  agent: {serviceAccount: {namespace: ns2, name: agent, pod: p, node: node-a, running: true}}`

var fixtureRules = []edit{
	{"fixture", "level: core", "level: core\nfixtures: [good.yaml]"},
	{"missing", "level: core", "level: core\nfixtures: [none.yaml]"},
	{"outside", "level: core", "level: core\nfixtures: [../good.yaml]"},
	{"folder", "level: core", "level: core\nfixtures: [folder]"},
	{"twice", "level: core", "level: core\nfixtures: [good.yaml, good.yaml]"},
	{"unparsable", "level: core", "level: core\nfixtures: [unparsable.yaml]"},
	{"empty fixture", "level: core", "level: core\nfixtures: [empty.yaml]"},
	{"no object", "level: core", "level: core\nfixtures: [list.yaml]"},
	{"not applicable", "level: core", "level: core\nfixtures: [review.yaml]"},
	{"large fixture", "level: core", "level: core\nfixtures: [large.yaml]"},
	{"role without a namespace", "level: core", "level: core\nfixtures: [role.yaml]"},
	{"object without a name", "level: core", "level: core\nobjects: [{apiVersion: v1, kind: ConfigMap}]"},
	{"object twice", "level: core", "level: core\nfixtures: [good.yaml]\nobjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}]"},
}

// ruleFixtures are the fixtures for the rules about fixtures.
var ruleFixtures = fstest.MapFS{
	"good.yaml":       file("# text\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n---\n"),
	"folder/a.yaml":   file("x"),
	"unparsable.yaml": file("apiVersion: v1\nkind: [\n"),
	"empty.yaml":      file("# nothing\n"),
	"list.yaml":       file("- a\n"),
	"review.yaml":     file("apiVersion: authorization.k8s.io/v1\nkind: SubjectAccessReview\nspec: {}\n"),
	"large.yaml":      file(strings.Repeat("#", 1<<20+1)),
	"role.yaml":       file("apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\n"),
}
