package gate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/scenarios"
)

// kinds are the kinds of the objects that requests are sent for, by resource. The kind is empty for resources without
// an object of the harness.
var kinds = map[string]string{
	"configmaps":   "ConfigMap",
	"deployments":  "Deployment",
	"leases":       "Lease",
	"pods":         "",
	"nodes":        "",
	"clusterroles": "ClusterRole",
}

var methods = map[string]string{
	"create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete,
	"deletecollection": http.MethodDelete, "get": http.MethodGet, "list": http.MethodGet, "watch": http.MethodGet,
}

// sentFor returns the request of a vector as it is sent. An update cannot create a ConfigMap, but it can create a
// Lease.
func sentFor(m *vectors.APIServer) vectors.Request {
	q := m.Request
	if q.Verb == "update" && m.Compound != nil && q.Resource == "configmaps" {
		q.APIGroup, q.Resource = "coordination.k8s.io", "leases"
	}
	return q
}

func object(q vectors.Request, label string, number int) map[string]any {
	labels := map[string]any{"vector": label}
	o := map[string]any{
		"apiVersion": strings.TrimPrefix(q.APIGroup+"/"+q.APIVersion, "/"), "kind": cmp.Or(kinds[q.Resource], "Thing"),
		"metadata": map[string]any{"name": fmt.Sprintf("%s-%d", label, number), "labels": labels},
	}
	if q.Resource == "deployments" {
		pod := map[string]any{"containers": []any{map[string]any{"name": "c", "image": "none.invalid/none"}}}
		o["spec"] = map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod},
		}
	}
	if q.Resource == "clusterroles" { // its user does not have this permission, so the API server checks escalate
		o["rules"] = []any{map[string]any{"apiGroups": []string{""}, "resources": []string{"pods"}, "verbs": []string{"get"}}}
	}
	return o
}

// send sends the request of a vector under a script, with an object and a user of its own.
func (p *player) send(ctx context.Context, m *vectors.APIServer, s *script) (*Sent, error) {
	q := sentFor(m)
	p.n++
	s.user, s.object = fmt.Sprintf("%s%d", userPrefix, p.n), fmt.Sprintf("vector-%d", p.n)
	path := pathOf(q)
	for o := 0; hasObjects(m, q) && o < m.Objects; o++ {
		if err := p.make(ctx, path, object(q, s.object, o)); err != nil {
			return nil, err
		}
	}
	path, contentType, body := render(m, q, path, s.object)
	return p.observe(ctx, s, func() (answer, error) { return p.exchange(ctx, s.user, methods[q.Verb], path, contentType, body) })
}

// observe does something while the webhooks follow a script, and returns what was seen.
func (p *player) observe(ctx context.Context, s *script, do func() (answer, error)) (*Sent, error) {
	a, err := p.under(s, do)
	if err != nil {
		return nil, err
	}
	sent := &Sent{Code: a.code, Events: s.events, Message: a.message()}
	sent.Annotations, err = p.audit.take(ctx, a.auditID)
	return sent, err
}

// make creates an object as the admin.
func (p *player) make(ctx context.Context, path string, object any) error {
	a, err := p.exchange(ctx, "", http.MethodPost, path, "", object)
	if err == nil && a.code != http.StatusCreated {
		err = fmt.Errorf("%d: %.200s", a.code, a.body)
	}
	if err != nil {
		return fmt.Errorf("making an object at %s: %w", path, err)
	}
	return nil
}

// pathOf returns the path of the resource of a request.
func pathOf(q vectors.Request) string {
	path := "/apis/" + q.APIGroup + "/" + q.APIVersion
	if q.APIGroup == "" {
		path = "/api/" + q.APIVersion
	}
	if q.Resource != "nodes" && q.Resource != "clusterroles" {
		path += "/namespaces/default"
	}
	return path + "/" + q.Resource
}

// hasObjects reports whether the objects of a request are there before it.
func hasObjects(m *vectors.APIServer, q vectors.Request) bool {
	if q.Verb == "deletecollection" {
		return true
	}
	return m.Compound == nil && slices.Contains([]string{"update", "patch", "delete"}, q.Verb)
}

// render returns the path, the content type and the body of a request.
func render(m *vectors.APIServer, q vectors.Request, path, name string) (at, contentType string, body any) {
	objectPath := path + "/" + name + "-0"
	body = object(q, name, 0)
	switch {
	case q.Verb == "patch" && m.Compound != nil:
		return objectPath + "?fieldManager=authzconf", "application/apply-patch+yaml", body
	case q.Verb == "patch":
		return objectPath, "application/merge-patch+json", body
	case q.Verb == "deletecollection":
		return path + "?labelSelector=vector%3D" + name, "", nil
	case q.Verb == "watch":
		return path + "?watch=true&timeoutSeconds=1", "", body
	case q.Subresource != "":
		return objectPath + "/" + q.Subresource + "?command=true", "", body
	case q.Verb == "delete":
		return objectPath, "", nil
	case q.Verb == "update", q.Verb == "get":
		return objectPath, "", body
	}
	return path, "", body
}

// answer is the answer to a request.
type answer struct {
	code    int
	body    []byte
	auditID string
}

// message returns the message of a Status. It is empty if the answer is not a Status.
func (a answer) message() string {
	var status struct{ Kind, Message string }
	if json.Unmarshal(a.body, &status) != nil || status.Kind != "Status" {
		return ""
	}
	return status.Message
}

// exchange sends a request of a user, or of the admin.
func (p *player) exchange(ctx context.Context, user, method, path, contentType string, body any) (out answer, err error) {
	client, err := rest.HTTPClientFor(p.Admin())
	if user != "" {
		client, err = p.UserClient(scenarios.Requestor{User: user}, nil, func(*http.Request) {})
	}
	if err != nil {
		return out, err
	}
	var raw []byte
	if body != nil {
		if raw, err = json.Marshal(body); err != nil {
			return out, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, p.Host()+path, bytes.NewReader(raw))
	if err != nil {
		return out, err
	}
	req.Header.Set("Content-Type", cmp.Or(contentType, "application/json"))
	resp, err := client.Do(req)
	if err != nil {
		return out, err
	}
	defer func() { _ = resp.Body.Close() }()
	out = answer{code: resp.StatusCode, auditID: resp.Header.Get("Audit-Id")}
	out.body, err = io.ReadAll(resp.Body)
	return out, err
}
