package scenarios_test

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

var benchFiles = fstest.MapFS{"a/x.yaml": file(valid)}

// everyString fills every string that is reachable from v with the text, every
// list with one item, every map with one entry and every pointer.
func everyString(v reflect.Value, text string, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Interface:
		v.Set(reflect.ValueOf(text))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		everyString(v.Elem(), text, depth)
	case reflect.Struct:
		for i := range v.NumField() {
			everyString(v.Field(i), text, depth)
		}
	case reflect.Slice:
		if depth > 12 {
			return // a Review contains reviews
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		everyString(v.Index(0), text, depth+1)
	case reflect.Map:
		item := reflect.New(v.Type().Elem()).Elem()
		everyString(item, text, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), item)
	}
}

// walkStrings calls fn for every string reachable from v with its path.
func walkStrings(v reflect.Value, path string, fn func(path, text string)) {
	switch v.Kind() {
	case reflect.String:
		fn(path, v.String())
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			walkStrings(v.Elem(), path, fn)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			walkStrings(v.Field(i), path+"."+v.Type().Field(i).Name, fn)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walkStrings(v.Index(i), path, fn)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			fn(path+".key", it.Key().String())
			walkStrings(it.Value(), path, fn)
		}
	}
}

// keptFields matches the fields that Bind must not change. A new field of the format is expected to be renamed, unless
// it is listed here.
var keptFields = regexp.MustCompile(`^(ID|File|Digest|Description|Source\..*|Level|Documented|Requires\..*|Twin|Setup|Fixtures|Suffix|.*\.key|` +
	`Requestors\.ServiceAccount\.Times|(Grants|Policy\.For)\.(ID|Verbs|APIGroups|Resources)|Policy\.Answer|` +
	`Steps\.(Name|Grant|Revoke|Reload|Kubectl\.(By|Version)|ExpectClient\.Requests\.Method)|` +
	`Steps\.Request\.(By|With|Verb|APIGroup|Version|Resource|Subresource|Patch|Upgrade|Headers\.(Name|Hex))|` +
	`Steps\.(Expect|ExpectClient\.Requests\.Expect)(\.OneOf)?\.(Outcome|Audit\..*|Metrics\..*|Flow\..*|` +
	`Reviews(\.Unordered)*\.(By|Verb|Group|Version|Resource|Subresource|Decision)))$`)

func TestBindRenamesEveryString(t *testing.T) {
	s := &scenarios.Scenario{}
	everyString(reflect.ValueOf(s).Elem(), "bob", 0)
	s.Nodes = nil // the values in this list are not made unique, see TestBindOn
	bound, names := s.Bind("abc123")
	if names["bob"] != "bob-abc123" {
		t.Fatalf("names: %v", names)
	}
	walkStrings(reflect.ValueOf(bound).Elem(), "", func(path, text string) {
		path = strings.TrimPrefix(path, ".")
		want := "bob-abc123"
		switch {
		case path == "Suffix":
			want = "abc123"
		case strings.HasSuffix(path, ".key"):
			want = "key"
		case keptFields.MatchString(path):
			want = "bob"
		}
		if text != want {
			t.Errorf("%s is %q, want %q", path, text, want)
		}
	})
}

func TestBindIsACopy(t *testing.T) {
	for _, s := range embedded(t).All() {
		before := fmt.Sprintf("%#v", deref(s))
		bound, _ := s.Bind("abc123")
		everyString(reflect.ValueOf(bound).Elem(), "changed", 0)
		for i := range bound.Steps {
			bound.Steps[i].Request = nil
		}
		if after := fmt.Sprintf("%#v", deref(s)); before != after {
			t.Errorf("%s: a change to the copy changed the original", s.ID)
		}
	}
}

// deref returns the texts of a scenario without pointers.
func deref(s *scenarios.Scenario) []string {
	var out []string
	walkStrings(reflect.ValueOf(s).Elem(), "", func(path, text string) { out = append(out, path+"="+text) })
	slices.Sort(out)
	return out
}

