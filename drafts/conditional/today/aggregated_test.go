package today

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/engine/server"
)

// noThings is the discovery document of a group without resources.
const noThings = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"things.example/v1","resources":[]}`

// aggregate has the API server pass requests for the group things.example on to a server, as an APIService says, and
// waits until it does.
func (c *Cluster) aggregate(t *testing.T, port int) {
	t.Helper()
	for _, m := range []Made{
		{"/api/v1/namespaces/default/services", map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "things"},
			"spec": map[string]any{"type": "ExternalName", "externalName": "localhost", "ports": []any{map[string]any{"port": port}}},
		}},
		{"/apis/apiregistration.k8s.io/v1/apiservices", map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.things.example"},
			"spec": map[string]any{
				"group":                 "things.example",
				"version":               "v1",
				"groupPriorityMinimum":  100,
				"versionPriority":       100,
				"insecureSkipTLSVerify": true,
				"service":               map[string]any{"name": "things", "namespace": "default", "port": port},
			},
		}},
	} {
		if err := c.Make(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	err := until(t.Context(), "requests are passed on", func(ctx context.Context) (bool, error) {
		r, err := c.Send(ctx, nil, http.MethodGet, "/apis/things.example/v1", "", nil)
		return r.Code == http.StatusOK, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAggregated checks that kube-apiserver calls no admission for a request that it passes on to an aggregated API
// server. An over-grant there is effective unless that server has the same admission. The KEP sends the conditions to
// that server instead, in the answer to its own access review (section "Computing a concrete decision from a
// conditional authorization chain").
func TestAggregated(t *testing.T) {
	c := startForTest(t, StartOptions{})
	var made atomic.Int64
	behind, err := server.ServeLoopback(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if req.Method == http.MethodPost {
			made.Add(1)
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = w.Write([]byte(noThings))
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = behind.Close() })
	c.aggregate(t, behind.Port)
	s, err := reference.NewSnapshot([]vectors.Policy{{ID: "blue", Effect: vectors.Allow, Expression: `request.userInfo.username == "ann" && request.verb == "create" && object.data.color == "blue"`}})
	if err != nil {
		t.Fatal(err)
	}
	c.Authorizer.Use(s)
	p := newPlayer(c)
	if err := p.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name, user, path string
		code             int
		judged, made     int64
	}{
		{"what the condition refuses, of the server itself", "ann", "/api/v1/namespaces/default/configmaps", http.StatusForbidden, 1, 0},
		{"the same, of an aggregated server", "ann", "/apis/things.example/v1/namespaces/default/things", http.StatusCreated, 0, 1},
		{"what nobody allows", "eve", "/apis/things.example/v1/namespaces/default/things", http.StatusForbidden, 0, 0},
	} {
		t.Run(step.name, func(t *testing.T) {
			judged, before := c.Judged.Load(), made.Load()
			r, err := c.Send(
				t.Context(),
				&User{Name: step.user},
				http.MethodPost,
				step.path,
				"",
				map[string]any{"metadata": map[string]any{"name": "red"}, "data": map[string]any{"color": "red"}},
			)
			if err != nil || r.Code != step.code {
				t.Errorf("code %d (%s), %v; want %d", r.Code, r.Status(), err, step.code)
			}
			if j, m := c.Judged.Load()-judged, made.Load()-before; j != step.judged || m != step.made {
				t.Errorf("judged %d times, made %d; want %d, %d", j, m, step.judged, step.made)
			}
		})
	}
}
