package reference_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/deputy/reference"
)

// backend records what arrives.
func backend(t *testing.T) (*url.URL, *http.Header) {
	t.Helper()
	var got http.Header
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() }))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u, &got
}

func send(h http.Handler, headers http.Header) (code int) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?limit=5", nil)
	for name, values := range headers {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// identity returns the headers that say who somebody is.
func identity(h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		if name == "Authorization" || name == "Cookie" || strings.HasPrefix(name, "Impersonate") || strings.HasPrefix(name, "X-Remote") {
			out[name] = values
		}
	}
	return out
}

func TestDeputy(t *testing.T) {
	tiers := map[string]string{"leads": "admin", "backend": "write", "all": "read"}
	for _, c := range []struct {
		name  string
		tiers map[string]string
		user  reference.User
		sends http.Header
		code  int
		want  http.Header
	}{
		{"the tier of the highest group", tiers, reference.User{Subject: "alice", Groups: []string{"backend", "leads", "other"}}, nil, 200, http.Header{
			"Authorization": {"Bearer own"}, "Impersonate-User": {"alice"}, "Impersonate-Group": {"periscope-tier:admin"},
		}},
		{"no tier", tiers, reference.User{Subject: "alice", Groups: []string{"other"}}, nil, 403, nil},
		{"no subject", tiers, reference.User{Groups: []string{"leads"}}, nil, 403, nil},
		{"a subject of spaces", tiers, reference.User{Subject: " ", Groups: []string{"all"}}, nil, 403, nil},
		{"a subject of the system", tiers, reference.User{Subject: "system:kube-scheduler", Groups: []string{"all"}}, nil, 403, nil},
		{"a client that says who it is", tiers, reference.User{Subject: "alice", Groups: []string{"all"}}, http.Header{
			"Impersonate-User":    {"root"},
			"Impersonate-Group":   {"system:masters"},
			"Impersonate-Uid":     {"1"},
			"Impersonate-Extra-a": {"b"},
			"Impersonate_user":    {"root"},
			"Authorization":       {"Bearer other"},
			"Cookie":              {"session=1"},
			"X-Remote-User":       {"root"},
			"Audit-Id":            {"mine"},
		}, 200, http.Header{"Authorization": {"Bearer own"}, "Impersonate-User": {"alice"}, "Impersonate-Group": {"periscope-tier:read"}}},
		{"a client that has headers dropped", tiers, reference.User{Subject: "alice", Groups: []string{"all"}}, http.Header{"Connection": {"keep-alive, Impersonate-User"}}, 400, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			to, got := backend(t)
			var rows []reference.Row
			h, err := reference.New(reference.Options{
				Target: to, Token: "own", GroupTiers: c.tiers,
				Session: func(*http.Request) (reference.User, bool) { return c.user, true },
				Audit:   func(r reference.Row) error { rows = append(rows, r); return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			code := send(h, c.sends)
			if code != c.code || (len(rows) == 1) != (c.code == 200) {
				t.Fatalf("code %d, rows %+v", code, rows)
			}
			if c.code != 200 {
				if *got != nil {
					t.Errorf("it arrived: %v", *got)
				}
				return
			}
			if diff := cmp.Diff(c.want, identity(*got)); diff != "" {
				t.Error(diff)
			}
			id := got.Get("Audit-Id")
			if id != rows[0].AuditID || id == "mine" || rows[0].Actor != c.user.Subject ||
				rows[0].URI != "/api/v1/pods?limit=5" {
				t.Errorf("audit ID %q, row %+v", id, rows[0])
			}
		})
	}
}

// TestDefaultTier checks that a user who is in no group with a tier gets the default tier, and that nobody else does.
func TestDefaultTier(t *testing.T) {
	to, got := backend(t)
	for groups, want := range map[string]string{"other": "write", "": "write", "all": "read", "leads": "admin", "all leads": "admin"} {
		h, err := reference.New(reference.Options{
			Target: to, Token: "own", GroupTiers: map[string]string{"leads": "admin", "all": "read"}, DefaultTier: "write",
			Session: func(*http.Request) (reference.User, bool) {
				return reference.User{Subject: "alice", Groups: strings.Fields(groups)}, true
			},
			Audit: func(reference.Row) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if code := send(h, nil); code != http.StatusOK || got.Get("Impersonate-Group") != reference.TierPrefix+want {
			t.Errorf("%q: code %d, %q, want %s", groups, code, got.Get("Impersonate-Group"), want)
		}
	}
	_, err := reference.New(reference.Options{DefaultTier: "owner"})
	if err == nil || !strings.Contains(err.Error(), `there is no tier "owner"`) {
		t.Error(err)
	}
}

func TestDeputyRefuses(t *testing.T) {
	to, got := backend(t)
	for name, o := range map[string]reference.Options{
		"without a session": {Session: func(*http.Request) (reference.User, bool) { return reference.User{}, false }},
		"what it cannot note": {
			Session: func(*http.Request) (reference.User, bool) {
				return reference.User{Subject: "alice", Groups: []string{"all"}}, true
			},
			Audit: func(reference.Row) error { return errors.New("full") },
		},
	} {
		o.Target, o.GroupTiers = to, map[string]string{"all": "read"}
		h, err := reference.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if code := send(h, nil); code < 400 || *got != nil {
			t.Errorf("%s: %d, %v", name, code, *got)
		}
	}
}

func TestUnknownTier(t *testing.T) {
	if _, err := reference.New(reference.Options{GroupTiers: map[string]string{"a": "root"}}); err == nil {
		t.Error("it is taken")
	}
}

func TestAgent(t *testing.T) {
	for _, c := range []struct {
		name  string
		sends http.Header
		code  int
		want  http.Header
	}{
		{"passes impersonation on as it is", http.Header{
			"Impersonate-User":                      {"alice"},
			"Impersonate-Group":                     {"a", "b"},
			"Impersonate-Uid":                       {"1"},
			"Impersonate-Extra-Corp.example%2fteam": {"blue", "green"},
		}, 200, http.Header{
			"Authorization":                         {"Bearer agent"},
			"Impersonate-User":                      {"alice"},
			"Impersonate-Group":                     {"a", "b"},
			"Impersonate-Uid":                       {"1"},
			"Impersonate-Extra-Corp.example%2fteam": {"blue", "green"},
		}},
		{"has its own token", http.Header{"Impersonate-User": {"alice"}, "Authorization": {"Bearer other", "Basic x"}, "X-Remote-User": {"root"}, "Cookie": {"a"}}, 200, http.Header{
			"Authorization": {"Bearer agent"}, "Impersonate-User": {"alice"},
		}},
		{"nobody", nil, 403, nil},
		{"an empty user", http.Header{"Impersonate-User": {""}}, 403, nil},
		{"two users", http.Header{"Impersonate-User": {"a", "b"}}, 403, nil},
		{"two UIDs", http.Header{"Impersonate-User": {"a"}, "Impersonate-Uid": {"1", "2"}}, 403, nil},
		{"dropped by Connection", http.Header{"Impersonate-User": {"a"}, "Connection": {"impersonate-user"}}, 403, nil},
		{"an underscore", http.Header{"Impersonate-User": {"a"}, "Impersonate_user": {"b"}}, 403, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			to, got := backend(t)
			code := send(reference.NewAgent(to, nil, func() string { return "agent" }), c.sends)
			if code != c.code || (*got == nil) != (c.code != 200) {
				t.Fatalf("code %d, %v", code, *got)
			}
			if c.code != 200 {
				return
			}
			if diff := cmp.Diff(c.want, identity(*got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAgentPassesManyGroups sends as many groups through the agent as API servers accept. All of them must arrive in
// their order.
func TestAgentPassesManyGroups(t *testing.T) {
	var got http.Header
	target := roundTripper(func(r *http.Request) (*http.Response, error) {
		got = r.Header
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	})
	r := httptest.NewRequest(http.MethodGet, "/version", nil)
	r.Header.Set("Impersonate-User", "alice")
	for i := range 16384 {
		r.Header.Add("Impersonate-Group", fmt.Sprint("group-", i))
	}
	sent := slices.Clone(r.Header["Impersonate-Group"])
	h := reference.NewAgent(&url.URL{Scheme: "https", Host: "target"}, target, func() string { return "agent" })
	h.ServeHTTP(httptest.NewRecorder(), r)
	if !slices.Equal(got["Impersonate-Group"], sent) {
		t.Errorf("%d groups arrived, want %d", len(got["Impersonate-Group"]), len(sent))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (send roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return send(r) }

// FuzzAgent checks that, whatever the headers are, the target sees only the agent's token, and only the user that was
// sent.
func FuzzAgent(f *testing.F) {
	f.Add("Impersonate-User", "alice", "Connection", "close")
	f.Add("impersonate-user", "alice", "Connection", "Impersonate-User")
	f.Add("Impersonate-User", "alice", "Authorization", "Bearer x")
	var got http.Header
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() }))
	f.Cleanup(s.Close)
	to, err := url.Parse(s.URL)
	if err != nil {
		f.Fatal(err)
	}
	h := reference.NewAgent(to, nil, func() string { return "agent" })
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		got = nil
		r := httptest.NewRequest(http.MethodGet, "/version", nil)
		r.Header.Add(name1, value1)
		r.Header.Add(name2, value2)
		sent := slices.Clone(r.Header["Impersonate-User"])
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got == nil {
			return
		}
		if !slices.Equal(got["Authorization"], []string{"Bearer agent"}) {
			t.Errorf("Authorization %q", got["Authorization"])
		}
		if users := got["Impersonate-User"]; len(users) != 1 || len(sent) != 1 || users[0] != strings.Trim(sent[0], " \t") {
			t.Errorf("users %q of %q", users, sent)
		}
	})
}

// TestRowSaysWhatTheRequestIsAbout checks what a row of the audit log says about a request. Its verb and resource must be those of the API
// server.
func TestRowSaysWhatTheRequestIsAbout(t *testing.T) {
	for target, want := range map[string]reference.Row{
		"GET /api/v1/namespaces/shop/pods":                         {Verb: "list", Resource: "pods", Namespace: "shop"},
		"GET /api/v1/namespaces/shop/pods?watch=true":              {Verb: "watch", Resource: "pods", Namespace: "shop"},
		"DELETE /api/v1/namespaces/shop/pods/web":                  {Verb: "delete", Resource: "pods", Namespace: "shop", Name: "web"},
		"DELETE /api/v1/namespaces/shop/pods":                      {Verb: "deletecollection", Resource: "pods", Namespace: "shop"},
		"POST /api/v1/namespaces/shop/pods/web/eviction":           {Verb: "create", Resource: "pods/eviction", Namespace: "shop", Name: "web"},
		"PATCH /apis/apps/v1/namespaces/shop/deployments/web":      {Verb: "patch", APIGroup: "apps", Resource: "deployments", Namespace: "shop", Name: "web"},
		"PATCH /api/v1/nodes/node-1":                               {Verb: "patch", Resource: "nodes", Name: "node-1"},
		"GET /version":                                             {Verb: "get"},
		"GET /api/v1/pods?fieldSelector=metadata.name%3Dweb&x=%zz": {Verb: "list", Resource: "pods", Name: "web"},
	} {
		t.Run(target, func(t *testing.T) {
			to, _ := backend(t)
			var rows []reference.Row
			h, err := reference.New(reference.Options{
				Target: to, Cluster: "east", DefaultTier: "read",
				Session: func(*http.Request) (reference.User, bool) { return reference.User{Subject: "alice"}, true },
				Audit:   func(r reference.Row) error { rows = append(rows, r); return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			method, uri, _ := strings.Cut(target, " ")
			r := httptest.NewRequest(method, "/", nil)
			if r.URL, err = url.ParseRequestURI(uri); err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Request-Id", "17")
			h.ServeHTTP(httptest.NewRecorder(), r)
			want.Actor, want.Cluster, want.Correlation, want.Method, want.URI = "alice", "east", "17", method, uri
			if len(rows) != 1 {
				t.Fatalf("%+v", rows)
			}
			want.AuditID = rows[0].AuditID
			if diff := cmp.Diff(want, rows[0]); diff != "" || want.AuditID == "" {
				t.Error(diff)
			}
		})
	}
}

// TestFront checks that the front of a hub sends a request where its path says, and nothing else.
func TestFront(t *testing.T) {
	hub := reference.NewHub("east", "west")
	h := reference.NewFront(hub, "east", "west")
	for path, want := range map[string]int{
		"/clusters/north/api/v1/pods":              http.StatusNotFound,
		"/clusters/westx/api/v1/pods":              http.StatusNotFound,
		"/clusters/WEST/api/v1/pods":               http.StatusNotFound,
		"/clusters/":                               http.StatusNotFound,
		"/api/v1/pods":                             http.StatusNotFound,
		"/clusters/east/../west/api/v1/pods":       http.StatusBadRequest,
		"/clusters/east/%2e%2e/west/api/v1/pods":   http.StatusBadRequest,
		"/clusters/ea%73t/api/v1/pods":             http.StatusNotFound,
		"/clusters/east%2fapi/v1/pods":             http.StatusNotFound,
		"/clusters/east/api/v1/pods":               http.StatusBadGateway, // no agent is connected
		"/clusters/west/api/v1/namespaces/a%2e%2e": http.StatusBadGateway,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		var err error
		if r.URL, err = url.ParseRequestURI(path); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		cancel()
		if w.Code != want {
			t.Errorf("%s: code %d, want %d", path, w.Code, want)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/clusters/east/api/v1/pods", nil)
	r.Header.Set("Connection", "Impersonate-User")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Errorf("Connection names a header: code %d", w.Code)
	}
}
