package certify

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/scenarios"
)

// answering makes a handler that answers with a text. ALLOWED in it stands for the decision, and SPEC for what was
// asked.
func answering(b *Plan, code int, text string) http.Handler {
	return raw(func(w http.ResponseWriter, body []byte, version string, d scenarios.Decision) {
		var asked struct {
			Spec json.RawMessage `json:"spec"`
		}
		_ = json.Unmarshal(body, &asked)
		w.WriteHeader(code)
		_, _ = io.WriteString(
			w,
			strings.NewReplacer("VERSION", version, "ALLOWED", fmt.Sprint(d == scenarios.Allow), "SPEC", string(asked.Spec)).Replace(text),
		)
	})(reference.Handler(b.Policy.Decide), b.Policy)
}

// differentlyRight is an authorizer that is right in another way than the reference.
type differentlyRight struct {
	handler http.Handler
	// server changes how the authorizer is served.
	server func(s *httptest.Server)
}

// differentlyRightOnes returns all of them, by name. A finding about one of them is a false alarm.
func differentlyRightOnes(b *Plan) map[string]differentlyRight {
	reviewed := func(status string) string {
		return `{"apiVersion":"VERSION","kind":"SubjectAccessReview","status":` + status + `}`
	}
	right := reference.Handler(b.Policy.Decide)
	var known sync.Map
	none := func(*httptest.Server) {}
	return map[string]differentlyRight{
		"201":       {answering(b, http.StatusCreated, reviewed(`{"allowed":ALLOWED,"denied":false}`)), none},
		"no denied": {answering(b, 200, reviewed(`{"allowed":ALLOWED}`)), none},
		"reasons":   {answering(b, 200, reviewed(`{"allowed":ALLOWED,"reason":"because rule 7 says <so> \u00e9 and so on"}`)), none},
		"echoes": {
			answering(
				b,
				200,
				`{"kind":"SubjectAccessReview","apiVersion":"VERSION","metadata":{"creationTimestamp":null,"managedFields":[]},"spec":SPEC,"status":{"allowed":ALLOWED}}`,
			),
			none,
		},
		"more": {
			answering(b, 200, `{"kind":"SubjectAccessReview","apiVersion":"VERSION","trace":{"id":7},"status":{"allowed":ALLOWED}}`),
			none,
		},
		"a field more": {answering(b, 200, reviewed(`{"allowed":ALLOWED,"latency":"3ms","policy":{"id":7}}`)), none},
		"202":          {answering(b, http.StatusAccepted, reviewed(`{"allowed":ALLOWED}`)), none},
		"on lines": {
			answering(
				b,
				200,
				"\n{\n  \"status\": {\n    \"allowed\": ALLOWED\n  },\n  \"kind\": \"SubjectAccessReview\",\n  \"apiVersion\": \"VERSION\"\n}\n\n",
			),
			none,
		},
		"nulls": {
			answering(
				b,
				200,
				`{"apiVersion":"VERSION","kind":"SubjectAccessReview","metadata":null,"spec":null,"status":{"allowed":ALLOWED,"denied":null,"reason":null,"evaluationError":""}}`,
			),
			none,
		},
		"empty lists": {
			answering(
				b,
				200,
				`{"apiVersion":"VERSION","kind":"SubjectAccessReview","spec":{"groups":[],"extra":{},"user":""},"status":{"allowed":ALLOWED}}`,
			),
			none,
		},
		"status twice": {
			answering(
				b,
				200,
				`{"apiVersion":"VERSION","kind":"SubjectAccessReview","status":{"allowed":ALLOWED},"status":{"allowed":ALLOWED}}`,
			),
			none,
		},
		"managedFields": {
			answering(
				b,
				200,
				`{"apiVersion":"VERSION","kind":"SubjectAccessReview","metadata":{"name":"x","labels":{"a":"b"},"managedFields":[{"manager":"m"}]},"status":{"allowed":ALLOWED}}`,
			),
			none,
		},
		"compressed": {http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			rec := httptest.NewRecorder()
			right.ServeHTTP(rec, req)
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(rec.Code)
			z := gzip.NewWriter(w)
			_, _ = z.Write(rec.Body.Bytes())
			_ = z.Close()
		}), none},
		"closes every 100th": {func() http.Handler {
			var n atomic.Int64
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if n.Add(1)%100 == 0 {
					w.Header().Set("Connection", "close")
				}
				right.ServeHTTP(w, req)
			})
		}(), none},
		"one at a time": {func() http.Handler {
			var mu sync.Mutex
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				right.ServeHTTP(w, req)
			})
		}(), none},
		"TLS 1.3":    {right, func(s *httptest.Server) { s.TLS.MinVersion = tls.VersionTLS13 }},
		"10 streams": {right, func(s *httptest.Server) { s.Config.HTTP2.MaxConcurrentStreams = 10 }},
		"chunked": {http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			rec := httptest.NewRecorder()
			right.ServeHTTP(rec, req)
			w.WriteHeader(rec.Code)
			for _, one := range bytes.SplitAfter(rec.Body.Bytes(), []byte(",")) {
				_, _ = w.Write(one)
				w.(http.Flusher).Flush()
			}
		}), none},
		"a cache": {reference.Handler(func(s spec) scenarios.Decision {
			s.Extra, s.UID = nil, ""
			raw, _ := json.Marshal(s)
			d, _ := known.LoadOrStore(string(raw), b.Policy.Decide(s))
			return d.(scenarios.Decision)
		}), none},
		"a page for GET": {http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodGet {
				_, _ = io.WriteString(w, "<html>Welcome</html>")
				return
			}
			right.ServeHTTP(w, req)
		}), none},
		"HTTP/1.1 only":  {right, func(s *httptest.Server) { s.EnableHTTP2 = false }},
		"TLS 1.2":        {right, func(s *httptest.Server) { s.TLS.MaxVersion = tls.VersionTLS12 }},
		"without mutual": {right, func(s *httptest.Server) { s.TLS.ClientAuth = tls.NoClientCert }},
		"closes idle":    {right, func(s *httptest.Server) { s.Config.IdleTimeout = 200 * time.Millisecond }},
	}
}

