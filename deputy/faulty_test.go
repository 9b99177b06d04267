package deputy

import (
	"cmp"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/authzconf/authzconf/deputy/reference"
)

// proxies returns proxies that are faulty, except for the first. Each is one that somebody may write.
func proxies(t *testing.T, p *plane) map[string]faultyAgent {
	good, err := reference.New(reference.Options{
		Target: p.url, Transport: p.transport, Token: p.token, GroupTiers: map[string]string{"all": "read"},
		Session: func(r *http.Request) (reference.User, bool) {
			name := r.Header.Get(sessionHeader)
			return reference.User{Subject: name, Groups: []string{"all"}}, name != ""
		},
		Audit: func(reference.Row) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	forward := func(h http.Header, who string) {
		h.Set("Authorization", "Bearer "+p.token)
		h.Set("Impersonate-User", who)
	}
	signedIn := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(sessionHeader) == "" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	rewrite := func(change func(in *http.Request, out http.Header)) http.Handler {
		return &httputil.ReverseProxy{Transport: p.transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(p.url)
			change(r.In, r.Out.Header)
		}}
	}
	clean := func(h http.Header) {
		for name := range h {
			if strings.HasPrefix(name, "Impersonate-") {
				delete(h, name)
			}
		}
	}
	last, connections, ports, cache := "", sync.Map{}, sync.Map{}, sync.Map{}
	var mu sync.Mutex
	own := rewrite(func(_ *http.Request, out http.Header) {
		clean(out)
		out.Set("Authorization", "Bearer "+p.token)
	})
	named := func(name func(string) string) http.Handler {
		return signedIn(rewrite(func(in *http.Request, out http.Header) {
			clean(out)
			forward(out, name(in.Header.Get(sessionHeader)))
		}))
	}
	unless := func(is func(*http.Request) bool, otherwise http.Handler) http.Handler {
		good := named(strings.Clone)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if is(r) {
				otherwise.ServeHTTP(w, r)
				return
			}
			good.ServeHTTP(w, r)
		})
	}
	all := map[string]faultyAgent{
		"folds names": {named(strings.ToLower), `a name in upper case: it was made as "alice@corp", not as "ALICE@CORP"`},
		"reads names as a form": {named(func(s string) string {
			s, _ = url.QueryUnescape(s)
			return s
		}), `a name with a plus sign: it was made as "alice@corp x", not as "alice@corp+x"`},
		"trims names": {named(strings.TrimSpace), `a name with a space that is not ASCII: it was made as "alice@corp", not as`},
		"splits names": {
			named(func(s string) string { return strings.Split(s, ",")[0] }),
			`a name with a comma: it was made as "alice@corp", not as "alice@corp, x"`,
		},
		"strips domains": {
			named(func(s string) string { return s[strings.LastIndex(s, "\\")+1:] }),
			`a name with a domain before it: it was made as "alice@corp", not as "CORP\\alice@corp"`,
		},
		"cuts names": {
			named(func(s string) string { return s[:min(len(s), 64)] }),
			`a name that is long: it was made as "alice@corp-0123`,
		},
		"reads names as a list": {
			named(func(s string) string { return strings.Split(s, ";")[0] }),
			`a name with a semicolon: it was made as "alice@corp", not as "alice@corp;x"`,
		},
		"believes streams": {unless(func(r *http.Request) bool {
			return r.Header.Get("Upgrade") != "" && r.Header.Get("X-Forwarded-User") != ""
		}, rewrite(func(in *http.Request, out http.Header) {
			clean(out)
			forward(out, in.Header.Get("X-Forwarded-User"))
		})), `a terminal by WebSocket: headers of other proxies: it was made as "bob@corp", not as "alice@corp"`},
		"reads the query": {
			unless(func(r *http.Request) bool { return r.URL.Query().Has(sessionHeader) }, rewrite(func(in *http.Request, out http.Header) {
				clean(out)
				forward(out, in.URL.Query().Get(sessionHeader))
			})),
			"the header that names people in the query: it has no identity, and was made as",
		},
		"takes underscores for hyphens": {
			unless(func(r *http.Request) bool { return r.Header["X_session"] != nil }, rewrite(func(in *http.Request, out http.Header) {
				clean(out)
				forward(out, in.Header["X_session"][0])
			})),
			"the header that names people with underscores: it has no identity, and was made as",
		},
		"adds trailers": {
			unless(func(r *http.Request) bool { return r.Trailer != nil }, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body, r.Header[sessionHeader] = http.NoBody, r.Trailer[sessionHeader]
				named(strings.Clone).ServeHTTP(w, r)
			})),
			"the header that names people as a trailer: it has no identity, and was made as",
		},
		"lets probes in": {
			unless(func(r *http.Request) bool { return strings.HasPrefix(r.UserAgent(), "kube-probe/") }, own),
			"nobody by a program that is often let in: it was made as the proxy itself",
		},
		"lets inside in": {
			unless(func(r *http.Request) bool { return r.Header.Get("X-Real-Ip") == "127.0.0.1" }, own),
			"nobody who is inside: it was made as the proxy itself",
		},
		"asks what it is": {
			unless(func(r *http.Request) bool { return r.Header.Get("X-Original-Uri") == "/healthz" }, own),
			"nobody who says what is asked for: it was made as the proxy itself",
		},
		"streams what is large": {unless(func(r *http.Request) bool { return r.ContentLength > 1<<16 }, signedIn(own)),
			"a large create: of one's own: it was made as the proxy itself"},
		"keeps the schema": {
			unless(func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/openapi") }, signedIn(own)),
			"the schema: of one's own: it was made as the proxy itself",
		},
		"follows redirects": {
			unless(func(r *http.Request) bool { return r.URL.Path == "/debug/pprof" }, signedIn(follows(p))),
			"a redirect: of one's own: it was made as the proxy itself",
		},
		"takes prefixes off": {
			unless(
				func(r *http.Request) bool { return r.Header.Get("Grpc-Metadata-Impersonate-Uid") != "" },
				rewrite(func(in *http.Request, out http.Header) {
					forward(out, in.Header.Get(sessionHeader))
					out.Set("Impersonate-Uid", in.Header.Get("Grpc-Metadata-Impersonate-Uid"))
				}),
			),
			`names that become impersonation when something is taken away: it was made as "alice@corp" with the UID "1"`,
		},
		"remembers ports": {unless(func(r *http.Request) bool {
			if r.Header.Get(sessionHeader) != "" {
				ports.Store(r.RemoteAddr, r.Header.Get(sessionHeader))
			}
			_, known := ports.Load(r.RemoteAddr)
			return r.Close && known && r.Header.Get(sessionHeader) == ""
		}, rewrite(func(in *http.Request, out http.Header) {
			who, _ := ports.Load(in.RemoteAddr)
			clean(out)
			forward(out, who.(string))
		})), "nobody from the port of somebody who is gone: it has no identity, and was made as"},
		"lets upgrades through": {unless(func(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }, own),
			"a WebSocket: no identity: it was made as the proxy itself"},
		"public folders": {unless(func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/static/") }, own),
			"a parent behind paths that are often public: it was made as the proxy itself"},
		"public files": {unless(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, ".css") }, own),
			"a path that ends like a public one: it was made as the proxy itself"},
		"knows methods": {unless(func(r *http.Request) bool { return strings.ToUpper(r.Method) != r.Method }, own),
			"a method in lower case and no identity: it was made as the proxy itself"},
		"forgets groups of streams": {signedIn(rewrite(func(in *http.Request, out http.Header) {
			clean(out)
			forward(out, in.Header.Get(sessionHeader))
			if in.Header.Get("Upgrade") == "" {
				out.Set("Impersonate-Group", "dev")
			}
		})), `a WebSocket: of one's own: it was made as "alice@corp" without the group "dev"`},
		"gives old answers": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next := named(strings.Clone)
			if r.Method != http.MethodGet || r.URL.Query().Has("watch") || r.Header.Get("Upgrade") != "" {
				next.ServeHTTP(w, r)
				return
			}
			kept, ok := cache.Load(r.URL.String())
			if !ok {
				got := httptest.NewRecorder()
				next.ServeHTTP(got, r)
				if kept = got; got.Code != http.StatusUnauthorized {
					cache.Store(r.URL.String(), got)
				}
			}
			maps.Copy(w.Header(), kept.(*httptest.ResponseRecorder).Header())
			w.WriteHeader(kept.(*httptest.ResponseRecorder).Code)
			_, _ = w.Write(kept.(*httptest.ResponseRecorder).Body.Bytes())
		}), "two people, one object: request 2 was answered with"},
		"reference": {good, ""},
		"names nobody": {rewrite(func(in *http.Request, out http.Header) {
			clean(out)
			forward(out, cmp.Or(in.Header.Get(sessionHeader), "system:anonymous"))
		}), ""},
		"Director": {
			signedIn(
				&httputil.ReverseProxy{Transport: p.transport, Director: func(r *http.Request) { //nolint:staticcheck // many still use it
					r.URL.Scheme, r.URL.Host = p.url.Scheme, p.url.Host
					clean(r.Header)
					forward(r.Header, r.Header.Get(sessionHeader))
				}},
			),
			"Connection names the user: it was made as the proxy itself",
		},
		"leaves groups": {
			signedIn(rewrite(func(in *http.Request, out http.Header) { forward(out, in.Header.Get(sessionHeader)) })),
			`system:masters: it was made as "alice@corp" with the group "system:masters"`,
		},
		"adds the user": {signedIn(rewrite(func(in *http.Request, out http.Header) {
			out.Set("Authorization", "Bearer "+p.token)
			out.Add("Impersonate-User", in.Header.Get(sessionHeader))
		})), `another user behind one's own: it was made as "bob@corp", not as "alice@corp"`},
		"lets everybody in": {rewrite(func(in *http.Request, out http.Header) {
			clean(out)
			out.Set("Authorization", "Bearer "+p.token)
			if who := in.Header.Get(sessionHeader); who != "" {
				out.Set("Impersonate-User", who)
			}
		}), "no identity at all: it was made as the proxy itself"},
		"impersonates nobody": {signedIn(rewrite(func(_ *http.Request, out http.Header) {
			clean(out)
			out.Set("Authorization", "Bearer "+p.token)
		})), "control: it was made as the proxy itself"},
		"believes another header": {rewrite(func(in *http.Request, out http.Header) {
			clean(out)
			who := in.Header.Get(sessionHeader)
			if by := in.Header.Get("X-Forwarded-User"); by != "" {
				who = by
			}
			if who == "" {
				who = "system:anonymous"
			}
			forward(out, who)
		}), `headers of other proxies: it was made as "bob@corp", not as "alice@corp"`},
		"remembers connections": {rewrite(func(in *http.Request, out http.Header) {
			clean(out)
			who := in.Header.Get(sessionHeader)
			if kept, ok := connections.Load(in.RemoteAddr); ok && who == "" {
				who = kept.(string)
			}
			connections.Store(in.RemoteAddr, who)
			forward(out, who)
			if who == "" {
				out.Del("Authorization")
			}
		}), "nobody behind somebody: it has no identity, and was made as"},
		"mixes people up": {signedIn(rewrite(func(in *http.Request, out http.Header) {
			clean(out)
			mu.Lock()
			defer mu.Unlock()
			who := in.Header.Get(sessionHeader)
			if last != "" {
				who, last = last, ""
			} else {
				last = who
			}
			forward(out, who)
		})), `it was made as "alice@corp", not as "bob@corp"`},
		"makes everybody a master": {signedIn(rewrite(func(in *http.Request, out http.Header) {
			clean(out)
			forward(out, in.Header.Get(sessionHeader))
			out.Set("Impersonate-Group", "system:masters")
		})), `control: it was made as "alice@corp" with the group "system:masters"`},
		"cares about reads": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			signedIn(rewrite(func(in *http.Request, out http.Header) {
				if in.Method == http.MethodGet {
					clean(out)
				}
				forward(out, cmp.Or(out.Get("Impersonate-User"), in.Header.Get(sessionHeader)))
			})).ServeHTTP(w, r)
		}), `patch: another user: it was made as "bob@corp", not as "alice@corp"`},
		"cares about namespaces": {signedIn(rewrite(func(in *http.Request, out http.Header) {
			clean(out)
			out.Set("Authorization", "Bearer "+p.token)
			if strings.Contains(in.URL.Path, "/namespaces/") {
				out.Set("Impersonate-User", in.Header.Get(sessionHeader))
			}
		})), "nodes: of one's own: it was made as the proxy itself"},
		"public paths": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next := rewrite(func(in *http.Request, out http.Header) {
				clean(out)
				forward(out, in.Header.Get(sessionHeader))
			})
			if !strings.HasPrefix(r.URL.Path, "/api") {
				next = rewrite(func(_ *http.Request, out http.Header) { out.Set("Authorization", "Bearer "+p.token) })
			} else {
				next = signedIn(next)
			}
			next.ServeHTTP(w, r)
		}), "a double slash and no identity: it was made as the proxy itself"},
		"remembers programs": {unless(func(r *http.Request) bool {
			if r.Header.Get(sessionHeader) != "" {
				ports.Store(r.UserAgent(), r.Header.Get(sessionHeader))
			}
			_, known := ports.Load(r.UserAgent())
			return known && r.Header.Get(sessionHeader) == ""
		}, rewrite(func(in *http.Request, out http.Header) {
			who, _ := ports.Load(in.UserAgent())
			clean(out)
			forward(out, who.(string))
		})), "nobody by the program of somebody: it has no identity, and was made as"},
		"folds paths": {
			unless(func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/API") }, signedIn(own)),
			"a path in upper case: it was made as the proxy itself",
		},
	}
	asAsked := signedIn(rewrite(func(in *http.Request, out http.Header) {
		forward(out, cmp.Or(out.Get("Impersonate-User"), in.Header.Get(sessionHeader)))
	}))
	for way, is := range seldom {
		all["does as it is asked: "+way] = faultyAgent{
			unless(is, asAsked),
			way + `: another user: it was made as "bob@corp", not as "alice@corp"`,
		}
	}
	return all
}

