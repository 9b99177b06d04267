package today

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
)

// thingsServer is an aggregated API server. It has the filters of k8s.io/apiserver for authentication by front proxy
// and for authorization, which it delegates to kube-apiserver. Behind the filters is a handler that stores nothing.
type thingsServer struct {
	*recorder.Server
	c *Cluster
	// made counts the requests that passed the filters. asked, sent and received count the access reviews that the
	// server sends to kube-apiserver, and the bytes of their bodies.
	made, asked, sent, received atomic.Int64
	authorizer                  authorizer.Authorizer
}

// thingsOptions are the authorization options of an aggregated server.
type thingsOptions struct {
	// first is asked before kube-apiserver. It is nil if there is no such authorizer.
	first authorizer.Authorizer
	// ttl is the time for which answers of kube-apiserver are cached.
	ttl time.Duration
}

// serveThings starts an aggregated server that is not registered yet. It stops when the test ends.
func (c *Cluster) serveThings(t *testing.T, o thingsOptions) *thingsServer {
	t.Helper()
	s := &thingsServer{c: c}
	config := c.UserConfig(scenarios.Requestor{User: "things-server"})
	config.ContentType = runtime.ContentTypeJSON // JSON bodies have a known length
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{s, next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	delegating, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: o.ttl, DenyCacheTTL: o.ttl,
		WebhookRetryBackoff: &wait.Backoff{Duration: time.Millisecond, Steps: 1},
	}.New()
	if err != nil {
		t.Fatal(err)
	}
	if s.authorizer = delegating; o.first != nil {
		s.authorizer, err = union.New(
			union.NamedAuthorizer{AuthorizerName: "own", Authorizer: o.first},
			union.NamedAuthorizer{AuthorizerName: "kube-apiserver", Authorizer: delegating},
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	trusted, err := kubernetes.NewForConfigOrDie(c.Admin()).
		CoreV1().
		ConfigMaps(metav1.NamespaceSystem).
		Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Server, err = server.ServeLoopback(t.Context(), s.filtered(t), []byte(trusted.Data["requestheader-client-ca-file"])); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// filtered returns the handler behind the filters.
func (s *thingsServer) filtered(t *testing.T) http.Handler {
	t.Helper()
	names, err := headerrequest.New(
		[]string{"X-Remote-User"},
		[]string{"X-Remote-Uid"},
		[]string{"X-Remote-Group"},
		[]string{"X-Remote-Extra-"},
	)
	if err != nil {
		t.Fatal(err)
	}
	proxied := authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		if len(req.TLS.VerifiedChains) == 0 { // not the front proxy
			return nil, false, nil
		}
		return names.AuthenticateRequest(req)
	})
	unauthorized := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	h := filters.WithAuthorization(http.HandlerFunc(s.make), s.authorizer, serializer.NewCodecFactory(runtime.NewScheme()))
	h = filters.WithAuthentication(h, proxied, unauthorized, nil, nil)
	return filters.WithRequestInfo(
		h,
		&request.RequestInfoFactory{APIPrefixes: sets.NewString("apis"), GrouplessAPIPrefixes: sets.NewString()},
	)
}

// mustMake answers an authorized request. A request with a signer in its query also needs the verb sign, which only this
// server knows.
func (s *thingsServer) make(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if req.Method != http.MethodPost {
		_, _ = w.Write([]byte(noThings))
		return
	}
	if signer := req.URL.Query().Get("signer"); signer != "" {
		by, _ := request.UserFrom(req.Context())
		d, _, err := s.authorizer.Authorize(
			req.Context(),
			authorizer.AttributesRecord{
				User:            by,
				Verb:            "sign",
				APIGroup:        "things.example",
				APIVersion:      "v1",
				Resource:        "signers",
				Name:            signer,
				ResourceRequest: true,
			},
		)
		if d != authorizer.DecisionAllow {
			http.Error(w, fmt.Sprint(err), http.StatusForbidden)
			return
		}
	}
	s.made.Add(1)
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(`{"kind":"Thing","apiVersion":"things.example/v1"}`))
}

// counting counts the requests that an aggregated server sends to kube-apiserver.
type counting struct {
	s    *thingsServer
	next http.RoundTripper
}