// serve starts the authorizer, and returns how to reach it.
func (c differentlyRight) serve(t *testing.T) *Webhook {
	t.Helper()
	good := time.Now().Add(time.Hour)
	p, err := recorder.NewPKI(good, good)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(c.handler)
	s.TLS, s.EnableHTTP2 = p.ServerConfig(), true
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 2000}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // some connections turn out not to be needed
	c.server(s)
	s.StartTLS()
	t.Cleanup(s.Close)
	return webhookFor(t, p, s.URL)
}

// TestDifferentlyRight certifies authorizers that are right in another way than the reference.
func TestDifferentlyRight(t *testing.T) {
	t.Parallel()
	b := some(plan(t, 2), 11)
	all := differentlyRightOnes(b)
	for _, name := range sample.OneIn(3, slices.Sorted(maps.Keys(all))) {
		t.Run(name, func(t *testing.T) {
			levels := []CertificationLevel{Core}
			if slices.Contains([]string{"a page for GET", "closes idle", "closes every 100th", "10 streams", "one at a time"}, name) {
				levels[0] = Robust
			}
			if sample.IsEverything() {
				levels = Levels()
			}
			run := certifyAll(t, b, all[name].serve(t), levels...)
			for _, f := range run.Findings {
				t.Errorf("a false alarm: %s: %s", f.Reason, f.Examples)
			}
			for _, r := range run.Results {
				if slices.Contains(levels, r.Level) && !r.Granted {
					t.Errorf("%s is not granted", r.Level)
				}
			}
		})
	}
}

func TestPolicyThatIsNotLoaded(t *testing.T) {
	w := startWebhook(t, reference.Handler(plan(t, 1).Policy.Decide))
	_, err := Certify(t.Context(), Options{Webhook: w, Plan: plan(t, 2)})
	if err == nil || !strings.Contains(err.Error(), "0 of 100 grants are allowed: is the policy of seed 2 loaded?") {
		t.Errorf("the policy of another seed: %v", err)
	}
}

