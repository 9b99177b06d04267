package replay

import (
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/scenarios"
)

func TestHTTPRequest(t *testing.T) {
	tests := []struct {
		name             string
		r                scenarios.Request
		method, uri      string
		body, bodyFormat string
	}{
		{name: "list", r: scenarios.Request{Verb: "list", Resource: "pods", Namespace: "ns"}, method: "GET", uri: "/api/v1/namespaces/ns/pods?resourceVersion=0"},
		{name: "list of a stated version", r: scenarios.Request{Verb: "list", Resource: "pods", Query: map[string]string{"resourceVersion": "5"}}, method: "GET", uri: "/api/v1/pods?resourceVersion=5"},
		{name: "group", r: scenarios.Request{Verb: "get", APIGroup: "apps", Resource: "deployments", Namespace: "ns", Name: "web"}, method: "GET", uri: "/apis/apps/v1/namespaces/ns/deployments/web"},
		{name: "version", r: scenarios.Request{Verb: "get", APIGroup: "x.io", Version: "v2", Resource: "things", Name: "a"}, method: "GET", uri: "/apis/x.io/v2/things/a"},
		{name: "subresource", r: scenarios.Request{Verb: "get", Resource: "pods", Namespace: "ns", Name: "p", Subresource: "log"}, method: "GET", uri: "/api/v1/namespaces/ns/pods/p/log"},
		{name: "watch", r: scenarios.Request{Verb: "watch", Resource: "pods", FieldSelector: "spec.nodeName=n1"}, method: "GET", uri: "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&watch=true"},
		{name: "delete all", r: scenarios.Request{Verb: "deletecollection", Resource: "pods", Namespace: "ns", LabelSelector: "a=b"}, method: "DELETE", uri: "/api/v1/namespaces/ns/pods?labelSelector=a%3Db"},
		{name: "path", r: scenarios.Request{Verb: "get", Path: "/version"}, method: "GET", uri: "/version"},
		{name: "path, another method", r: scenarios.Request{Verb: "post", Path: "/x"}, method: "POST", uri: "/x"},
		{name: "create", r: scenarios.Request{Verb: "create", Resource: "pods", Namespace: "ns", Body: map[string]any{"kind": "Pod"}}, method: "POST", uri: "/api/v1/namespaces/ns/pods", body: `{"kind":"Pod"}`, bodyFormat: "application/json"},
		{name: "patch", r: scenarios.Request{Verb: "patch", Resource: "pods", Namespace: "ns", Name: "p", Body: map[string]any{}}, method: "PATCH", uri: "/api/v1/namespaces/ns/pods/p", body: `{}`, bodyFormat: "application/merge-patch+json"},
		{name: "name with a slash", r: scenarios.Request{Verb: "get", Resource: "pods", Namespace: "ns", Name: "a/b"}, method: "GET", uri: "/api/v1/namespaces/ns/pods/a%2Fb"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req, err := NewRequest(t.Context(), "https://host", &test.r)
			if err != nil {
				t.Fatal(err)
			}
			body := ""
			if req.Body != nil {
				raw, err := io.ReadAll(req.Body)
				if err != nil {
					t.Fatal(err)
				}
				body = string(raw)
			}
			got := []string{req.Method, req.URL.RequestURI(), body, req.Header.Get("Content-Type")}
			if diff := cmp.Diff([]string{test.method, test.uri, test.body, test.bodyFormat}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := NewRequest(t.Context(), "https://host", &scenarios.Request{Verb: "impersonate", Resource: "users"}); err == nil {
		t.Error("a verb without a method is sent")
	}
}

// TestShownHeaders: credentials never become evidence.
func TestShownHeaders(t *testing.T) {
	h := http.Header{}
	for _, name := range []string{"Authorization", "X-Remote-User", "X-Remote-Group", "X-Remote-Extra-A", "User-Agent", "Accept", "Impersonate-User"} {
		h.Set(name, "x")
	}
	if diff := cmp.Diff(map[string][]string{"Impersonate-User": {"x"}}, shownHeaders(h)); diff != "" {
		t.Error(diff)
	}
}