func TestBindNothingButNames(t *testing.T) {
	// If it is renamed back, a bound scenario equals the original: nothing is lost or added.
	for _, s := range embedded(t).All() {
		bound, names := s.Bind("abc123")
		back := map[string]string{}
		for from, to := range names {
			back[to] = from
		}
		var got []string
		walkStrings(reflect.ValueOf(bound).Elem(), "", func(path, text string) {
			if path == ".Suffix" {
				text = ""
			}
			got = append(got, path+"="+scenarios.Rename(text, back))
		})
		slices.Sort(got)
		if diff := cmp.Diff(deref(s), got); diff != "" {
			t.Errorf("%s (-original +bound and renamed back):\n%s", s.ID, diff)
		}
	}
}

func TestBindExample(t *testing.T) {
	s := example(t)
	bound, names := s.Bind("abc123")
	diff := cmp.Diff(
		map[string]string{"impersonator": "impersonator-abc123", "bob": "bob-abc123", "default": "default-abc123"},
		names,
	)
	if diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	want := `pods is forbidden: User "impersonator-abc123" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "default-abc123"`
	if got := bound.Steps[0].Expect.Message; got != want {
		t.Errorf("message: %s", got)
	}
	if by := bound.Steps[0].Request.By; by != "impersonator" {
		t.Errorf("the alias became %q", by)
	}
	if r := bound.Requestors["impersonator"]; r.User != "impersonator-abc123" {
		t.Errorf("the requestor is %+v", r)
	}
	if bound.ID != s.ID || bound.Twin != s.Twin || bound.Digest != s.Digest || bound.Suffix != "abc123" {
		t.Error("the identity of the scenario changed")
	}
}

// nodeAgent is a scenario with names of every kind.
const nodeAgent = `description: x
source: {document: KEP-5284, section: "Story 1"}
level: core
requires: {gate: on}
fixtures: [kep-5284/story-1-node-agent.yaml]
requestors:
  agent: {serviceAccount: {namespace: default, name: default, pod: agent-pod, node: node1}}
  proxied: {user: "system:serviceaccount:other-ns:proxied", extra: {authentication.kubernetes.io/node-name: [node3]}}
objects:
  - {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: web-ns}, spec: {nodeName: node4, resources: {web: [web]}}}
  - {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.acme.example}}
  - {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: User, name: carol}, {kind: Group, name: "system:nodes"}]}
steps:
  - request: {by: agent, impersonate: {user: "system:node:node1"}, verb: list, resource: pods, fieldSelector: spec.nodeName=node1}
    expect:
      outcome: allowed
      reviews: [{verb: "impersonate:arbitrary-node", resource: nodes, name: node1, decision: allow}]
      message: 'cannot impersonate:arbitrary-node resource "nodes"'
  - request: {by: proxied, impersonate: {user: "system:node:Bad_Name"}, verb: get, path: /api/v1/namespaces/web-ns/pods/web}
    expect: {outcome: allowed}
`

