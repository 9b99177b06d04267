package gate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/scenarios"
)

// Seen is what was seen of one vector on one API server.
type Seen struct {
	Vector string `json:"vector"`
	// Starts says whether an API server so configured starts; nothing else is there if it does not.
	Starts bool `json:"starts"`
	// Review is what a SubjectAccessReview about the request shows, and ReviewEvents who was asked for it.
	Review       *vectors.SubjectAccessReviewStatus `json:"review,omitempty"`
	ReviewEvents []string                           `json:"reviewEvents,omitempty"`
	// Request is the request with all its checks, Alone with a second check that allows it, Behind moreover with an
	// authorizer that allows it behind the chain: a chain that ends with no opinion leaves the decision to that one.
	Request *Sent `json:"request,omitempty"`
	Alone   *Sent `json:"alone,omitempty"`
	Behind  *Sent `json:"behind,omitempty"`
}

// Sent is a request that was sent.
type Sent struct {
	Code   int      `json:"code"`
	Events []string `json:"events"`
	// Gone says which of the objects of a deletecollection are there no more.
	Gone []bool `json:"gone,omitempty"`
}

// admitted says whether the request went through. It may be about an object that is not there.
func (s *Sent) admitted() bool { return s.Code < 300 || s.Code == http.StatusNotFound }

// proceeded says whether it went past the filter.
func (s *Sent) proceeded() bool { return s.admitted() || slices.Contains(s.Events, admission) }

const (
	userPrefix = "authzconf:vector:"
	namespace  = "default"
	settle     = 20 * time.Second
)

// route is how requests for a resource are sent.
type route struct {
	api, kind string
	cluster   bool // it is in no namespace
	spec      map[string]any
}

var pod = map[string]any{"containers": []any{map[string]any{"name": "c", "image": "none.invalid/none"}}}

var routes = map[string]route{
	"/v1/configmaps":      {api: "/api/v1", kind: "ConfigMap"},
	"/v1/pods":            {api: "/api/v1", kind: "Pod", spec: pod},
	"/v1/nodes":           {api: "/api/v1", kind: "Node", cluster: true},
	"apps/v1/deployments": {api: "/apis/apps/v1", kind: "Deployment", spec: map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "none"}}, "template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "none"}}, "spec": pod}}},
	// No update creates a ConfigMap; one of a Lease does.
	"coordination.k8s.io/v1/leases": {api: "/apis/coordination.k8s.io/v1", kind: "Lease"},
}

// route is that of a request, as it is played.
func routeOf(m *vectors.APIServer) (q vectors.Request, r route, known bool) {
	q = m.Request
	if q.Verb == "update" && m.Compound != nil && q.Resource == "configmaps" {
		q.APIGroup, q.Resource = "coordination.k8s.io", "leases"
	}
	r, known = routes[q.APIGroup+"/"+q.APIVersion+"/"+q.Resource]
	if q.Served == "nobody" && !strings.Contains(q.APIGroup+q.APIVersion+q.Resource, "*") {
		r, known = route{api: "/apis/" + q.APIGroup + "/" + q.APIVersion, kind: "Thing"}, true
	}
	_, verb := methods[q.Verb]
	return q, r, known && verb
}

// methods are the HTTP methods of verbs.
var methods = map[string]string{
	"create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete,
	"deletecollection": http.MethodDelete, "get": http.MethodGet, "list": http.MethodGet, "watch": http.MethodGet,
}

// player plays vectors on one API server.
type player struct {
	*server
	said *webhooks
	n    int
}

// send sends a request as the webhooks' script has it.
func (p *player) send(ctx context.Context, m *vectors.APIServer, s *script) (*Sent, error) {
	q, r, _ := routeOf(m)
	p.n++
	s.user, s.object = fmt.Sprintf("%s%d", userPrefix, p.n), fmt.Sprintf("vector-%d", p.n)
	path := r.api
	if !r.cluster {
		path += "/namespaces/" + namespace
	}
	path += "/" + q.Resource
	body := func(object int) map[string]any {
		o := map[string]any{"apiVersion": strings.TrimPrefix(q.APIGroup+"/"+q.APIVersion, "/"), "kind": r.kind,
			"metadata": map[string]any{"name": fmt.Sprintf("%s-%d", s.object, object), "labels": map[string]any{"vector": s.object}}}
		if r.spec != nil {
			o["spec"] = r.spec
		}
		return o
	}
	there := q.Verb == "deletecollection" || m.Compound == nil && slices.Contains([]string{"update", "patch", "delete"}, q.Verb)
	for o := 0; there && o < m.Objects; o++ {
		if err := p.admin(ctx, http.MethodPost, path, body(o), http.StatusCreated); err != nil {
			return nil, err
		}
	}
	target, sent, contentType := path, any(nil), ""
	switch named := path + "/" + s.object + "-0"; q.Verb {
	case "create":
		sent = body(0)
		if q.Subresource != "" {
			target = named + "/" + q.Subresource
		}
	case "update":
		target, sent = named, body(0)
	case "patch":
		target, sent, contentType = named, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "b"}}}, "application/merge-patch+json"
		if m.Compound != nil {
			target, sent, contentType = named+"?fieldManager=authzconf", body(0), "application/apply-patch+yaml"
		}
	case "deletecollection":
		target += "?labelSelector=vector%3D" + s.object
	case "watch":
		target += "?watch=true&timeoutSeconds=1"
	case "get", "delete":
		target = strings.TrimSuffix(named+"/"+q.Subresource, "/")
	}
	if q.Connect {
		target += "?command=true"
	}
	out, err := p.under(s, func() (*Sent, error) { return p.do(ctx, s.user, methods[q.Verb], target, contentType, sent) })
	for o := 0; err == nil && q.Verb == "deletecollection" && o < m.Objects; o++ {
		var left *Sent
		if left, err = p.do(ctx, "", http.MethodGet, fmt.Sprintf("%s/%s-%d", path, s.object, o), "", nil); err == nil {
			out.Gone = append(out.Gone, left.Code == http.StatusNotFound)
		}
	}
	return out, err
}

