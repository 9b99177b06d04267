package scenarios_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/authzconf/authzconf/scenarios"
)

// onNodes makes a scenario about two real nodes.
var onNodes = strings.NewReplacer(
	"requestors:\n  agent: {user: agent, groups: [crew]}", `nodes: [node-a, node-b]
requestors:
  agent: {serviceAccount: {namespace: ns2, name: agent, pod: p, node: node-a, running: true}}
objects:
  - {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: ns2}, spec: {nodeName: node-b}}
  - {apiVersion: v1, kind: Pod, metadata: {name: idle, namespace: ns2}, spec: {nodeName: elsewhere}}`,
	"impersonate: {user: bob}", `impersonate: {user: "system:node:node-a"}, fieldSelector: "spec.nodeName=node-a"`,
	"      code: 200\n", "      code: 200\n      output: node-a\n",
).Replace(valid)

func TestBindOn(t *testing.T) {
	s := mustLoad(t, fstest.MapFS{"a/x.yaml": file(onNodes)}, nil).All()[0]
	bound, names := s.BindOn("abc123", []string{"worker-7", "worker-8", "worker-9"})
	if names["node-a"] != "worker-7" || names["node-b"] != "worker-8" {
		t.Errorf("the nodes became %q and %q", names["node-a"], names["node-b"])
	}
	r := bound.Steps[0].Request
	if r.Impersonate.User != "system:node:worker-7" || r.FieldSelector != "spec.nodeName=worker-7" ||
		bound.Steps[0].Expect.Output != "worker-7" {
		t.Errorf("the request is %+v, %+v, expected %q", r, r.Impersonate, bound.Steps[0].Expect.Output)
	}
	if sa := bound.Requestors["agent"].ServiceAccount; sa.Node != "worker-7" || sa.Pod != "p-abc123" || !sa.Running {
		t.Errorf("the requestor is %+v", sa)
	}
	if want := [][2]string{{"ns2-abc123", "p-abc123"}, {"ns2-abc123", "web-abc123"}}; !slices.Equal(bound.Pods(), want) {
		t.Errorf("the pods are %v, want %v", bound.Pods(), want)
	}
	if unknown, _ := s.Bind("abc123"); unknown.Steps[0].Request.Impersonate.User != "system:node:node-a" {
		t.Errorf("without nodes the user is %q", unknown.Steps[0].Request.Impersonate.User)
	}
}

func TestNodesAreNeeded(t *testing.T) {
	s := mustLoad(t, fstest.MapFS{"a/x.yaml": file(onNodes)}, nil).All()[0]
	if !slices.Contains(s.Needs(), scenarios.KubeletNodes) {
		t.Errorf("the scenario needs %v", s.Needs())
	}
	f := scenarios.Facts{
		Kubernetes:   "1.37",
		Binary:       "1.37",
		Gate:         scenarios.GateOn,
		Capabilities: []scenarios.Capability{scenarios.Reviews, scenarios.Tokens, scenarios.RBAC},
	}
	if ok, missing, _ := s.Selected(f); ok || !slices.Equal(missing, []scenarios.Capability{scenarios.KubeletNodes}) {
		t.Errorf("selected: %v, missing: %v", ok, missing)
	}
}