func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	c.s.asked.Add(1)
	c.s.sent.Add(max(req.ContentLength, 0))
	resp, err := c.next.RoundTrip(req)
	if err == nil {
		c.s.received.Add(max(resp.ContentLength, 0))
	}
	return resp, err
}

const thingsOfGroup = "/apis/things.example/v1/namespaces/default/things"

// create sends a request of a user straight to the aggregated server, as the front proxy would.
func (s *thingsServer) create(ctx context.Context, u *User, query string) (int, error) {
	config := s.c.UserConfig(scenarios.Requestor{User: u.Name, Groups: []string{Group}})
	config.Host, config.TLSClientConfig.CAData, config.TLSClientConfig.CAFile = s.URL, s.CA, ""
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+thingsOfGroup+query, strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// says answers the reviews of the API server by user. A user without an answer gets no opinion.
func (c *Cluster) says(status map[string]string) {
	c.answer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review struct{ Spec struct{ User string } }
		if json.NewDecoder(req.Body).Decode(&review) != nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		answer := status[review.Spec.User]
		if answer == "" {
			answer = `{"allowed":false}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":%s}`, answer)
	}))
}

// allowThings lets RBAC allow users to create things, and lets it allow the aggregated server to post reviews.
func (c *Cluster) allowThings(t *testing.T, users ...string) {
	t.Helper()
	const group = "rbac.authorization.k8s.io"
	var subjects []any
	for _, u := range users {
		subjects = append(subjects, map[string]any{"apiGroup": group, "kind": "User", "name": u})
	}
	for _, m := range []Made{
		{rbacPath + "clusterroles", map[string]any{"metadata": map[string]any{"name": "things"}, "rules": []any{map[string]any{"apiGroups": []string{"things.example"}, "resources": []string{"things"}, "verbs": []string{"create"}}}}},
		{rbacPath + "clusterrolebindings", map[string]any{"metadata": map[string]any{"name": "things"}, "roleRef": map[string]any{"apiGroup": group, "kind": "ClusterRole", "name": "things"}, "subjects": subjects}},
		{rbacPath + "clusterrolebindings", map[string]any{
			"metadata": map[string]any{"name": "things-server"},
			"roleRef":  map[string]any{"apiGroup": group, "kind": "ClusterRole", "name": "system:auth-delegator"},
			"subjects": []any{map[string]any{"apiGroup": group, "kind": "User", "name": "things-server"}},
		}},
	} {
		if err := c.Make(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

// waitForThings waits until a server answers a user with a code.
func (s *thingsServer) waitForThings(t *testing.T, user string, code int) {
	t.Helper()
	err := until(t.Context(), fmt.Sprintf("a request of %s is answered %d", user, code), func(ctx context.Context) (bool, error) {
		got, err := s.create(ctx, &User{Name: user}, "")
		return got == code, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// thingsAnswers are the answers of the webhook about the users of things. RBAC alone decides about all other users.
var thingsAnswers = map[string]string{
	"carl": `{"allowed":true}`,
	"dora": `{"allowed":false,"denied":true}`,
	"cora": `{"allowed":false,` + strings.Replace(chain, "%s", "Allow", 1) + `}`,
}

// TestDelegating checks how an aggregated API server of today treats an authorizer that answers with conditions.
// kube-apiserver is its first authorizer, and then its second (section "Computing a concrete decision from a
// conditional authorization chain").
func TestDelegating(t *testing.T) {
	c := startForTest(t, StartOptions{})
	c.says(thingsAnswers)
	c.allowThings(t, "maker", "dora")
	first := c.serveThings(t, thingsOptions{})
	first.waitForThings(t, "maker", http.StatusCreated)
	c.aggregate(t, first.Port)
	t.Run("kube-apiserver decides", func(t *testing.T) { kubeDecides(t, first) })
	t.Run("an own authorizer is first", func(t *testing.T) { ownIsFirst(t, c) })
	t.Run("a custom verb", func(t *testing.T) { customVerb(t, c, first) })
	t.Run("traffic", func(t *testing.T) { countTraffic(t, c) })
	t.Run("kube-apiserver is down", func(t *testing.T) { kubeIsDown(t, c) }) // last, for it stays down
}

// kubeDecides checks that the aggregated server gets one concrete decision of the whole chain, by one review: the chain
// is evaluated eagerly. Conditions do not reach the aggregated server, nor do requests that kube-apiserver refuses.
func kubeDecides(t *testing.T, s *thingsServer) {
	for _, step := range []struct {
		user, why          string
		code               int
		passedOn, straight int64 // the access reviews of the aggregated server
		reviews            int64 // the reviews of the webhook for the request through kube-apiserver
	}{
		{"carl", "allowed by the webhook", http.StatusCreated, 1, 1, 2},
		{"maker", "allowed by RBAC, behind the webhook", http.StatusCreated, 1, 1, 2},
		{"dora", "denied by the webhook, and RBAC behind would allow", http.StatusForbidden, 0, 1, 1},
		{"cora", "allowed on conditions by the webhook, which kube-apiserver does not know", http.StatusForbidden, 0, 1, 1},
		{"eve", "allowed by nobody", http.StatusForbidden, 0, 1, 1},
	} {
		t.Run(step.why, func(t *testing.T) {
			asked, reviewed := s.asked.Load(), s.c.Reviewed.Load()
			r, err := s.c.Send(t.Context(), &User{Name: step.user}, http.MethodPost, thingsOfGroup, "", map[string]any{})
			if n, reviews := s.asked.Load()-asked, s.c.Reviewed.Load()-reviewed; err != nil || r.Code != step.code || n != step.passedOn ||
				reviews != step.reviews {
				t.Errorf(
					"through kube-apiserver: code %d (%s), %v, %d reviews by the server, %d of the webhook; want %d, %d, %d",
					r.Code,
					r.Status(),
					err,
					n,
					reviews,
					step.code,
					step.passedOn,
					step.reviews,
				)
			}
			asked, reviewed = s.asked.Load(), s.c.Reviewed.Load()
			code, err := s.create(t.Context(), &User{Name: step.user}, "")
			if n, reviews := s.asked.Load()-asked, s.c.Reviewed.Load()-reviewed; err != nil || code != step.code || n != step.straight ||
				reviews != 1 {
				t.Errorf(
					"straight to the server: code %d, %v, %d reviews by the server, %d of the webhook; want %d, %d, 1",
					code,
					err,
					n,
					reviews,
					step.code,
					step.straight,
				)
			}
		})
	}
}

// ownIsFirst checks that a server with its own authorizer before kube-apiserver lets requests through that
// kube-apiserver denies, without asking it. That is why the text forbids this order ("any other behavior is unsafe").
func ownIsFirst(t *testing.T, c *Cluster) {
	s := c.serveThings(t, thingsOptions{first: authorizerfactory.NewAlwaysAllowAuthorizer()})
	for _, user := range []string{"dora", "cora", "eve"} {
		code, err := s.create(t.Context(), &User{Name: user}, "")
		if err != nil || code != http.StatusCreated || s.asked.Load() != 0 {
			t.Errorf("%s: code %d, %v, %d reviews; want 201 and none", user, code, err, s.asked.Load())
		}
	}
	behind := c.serveThings(
		t,
		thingsOptions{first: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "", nil
		})},
	)
	code, err := behind.create(t.Context(), &User{Name: "dora"}, "")
	if err != nil || code != http.StatusForbidden || behind.asked.Load() != 1 {
		t.Errorf("an own authorizer without an opinion: code %d, %v, %d reviews; want 403 and 1", code, err, behind.asked.Load())
	}
}

// customVerb checks that a server can ask for a verb that no API server serves, and gets a decision. If the answer has
// conditions, the request is refused.
func customVerb(t *testing.T, c *Cluster, s *thingsServer) {
	hook := &signing{}
	c.answer(hook) // it allows every other request
	defer c.says(thingsAnswers)
	for status, code := range map[string]int{
		`{"allowed":true}`:  http.StatusCreated,
		`{"allowed":false}`: http.StatusForbidden,
		`{"allowed":false,` + strings.Replace(chain, "%s", "Allow", 1) + `}`: http.StatusForbidden,
	} {
		hook.say(status)
		got, err := s.create(t.Context(), &User{Name: "ann"}, "?signer=bert")
		if err != nil || got != code || len(hook.asked) != 1 {
			t.Errorf("%s: code %d, %v, asked %d times; want %d and 1", status, got, err, len(hook.asked), code)
			continue
		}
		if a := hook.asked[0].ResourceAttributes; a.Group != "things.example" || a.Resource != "signers" || a.Name != "bert" {
			t.Errorf("it is asked %s", hook.raw[0])
		}
	}
}

// countTraffic checks that each request costs one review by kube-apiserver, unless the answer is cached. The default
// options of k8s.io/apiserver cache it for 10 s.
func countTraffic(t *testing.T, c *Cluster) {
	const requests = 10
	for ttl, reviews := range map[time.Duration]int64{0: requests, time.Minute: 1} {
		s := c.serveThings(t, thingsOptions{ttl: ttl})
		for range requests {
			if code, err := s.create(t.Context(), &User{Name: "maker"}, ""); err != nil || code != http.StatusCreated {
				t.Fatalf("code %d, %v", code, err)
			}
		}
		t.Logf(
			"answers remembered for %s: %d requests cost %d reviews, of %d bytes that are sent and %d that come back",
			ttl,
			requests,
			s.asked.Load(),
			s.sent.Load(),
			s.received.Load(),
		)
		if s.asked.Load() != reviews || s.sent.Load() < 100*reviews || s.received.Load() < 100*reviews {
			t.Errorf(
				"answers remembered for %s: %d reviews of %d and %d bytes, want %d",
				ttl,
				s.asked.Load(),
				s.sent.Load(),
				s.received.Load(),
				reviews,
			)
		}
	}
}

// kubeIsDown checks that without kube-apiserver an aggregated server authorizes only requests whose answers it has
// cached.
func kubeIsDown(t *testing.T, c *Cluster) {
	remembers, forgets := c.serveThings(t, thingsOptions{ttl: time.Minute}), c.serveThings(t, thingsOptions{})
	if code, err := remembers.create(t.Context(), &User{Name: "maker"}, ""); err != nil || code != http.StatusCreated {
		t.Fatalf("before: code %d, %v", code, err)
	}
	plane, isLocal := c.Plane()
	if !isLocal {
		t.Fatal("it is not a local control plane")
	}
	if err := plane.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		s    *thingsServer
		user string
		code int
	}{
		{"remembered", remembers, "maker", http.StatusCreated},
		{"not remembered of this user", remembers, "carl", http.StatusInternalServerError},
		{"never remembered", forgets, "maker", http.StatusInternalServerError},
	} {
		if code, err := step.s.create(t.Context(), &User{Name: step.user}, ""); err != nil || code != step.code {
			t.Errorf("%s: code %d, %v; want %d", step.name, code, err, step.code)
		}
	}
}

// TestAggregatedOverGrant checks the over-grant of the KEP's alternative in a server that delegates. The server's own
// access review is over-granted as well, so the server enforces nothing.
func TestAggregatedOverGrant(t *testing.T) {
	c := startForTest(t, StartOptions{})
	s, err := reference.NewSnapshot([]vectors.Policy{{ID: "blue", Effect: vectors.Allow, Expression: `request.userInfo.username == "ann" && request.apiGroup == "things.example" && request.verb == "create" && object.data.color == "blue"`}})
	if err != nil {
		t.Fatal(err)
	}
	c.Authorizer.Use(s)
	c.allowThings(t)
	things := c.serveThings(t, thingsOptions{})
	things.waitForThings(t, "ann", http.StatusCreated)
	c.aggregate(t, things.Port)
	made := things.made.Load()
	for user, code := range map[string]int{"ann": http.StatusCreated, "eve": http.StatusForbidden} {
		r, err := c.Send(
			t.Context(),
			&User{Name: user},
			http.MethodPost,
			thingsOfGroup,
			"",
			map[string]any{"data": map[string]any{"color": "red"}},
		)
		if err != nil || r.Code != code {
			t.Errorf("%s: code %d (%s), %v; want %d", user, r.Code, r.Status(), err, code)
		}
	}
	if n := things.made.Load() - made; n != 1 {
		t.Errorf("%d requests reach the server, want that of ann alone", n)
	}
}