// under sends something while the webhooks follow a script.
func (p *player) under(s *script, send func() (*Sent, error)) (*Sent, error) {
	s.answered = map[string][]vectors.ConditionSet{}
	p.said.mu.Lock()
	p.said.now = s
	p.said.mu.Unlock()
	out, err := send()
	p.said.mu.Lock()
	defer p.said.mu.Unlock()
	p.said.now = nil
	if out != nil {
		out.Events = slices.Clone(s.events)
	}
	return out, err
}

// play plays a vector.
func (p *player) play(ctx context.Context, v *vectors.Vector) (seen Seen, err error) {
	m := v.APIServer
	seen = Seen{Vector: v.ID, Starts: true}
	if err = p.review(ctx, m, &seen); err != nil || m.Request.Mode == "None" {
		return seen, err
	}
	q, _, _ := routeOf(m)
	as := func(behind vectors.Decision, compound []vectors.Authorizer) *script {
		return &script{verb: q.Verb, chain: m.Chain, compound: compound, behind: behind}
	}
	if seen.Request, err = p.send(ctx, m, as(vectors.NoOpinion, m.Compound)); err != nil {
		return seen, err
	}
	allowed := []vectors.Authorizer{{Name: "a0", FailureMode: vectors.FailDeny, Decision: vectors.Allow}}
	if m.Compound == nil {
		seen.Alone, allowed = seen.Request, nil
	} else if seen.Alone, err = p.send(ctx, m, as(vectors.NoOpinion, allowed)); err != nil {
		return seen, err
	}
	if !seen.Alone.admitted() {
		seen.Behind, err = p.send(ctx, m, as(vectors.Allow, allowed))
	}
	return seen, err
}

// review asks the API server what it would say to the request.
func (p *player) review(ctx context.Context, m *vectors.APIServer, seen *Seen) error {
	q, _, _ := routeOf(m)
	p.n++
	s := &script{user: fmt.Sprintf("%s%d", userPrefix, p.n), verb: q.Verb, chain: m.Chain}
	spec := vectors.SubjectAccessReviewSpec{}
	spec.User = s.user
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: q.Verb, Group: q.APIGroup, Version: q.APIVersion, Resource: q.Resource, Subresource: q.Subresource, Namespace: namespace}
	if q.Mode != "None" {
		spec.ConditionalAuthorization = &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.Mode(q.Mode)}
	}
	raw, err := p.said.wire.AskAccess(spec)
	if err != nil {
		return err
	}
	var answer []byte
	sent, err := p.under(s, func() (out *Sent, err error) {
		out, answer, err = p.exchange(ctx, "", http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", "", raw)
		return out, err
	})
	if err != nil {
		return err
	}
	if sent.Code != http.StatusCreated {
		return fmt.Errorf("a SubjectAccessReview is answered %d: %.200s", sent.Code, answer)
	}
	seen.ReviewEvents = sent.Events
	seen.Review, err = p.said.wire.ReadAccess(answer)
	return err
}

func (p *server) do(ctx context.Context, user, method, path, contentType string, body any) (*Sent, error) {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	out, _, err := p.exchange(ctx, user, method, path, contentType, raw)
	return out, err
}

// exchange sends a request of a user; of the admin if there is none.
func (p *server) exchange(ctx context.Context, user, method, path, contentType string, body []byte) (*Sent, []byte, error) {
	var client *http.Client
	var err error
	if user == "" {
		client, err = rest.HTTPClientFor(p.Admin())
	} else {
		client, err = p.UserClient(scenarios.Requestor{User: user}, nil, func(*http.Request) {})
	}
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, p.Host()+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", cmp.Or(contentType, "application/json"))
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	return &Sent{Code: resp.StatusCode}, answer, err
}

// admin makes something as the admin.
func (p *server) admin(ctx context.Context, method, path string, body any, code int) error {
	out, err := p.do(ctx, "", method, path, "", body)
	if err == nil && out.Code != code {
		err = fmt.Errorf("%s %s is answered %d", method, path, out.Code)
	}
	return err
}

// register has the API server call the mutating webhook for the users of vectors, and waits until it does.
func (p *player) register(ctx context.Context) error {
	err := p.admin(ctx, http.MethodPost, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": map[string]any{"name": "authzconf.dev"},
		"webhooks": []any{map[string]any{
			"name": "vectors.authzconf.dev", "admissionReviewVersions": []string{"v1"}, "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 5,
			"clientConfig":    map[string]any{"url": p.hooks.URL + "/mutate", "caBundle": base64.StdEncoding.EncodeToString(p.hooks.CA)},
			"rules":           []any{map[string]any{"apiGroups": []string{"*"}, "apiVersions": []string{"*"}, "resources": []string{"*/*"}, "operations": []string{"*"}}},
			"matchConditions": []any{map[string]any{"name": "users", "expression": fmt.Sprintf("request.userInfo.username.startsWith('%s')", userPrefix)}},
		}},
	}, http.StatusCreated)
	if err != nil {
		return err
	}
	probe := &vectors.APIServer{Request: vectors.Request{Verb: "create", APIVersion: "v1", Resource: "configmaps"}, Objects: 1}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, settle, true, func(ctx context.Context) (bool, error) {
		sent, err := p.send(ctx, probe, &script{verb: "create", behind: vectors.Allow})
		return err == nil && slices.Contains(sent.Events, admission), err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("the mutating webhook was not called within %s", settle)
	}
	return err
}