// TestOneFindingForOneCause certifies an authorizer that overlooks namespaces. Questions about namespaces show that in
// a hundred ways, and it must be one finding.
func TestOneFindingForOneCause(t *testing.T) {
	b := plan(t, 2)
	e := newEngine()
	e.namespace = func(string, string) bool { return true }
	run := certifyAll(t, b, startWebhook(t, reference.Handler(decideBy(e, b.Policy, false))), Core)
	byReason := map[string]Finding{}
	for _, f := range run.Findings {
		byReason[f.Reason] = f
	}
	f, ok := byReason["ignores-namespace"]
	if !ok {
		t.Fatalf("the findings are %+v", run.Findings)
	}
	for _, want := range []string{"expected noOpinion, got allow", "\n  nearest grant: ", "\n  right: another value is another thing"} {
		if !strings.Contains(f.Examples[0], want) {
			t.Errorf("%q is not in the example:\n%s", want, f.Examples[0])
		}
	}
}

// TestAllowingBeforeThePolicyIsFound certifies an authorizer that allows everything until it has its policy.
func TestAllowingBeforeThePolicyIsFound(t *testing.T) {
	b := plan(t, smallSeed)
	var n atomic.Int64
	run := certifyAll(t, b, inProcess(t, reference.Handler(func(s spec) scenarios.Decision {
		if n.Add(1) == 1 {
			return scenarios.Allow
		}
		return b.Policy.Decide(s)
	})), Core)
	if len(run.Findings) != 1 || len(run.Levels) > 0 {
		t.Errorf("levels %v, findings %+v", run.Levels, run.Findings)
	}
}

func TestOneVersionOnly(t *testing.T) {
	b := some(plan(t, 2), 11)
	right := reference.Handler(b.Policy.Decide)
	w := inProcess(t, early(func(w http.ResponseWriter, body []byte) ([]byte, bool) {
		if old := bytes.Contains(body, []byte(reference.V1beta1)); old {
			http.Error(w, "v1 only", http.StatusBadRequest)
			return nil, true
		}
		return body, false
	})(right, nil))
	run, err := Certify(t.Context(), Options{Webhook: w, Plan: b, Levels: []CertificationLevel{NoOvergrant}, V1Only: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Findings) > 0 || !slices.Contains(run.Levels, NoOvergrant) || !slices.Equal(run.ReviewVersions, []string{"v1"}) {
		t.Errorf("levels %v, versions %v, findings %+v", run.Levels, run.ReviewVersions, run.Findings)
	}
	if r := run.Results[0]; r.Verdict() != "not tried" {
		t.Errorf("level %s is %s", r.Level, r.Verdict())
	}
}

func TestCertificateBesideTheKubeconfig(t *testing.T) {
	s, err := reference.Start(reference.Handler(plan(t, 2).Policy.Decide), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	text, err := s.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for _, c := range config.Clusters {
		if err := os.WriteFile(filepath.Join(folder, "ca.crt"), c.CertificateAuthorityData, 0o600); err != nil {
			t.Fatal(err)
		}
		c.CertificateAuthority, c.CertificateAuthorityData = "ca.crt", nil
	}
	path := filepath.Join(folder, "webhook.kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadWebhook(path, ""); err != nil {
		t.Error(err)
	}
}

// TestExplain explains a question that is answered wrongly, and one that is answered correctly.
func TestExplain(t *testing.T) {
	b := plan(t, 2)
	v := b.Scenario[0]
	w := startWebhook(t, reference.Handler(func(spec) scenarios.Decision { return scenarios.Deny }))
	text, ok, err := Explain(t.Context(), w, b, v.ID)
	if err != nil || ok {
		t.Fatalf("%v %v", ok, err)
	}
	for _, want := range []string{v.ID + ": ", "expected ", "nearest grant: ", "curl -X POST --cacert ca.pem --cert client.pem", `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1"`, "HTTP/2 200 in ", `"denied":true`, "wrong: "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	text, ok, err = Explain(t.Context(), startWebhook(t, reference.Handler(b.Policy.Decide)), b, v.ID)
	if err != nil || !ok || !strings.Contains(text, "\nright (level core)") {
		t.Errorf("%v %v\n%s", ok, err, text)
	}
	if _, _, err := Explain(t.Context(), w, b, "nothing"); err == nil {
		t.Error("a question that there is not")
	}
}