func TestBindKindsOfNames(t *testing.T) {
	s := mustLoad(t, fstest.MapFS{"a/x.yaml": file(nodeAgent)}, fixtures.FS).All()[0]
	want := []string{"agent-pod", "b", "carol", "default", "impersonate:arbitrary-node", "impersonate:arbitrary-node:list",
		"node1", "node3", "node4", "other-ns", "proxied", "web", "web-ns"}
	b, names := s.Bind("s1")
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(names))); diff != "" {
		t.Errorf("unique names (-want +got):\n%s", diff)
	}
	at := func(m map[string]any, path ...string) string {
		for _, p := range path[:len(path)-1] {
			m = m[p].(map[string]any)
		}
		return fmt.Sprint(m[path[len(path)-1]])
	}
	subject := b.Manifests[1]["subjects"].([]any)[0].(map[string]any)
	rule := b.Manifests[0]["rules"].([]any)[0].(map[string]any)
	for _, c := range []struct{ what, got, want string }{
		{"a role named like a verb", at(b.Manifests[0], "metadata", "name"), "impersonate:arbitrary-node-s1"},
		{"the reference to it", at(b.Manifests[1], "roleRef", "name"), "impersonate:arbitrary-node-s1"},
		{"the verb in a rule", fmt.Sprint(rule["verbs"]), "[impersonate:associated-node]"},
		{"the verb in a review", b.Steps[0].Expect.Reviews[0].Verb, "impersonate:arbitrary-node"},
		{"the verb in a message", b.Steps[0].Expect.Message, `cannot impersonate:arbitrary-node resource "nodes"`},
		{"a subject", at(subject, "namespace") + "/" + at(subject, "name"), "default-s1/default-s1"},
		{"the impersonated node", b.Steps[0].Request.Impersonate.User, "system:node:node1-s1"},
		{"its selector", b.Steps[0].Request.FieldSelector, "spec.nodeName=node1-s1"},
		{"what is no node", b.Steps[1].Request.Impersonate.User, "system:node:Bad_Name"},
		{"a user that is an account", b.Requestors["proxied"].User, "system:serviceaccount:other-ns-s1:proxied-s1"},
		{"its node", b.Requestors["proxied"].Extra["authentication.kubernetes.io/node-name"][0], "node3-s1"},
		{"a path", b.Steps[1].Request.Path, "/api/v1/namespaces/web-ns-s1/pods/web-s1"},
		{"a pod's node", at(b.Objects[0], "spec", "nodeName"), "node4-s1"},
		{"a mapping called resources", at(b.Objects[0], "spec", "resources"), "map[web:[web-s1]]"},
		{"a CRD", at(b.Objects[1], "metadata", "name"), "widgets.acme.example"},
		{"a role that exists", at(b.Objects[2], "roleRef", "name"), "cluster-admin"},
		{"the API group", at(b.Objects[2], "roleRef", "apiGroup"), "rbac.authorization.k8s.io"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.what, c.got, c.want)
		}
	}
}

func TestSuffix(t *testing.T) {
	valid := regexp.MustCompile(`^[a-z][a-z0-9]{5}$`)
	seen := map[string]string{}
	for seed := range int64(50) {
		for _, parts := range [][]string{nil, {""}, {"a"}, {"a", "b"}, {"ab"}, {"b", "a"}, {"a", "", "b"}} {
			s := scenarios.Suffix(seed-25, parts...)
			if !valid.MatchString(s) {
				t.Errorf("suffix %q", s)
			}
			key := fmt.Sprintf("%d %q", seed, parts)
			if other, dup := seen[s]; dup {
				t.Errorf("%s and %s have the suffix %s", key, other, s)
			}
			seen[s] = key
		}
	}
	if a, b := scenarios.Suffix(42, "x"), scenarios.Suffix(42, "x"); a != b {
		t.Errorf("not stable: %s, %s", a, b)
	}
	if got := scenarios.Suffix(42, "x"); got != "l9893c" {
		t.Errorf("Suffix(42, x) = %s: seeds of earlier reports would give other names", got)
	}
}

// TestReviewedToken checks that the alias in a TokenReview stays the same even if an account has the same name, and
// that the token replaces it.
func TestReviewedToken(t *testing.T) {
	s := &scenarios.Scenario{
		Requestors: map[string]scenarios.Requestor{"agent": {ServiceAccount: &scenarios.ServiceAccount{Namespace: "crew", Name: "agent"}}},
		Steps: []scenarios.Step{{Request: &scenarios.Request{By: "agent", Verb: "create", Resource: "tokenreviews",
			Body: map[string]any{"kind": "TokenReview", "spec": map[string]any{"token": "agent", "audiences": []any{"agent"}}}}}},
	}
	bound, _ := s.Bind("x")
	r := bound.Steps[0].Request
	sent, err := r.WithTokens(map[string]string{"agent": "a.b.c"}).Content()
	if want := `{"kind":"TokenReview","spec":{"audiences":["agent-x"],"token":"a.b.c"}}`; r.Reviewed() != "agent" || err != nil ||
		string(sent) != want {
		t.Errorf("of %q, sent %s, want %s: %v", r.Reviewed(), sent, want, err)
	}
	if r.Body["kind"] = "Pod"; r.Reviewed() != "" ||
		r.WithTokens(map[string]string{"agent": "a.b.c"}).Body["spec"].(map[string]any)["token"] != "agent" {
		t.Error("another object's token is taken for an alias")
	}
}