// seldom are unusual kinds of requests that code may treat specially, by the names of attacks.yaml.
var seldom = map[string]func(r *http.Request) bool{
	"a watch by its path":      func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/v1/watch/") },
	"the root":                 func(r *http.Request) bool { return r.URL.Path == "/" },
	"OPTIONS":                  func(r *http.Request) bool { return r.Method == http.MethodOptions },
	"a table":                  func(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "as=Table") },
	"protobuf":                 func(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "protobuf") },
	"a create in chunks":       func(r *http.Request) bool { return r.ContentLength < 0 },
	"a scale":                  func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/scale") },
	"a token":                  func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/token") },
	"a review of somebody":     func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") },
	"a token's review":         func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/tokenreviews") },
	"metrics of nodes":         func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/apis/metrics.k8s.io/") },
	"a resource of somebody's": func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/apis/example.com/") },
	"a browser":                func(r *http.Request) bool { return strings.HasPrefix(r.UserAgent(), "Mozilla/") },
	"kubectl":                  func(r *http.Request) bool { return strings.HasPrefix(r.UserAgent(), "kubectl/") },
	"debugging":                func(r *http.Request) bool { return r.URL.Query().Get("debug") == "true" },
	"a name of the host":       func(r *http.Request) bool { return r.Host == "localhost" },
	"a long query":             func(r *http.Request) bool { return len(r.URL.RawQuery) > 1<<12 },
	"a long header":            func(r *http.Request) bool { return len(r.Header.Get("X-Long")) > 1<<12 },
}

// follows makes requests in the name of the person, and follows redirects in its own name.
func follows(p *plane) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, p.url.String()+r.URL.RequestURI(), nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, name := range []string{"User-Agent", "Audit-Id"} {
			req.Header.Set(name, r.Header.Get(name))
		}
		req.Header.Set("Authorization", "Bearer "+p.token)
		req.Header.Set("Impersonate-User", r.Header.Get(sessionHeader))
		client := http.Client{Transport: p.transport, CheckRedirect: func(next *http.Request, _ []*http.Request) error {
			next.Header.Del("Impersonate-User")
			return nil
		}}
		resp, err := client.Do(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	})
}
