package scenarios_test

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// TestSubstitute checks, for every scenario in which service accounts can replace users, that it names no user who was
// replaced, and is otherwise the same.
func TestSubstitute(t *testing.T) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	stood, swapped := 0, 0
	for _, s := range set.All() {
		bound, _ := s.Bind("abc123")
		out, why := bound.Substitute()
		if why != "" {
			continue
		}
		stood++
		if len(out.Grants) != len(bound.Grants) || len(out.Steps) != len(bound.Steps) || len(out.Requestors) != len(bound.Requestors) {
			t.Errorf("%s: something is lost", s.ID)
		}
		for alias, r := range bound.Requestors {
			if r.User == "" {
				continue
			}
			swapped++
			account := out.Requestors[alias].Username()
			if !strings.HasPrefix(account, "system:serviceaccount:authzconf-abc123:") {
				t.Errorf("%s: %s became %s", s.ID, r.User, account)
			}
			for _, g := range out.Grants {
				if g.Subject.User == r.User {
					t.Errorf("%s: a grant is still that of %s", s.ID, r.User)
				}
			}
			for i, st := range out.Steps {
				if st.Expect != nil && strings.Contains(st.Expect.Message, `"`+r.User+`"`) {
					t.Errorf("%s: step %d still speaks of %s", s.ID, i, r.User)
				}
			}
		}
	}
	if stood < 300 || swapped < 300 {
		t.Errorf("accounts stand in in %d scenarios for %d users", stood, swapped)
	}
}

func TestNoSubstitute(t *testing.T) {
	for why, s := range map[string]*scenarios.Scenario{
		"UID, groups or extra": {Requestors: map[string]scenarios.Requestor{"a": {User: "u-abc", Groups: []string{"g"}}}},
		"a name of its own":    {Requestors: map[string]scenarios.Requestor{"a": {User: "system:admin"}}},
		"is impersonated":      {Requestors: map[string]scenarios.Requestor{"a": {User: "u-abc"}}, Steps: []scenarios.Step{{Request: &scenarios.Request{By: "a", Verb: "get", Impersonate: &scenarios.Impersonate{User: "u-abc"}}}}},
		"several credentials":  {Requestors: map[string]scenarios.Requestor{"a": {User: "u-abc"}}, Steps: []scenarios.Step{{Request: &scenarios.Request{By: "a", With: []string{"b"}, Verb: "get"}}}},
		"it runs kubectl":      {Requestors: map[string]scenarios.Requestor{"a": {User: "u-abc"}}, Steps: []scenarios.Step{{Kubectl: &scenarios.Kubectl{}}}},
	} {
		s.Suffix = "abc"
		if _, got := s.Substitute(); !strings.Contains(got, why) {
			t.Errorf("expected %q, got %q", why, got)
		}
	}
}

func TestOutside(t *testing.T) {
	for why, s := range map[string]*scenarios.Scenario{
		"bound to a pod":            {Requestors: map[string]scenarios.Requestor{"a": {ServiceAccount: &scenarios.ServiceAccount{Namespace: "n-abc", Name: "s", Pod: "p"}}}},
		"belongs to the whole":      {Objects: []map[string]any{{"kind": "Node", "metadata": map[string]any{"name": "n-abc"}}}},
		"not in a namespace of its": {Objects: []map[string]any{{"kind": "ConfigMap", "metadata": map[string]any{"name": "c", "namespace": "default"}}}},
		"changes something outside": {Steps: []scenarios.Step{{Request: &scenarios.Request{Verb: "delete", Resource: "nodes", Name: "n"}}}},
	} {
		s.Suffix = "abc"
		if got := s.Outside(); !strings.Contains(got, why) {
			t.Errorf("expected %q, got %q", why, got)
		}
	}
	fine := &scenarios.Scenario{
		Suffix: "abc",
		Steps:  []scenarios.Step{{Request: &scenarios.Request{Verb: "create", Resource: "pods", Namespace: "n-abc"}}},
	}
	if got := fine.Outside(); got != "" {
		t.Errorf("a request in its own namespace: %s", got)
	}
}
