package scenarios_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/scenarios"
)

func TestSelected(t *testing.T) {
	full := scenarios.AllCapabilities()
	without := func(c ...scenarios.Capability) []scenarios.Capability {
		return slices.DeleteFunc(scenarios.AllCapabilities(), func(x scenarios.Capability) bool { return slices.Contains(c, x) })
	}
	user := map[string]scenarios.Requestor{"a": {User: "a"}}
	account := map[string]scenarios.Requestor{"a": {ServiceAccount: &scenarios.ServiceAccount{}}}
	grants := []scenarios.Grant{{}}
	for _, c := range []struct {
		name     string
		scenario scenarios.Scenario
		facts    scenarios.Facts
		missing  []scenarios.Capability
		why      string
	}{
		{"everything", scenarios.Scenario{Requires: scenarios.Requires{Kubernetes: ">=1.35", Binary: ">=1.36", Gate: "on"}, Requestors: user, Grants: grants},
			scenarios.Facts{"1.36", "1.37", "on", "", full, nil}, nil, ""},
		{"too old", scenarios.Scenario{Requires: scenarios.Requires{Kubernetes: ">=1.35", Gate: "on"}},
			scenarios.Facts{"1.34", "1.37", "on", "", full, nil}, nil, "needs Kubernetes >=1.35, the target is 1.34"},
		{"too new", scenarios.Scenario{Requires: scenarios.Requires{Kubernetes: ">=1.35, <1.37", Gate: "on"}},
			scenarios.Facts{"1.37", "1.37", "on", "", full, nil}, nil, "needs Kubernetes >=1.35, <1.37, the target is 1.37"},
		{"binary too old", scenarios.Scenario{Requires: scenarios.Requires{Binary: ">=1.37", Gate: "on"}},
			scenarios.Facts{"1.36", "1.36", "on", "", full, nil}, nil, "needs a kube-apiserver binary >=1.37, the target is 1.36"},
		{"emulated", scenarios.Scenario{Requires: scenarios.Requires{Kubernetes: "<1.36", Binary: ">=1.37", Gate: "off"}},
			scenarios.Facts{"1.35", "1.37", "off", "", full, nil}, nil, ""},
		{"full versions", scenarios.Scenario{Requires: scenarios.Requires{Kubernetes: ">=1.35", Binary: "~1.37", Gate: "on"}},
			scenarios.Facts{"v1.35.0-alpha.1+abc", "v1.37.1", "on", "", full, nil}, nil, ""},
		{"newer than the only one", scenarios.Scenario{Requires: scenarios.Requires{Kubernetes: "=1.35", Gate: "on"}},
			scenarios.Facts{"1.35.4", "1.35", "on", "", full, nil}, nil, ""},
		{"greater", scenarios.Scenario{Requires: scenarios.Requires{Kubernetes: ">1.35", Gate: "on"}},
			scenarios.Facts{"1.35.4", "1.35", "on", "", full, nil}, nil, "needs Kubernetes >1.35, the target is 1.35"},
		{"either", scenarios.Scenario{Requires: scenarios.Requires{Kubernetes: "1.33 || >=1.36", Gate: "on"}},
			scenarios.Facts{"1.37", "1.37", "on", "", full, nil}, nil, ""},
		{"unknown version", scenarios.Scenario{Requires: scenarios.Requires{Kubernetes: ">=1.35", Gate: "on"}},
			scenarios.Facts{"", "1.37", "on", "", full, nil}, nil, `needs Kubernetes >=1.35, the target's version "" is unknown`},
		{"unknown version that does not matter", scenarios.Scenario{Requires: scenarios.Requires{Gate: "on"}},
			scenarios.Facts{"", "", "on", "", full, nil}, nil, ""},
		{"bad range", scenarios.Scenario{Requires: scenarios.Requires{Kubernetes: ">=1.35.1", Gate: "on"}},
			scenarios.Facts{"1.37", "1.37", "on", "", full, nil}, nil, `">=1.35.1" is not a version range: it names a patch version`},
		{"gate", scenarios.Scenario{Requires: scenarios.Requires{Gate: "on"}},
			scenarios.Facts{"1.37", "1.37", "off", "", full, nil}, nil, "needs the gate ConstrainedImpersonation on, the target has it off"},
		{"any gate", scenarios.Scenario{Requires: scenarios.Requires{Gate: "any"}}, scenarios.Facts{"1.37", "1.37", "off", "", full, nil}, nil, ""},
		{"no metrics", scenarios.Scenario{Requires: scenarios.Requires{Gate: "any", Capabilities: []scenarios.Capability{"metrics", "audit"}}},
			scenarios.Facts{"1.37", "1.37", "on", "", without("metrics", "audit"), nil}, []scenarios.Capability{"audit", "metrics"}, "needs audit, metrics, which the target does not offer"},
		{"no certificates", scenarios.Scenario{Requires: scenarios.Requires{Gate: "any"}, Requestors: user},
			scenarios.Facts{"1.37", "1.37", "on", "", without("requestHeader"), nil}, []scenarios.Capability{"requestHeader"}, "needs requestHeader, which the target does not offer"},
		{"no certificates needed", scenarios.Scenario{Requires: scenarios.Requires{Gate: "any"}, Requestors: account, Grants: grants},
			scenarios.Facts{"1.37", "1.37", "on", "", without("requestHeader"), nil}, nil, ""},
		{"gate before capabilities", scenarios.Scenario{Requires: scenarios.Requires{Gate: "on"}, Requestors: user},
			scenarios.Facts{"1.37", "1.37", "off", "", nil, nil}, nil, "needs the gate ConstrainedImpersonation on, the target has it off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ok, missing, why := c.scenario.Selected(c.facts)
			if ok != (c.why == "") || why != c.why || !slices.Equal(missing, c.missing) {
				t.Errorf("ok %v, missing %v, why %q; want missing %v, why %q", ok, missing, why, c.missing, c.why)
			}
		})
	}
}

func TestNeeds(t *testing.T) {
	rbac := []map[string]any{{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}}
	pod := []map[string]any{{"apiVersion": "v1", "kind": "Pod"}}
	for _, c := range []struct {
		name     string
		scenario scenarios.Scenario
		want     []scenarios.Capability
	}{
		{"nothing", scenarios.Scenario{}, nil},
		{"listed", scenarios.Scenario{Requires: scenarios.Requires{Capabilities: []scenarios.Capability{"metrics", "reviews", "metrics"}}}, []scenarios.Capability{"reviews", "metrics"}},
		{"expectations need nothing", scenarios.Scenario{Steps: []scenarios.Step{{Expect: &scenarios.Expect{Reviews: []scenarios.Review{}, Metrics: &scenarios.MetricsExpect{}}}}}, nil},
		{"fixtures", scenarios.Scenario{Manifests: rbac}, []scenarios.Capability{"rbac"}},
		{"objects", scenarios.Scenario{Objects: rbac}, []scenarios.Capability{"rbac"}},
		{"other objects", scenarios.Scenario{Objects: pod, Manifests: pod}, nil},
		{"all", scenarios.Scenario{
			Requires:   scenarios.Requires{Capabilities: []scenarios.Capability{"rbac", "audit"}},
			Requestors: map[string]scenarios.Requestor{"a": {User: "a"}, "b": {ServiceAccount: &scenarios.ServiceAccount{}}},
			Grants:     []scenarios.Grant{{}},
		}, []scenarios.Capability{"audit", "requestHeader", "tokens", "rbac"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.scenario.Needs()); diff != "" {
				t.Errorf("needs (-want +got):\n%s", diff)
			}
		})
	}
}
