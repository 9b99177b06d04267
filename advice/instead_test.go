package advice_test

import (
	"fmt"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// TestInstead checks, for each header that makes a constrained mode impossible or needs a permission of its own, which
// other request gives the same user, if any.
func TestInstead(t *testing.T) {
	with := func(u authenticationv1.UserInfo, uid string, extra map[string]authenticationv1.ExtraValue) authenticationv1.UserInfo {
		u.UID, u.Extra = uid, extra
		return u
	}
	const account, head, ofNamespace, authenticated = "system:serviceaccount:ci:bot", "system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"
	scopes := map[string]authenticationv1.ExtraValue{"scopes": {"view"}}
	const nodeOnlyOnceOn = "leave out Impersonate-Group once no API server has the gate off: mode %s adds system:nodes by itself, legacy impersonation does not"
	const accountNow = "leave out Impersonate-Group: mode serviceaccount adds system:serviceaccounts and system:serviceaccounts:ci by itself, and so does legacy impersonation"
	for _, c := range []struct {
		name string
		by   string
		as   authenticationv1.UserInfo
		want string // empty if there is no such request
	}{
		{"its own node with its group", agent, user("system:node:node-1", "system:nodes"), fmt.Sprintf(nodeOnlyOnceOn, "associated-node")},
		{"another node with its group", agent, user("system:node:node-2", "system:nodes"), fmt.Sprintf(nodeOnlyOnceOn, "arbitrary-node")},
		{"a node with its group twice", agent, user("system:node:node-2", "system:nodes", "system:nodes"), fmt.Sprintf(nodeOnlyOnceOn, "arbitrary-node")},
		{"a node with its group and that of everybody", agent, user("system:node:node-2", authenticated, "system:nodes"), fmt.Sprintf(nodeOnlyOnceOn, "arbitrary-node")},
		{"a node with another group", agent, user("system:node:node-2", "system:nodes", "dev"), ""},
		{"a node with another group alone", agent, user("system:node:node-2", "dev"), ""},
		{"a node with its group and a UID", agent, with(user("system:node:node-2", "system:nodes"), "1", nil), ""},
		{"a node with its group and extra", agent, with(user("system:node:node-2", "system:nodes"), "", scopes), ""},
		{"a service account with its groups in another order", "d", user(account, ofNamespace, head), accountNow},
		{"a service account with its groups, one of them twice", "d", user(account, head, ofNamespace, head), accountNow},
		{"a service account with its groups and that of everybody", "d", user(account, authenticated, head, ofNamespace), accountNow},
		{"a service account with one of its groups", "d", user(account, ofNamespace), ""},
		{"a service account in system:authenticated alone", "d", user(account), ""},
		{"a service account with the groups of another namespace", "d", user(account, head, "system:serviceaccounts:cd"), ""},
		{"a service account with its groups and a UID", "d", with(user(account, ofNamespace, head), "1", nil), ""},
		{"a service account with extra", "d", with(user(account, head, ofNamespace), "", scopes), ""},
		{"system:masters", "d", user("alice", "system:masters"), ""},
		{"a UID", "d", with(user("alice"), "1", nil), ""},
		{"an extra key without a domain", "d", with(user("alice"), "", scopes), ""},
		{"extra without a value", "d", with(user("alice"), "", map[string]authenticationv1.ExtraValue{"corp.example/team": {""}}), ""},
		{"a group", "d", user("alice", "dev"), ""},
		{"the group of everybody before one's own", "d", user("alice", authenticated, "dev"),
			"leave out Impersonate-Group: system:authenticated: mode user-info adds system:authenticated by itself, and so does legacy impersonation"},
		{"a group twice", "d", user("alice", "dev", "ops", "dev"), "send Impersonate-Group: dev once: the second one changes nothing"},
		{"nobody in the group of nobody and another", "d", authenticationv1.UserInfo{Username: "system:anonymous", Groups: []string{"system:unauthenticated", "dev"}},
			"leave out Impersonate-Group: system:unauthenticated: mode user-info adds system:unauthenticated by itself, and so does legacy impersonation"},
		{"somebody in the group of nobody", "d", authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:unauthenticated"}}, ""},
		{"a look-alike of a node with the group of nodes", "d", user("system:node:Bad_Name", "system:nodes"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			summary := bookOf(t, advice.Options{}, event(c.by, "get", "/version", c.as, ""))
			a := summary.Advice()
			var got string
			for _, k := range a.Kept {
				got = k.Instead
			}
			for _, r := range a.Redundant {
				got = r.Instead
			}
			if got != c.want {
				t.Errorf("instead %q, want %q", got, c.want)
			}
			checkSameUsers(t, summary, c.as)
		})
	}
}

// checkSameUsers demands that the model of the API server makes the user of the log of everything that the grants serve.
func checkSameUsers(t *testing.T, summary *advice.Summary, want authenticationv1.UserInfo) {
	t.Helper()
	server, err := oracle.New(oracle.Config{Kubernetes: "1.37", Gate: scenarios.GateOn, Grants: summary.Advice().Grants})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range summary.Seen() {
		if s.Mode == "" {
			continue
		}
		got := ask(server, s).User
		isSame := got != nil && got.Name == want.Username && got.UID == want.UID && sets.New(got.Groups...).Equal(sets.New(want.Groups...))
		if !isSame {
			t.Errorf("%v becomes %+v, not %+v", s.As, got, want)
		}
	}
}

// TestSeenListsInsteadOnce has two requests for a user that can be replaced by the same other request. That one is
// verified once.
func TestSeenListsInsteadOnce(t *testing.T) {
	summary := bookOf(
		t,
		advice.Options{},
		event(agent, "get", "/version", user("system:node:node-2", "system:nodes"), ""),
		event(agent, "get", "/version", user("system:node:node-2", "system:nodes", "system:nodes"), ""),
	)
	served := slices.DeleteFunc(summary.Seen(), func(s advice.ObservedImpersonation) bool { return s.Mode == "" })
	if len(served) != 1 || served[0].Mode != oracle.ArbitraryNode {
		t.Errorf("%+v", served)
	}
}
