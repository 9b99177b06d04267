package oracle

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// TestABAC: a policy allows who it names what it names, a star is anything, and one that only reads only what reads.
func TestABAC(t *testing.T) {
	pods := func(verb string) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{
			User:               "bob",
			Groups:             []string{"dev"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Namespace: "shop", Resource: "pods"},
		}
	}
	path := func(verb, path string) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{
			User:                  "bob",
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path},
		}
	}
	for _, c := range []struct {
		policy string
		spec   authorizationv1.SubjectAccessReviewSpec
		want   bool
	}{
		{`{"spec":{"user":"bob","namespace":"shop","resource":"pods"}}`, pods("delete"), true},
		{`{"spec":{"user":"*","namespace":"*","resource":"*","apiGroup":"*"}}`, pods("delete"), true},
		{`{"spec":{"namespace":"shop","resource":"pods"}}`, pods("get"), false}, // about nobody
		{`{"spec":{"user":"eve","namespace":"shop","resource":"pods"}}`, pods("get"), false},
		{`{"spec":{"group":"dev","namespace":"shop","resource":"pods"}}`, pods("get"), true},
		{`{"spec":{"group":"*","namespace":"shop","resource":"pods"}}`, pods("get"), true},
		{`{"spec":{"group":"ops","namespace":"shop","resource":"pods"}}`, pods("get"), false},
		{`{"spec":{"user":"bob","group":"ops","namespace":"shop","resource":"pods"}}`, pods("get"), false},
		{`{"spec":{"user":"eve","group":"dev","namespace":"shop","resource":"pods"}}`, pods("get"), false},
		{`{"spec":{"user":"bob","namespace":"other","resource":"pods"}}`, pods("get"), false},
		{`{"spec":{"user":"bob","namespace":"shop","resource":"nodes"}}`, pods("get"), false},
		{`{"spec":{"user":"bob","namespace":"shop","resource":"pods","apiGroup":"apps"}}`, pods("get"), false},
		{`{"spec":{"user":"bob","namespace":"*","resource":"*","readonly":true}}`, pods("get"), true},
		{`{"spec":{"user":"bob","namespace":"*","resource":"*","readonly":true}}`, pods("delete"), false},
		{`{"spec":{"user":"bob","namespace":"*","resource":"*","readonly":true}}`, pods("impersonate-on:user-info:list"), true},
		{`{"spec":{"user":"bob","namespace":"*","resource":"*","readonly":true}}`, pods("impersonate-on:user-info:delete"), false},
		{`{"spec":{"user":"bob","namespace":"*","resource":"*","readonly":true}}`, pods("impersonate:user-info"), false},
		{`{"spec":{"user":"bob","nonResourcePath":"/version"}}`, path("get", "/version"), true},
		{`{"spec":{"user":"bob","nonResourcePath":"/version"}}`, path("get", "/versions"), false},
		{`{"spec":{"user":"bob","nonResourcePath":"/api*"}}`, path("get", "/apis/x"), true},
		{`{"spec":{"user":"bob","nonResourcePath":"/api*"}}`, path("get", "/metrics"), false},
		{`{"spec":{"user":"bob","nonResourcePath":"*","readonly":true}}`, path("get", "/metrics"), true},
		{`{"spec":{"user":"bob","nonResourcePath":"*","readonly":true}}`, path("post", "/metrics"), false},
	} {
		list, err := decodeABAC(c.policy)
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %d policies, %v", c.policy, len(list), err)
		}
		if got := list[0].matches(c.spec); got != c.want {
			t.Errorf("%s: %+v: %v", c.policy, c.spec, got)
		}
	}
}
