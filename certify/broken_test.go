package certify

import (
	"bytes"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/scenarios"
)

// broken certifies a webhook, and expects the finding, no granted level, and an end within a minute.
func broken(t *testing.T, b *Plan, w *Webhook, finding string) *Run[Answer] {
	t.Helper()
	began := time.Now()
	w.Timeout = 300 * time.Millisecond
	run := certifyAll(t, b, w)
	if !slices.ContainsFunc(run.Findings, func(f Finding) bool { return f.Reason == finding }) {
		t.Errorf("expected the finding %s, got %+v", finding, run.Findings)
	}
	if slices.Contains(run.Levels, Core) || slices.Contains(run.Levels, Robust) {
		t.Errorf("levels %v are granted", run.Levels)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	return run
}

func TestBrokenServers(t *testing.T) {
	t.Parallel()
	b := plan(t, smallSeed)
	all := map[string]http.HandlerFunc{
		"answers-html": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>login</html>") },
		"redirects":    func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"does-not-answer-in-time": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		},
		"closes-the-connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"wrong-kind": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Pod","status":{}}`)
		},
		"http-status":       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) },
		"answer-unreadable": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") },
		"no-status":         func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
		"answer-too-large": func(w http.ResponseWriter, _ *http.Request) {
			block := bytes.Repeat([]byte(" "), 1<<20)
			for range 4096 {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		},
	}
	for _, finding := range sample.OneIn(3, slices.Sorted(maps.Keys(all))) {
		t.Run(finding, func(t *testing.T) { broken(t, b, startWebhook(t, all[finding]), finding) })
	}
}

// webhookFor reads the kubeconfig of a PKI for a URL.
func webhookFor(t *testing.T, p *recorder.PKI, url string) *Webhook {
	t.Helper()
	raw, err := p.Kubeconfig("authorizer", url)
	if err != nil {
		t.Fatal(err)
	}
	w, err := ParseWebhook(raw, "")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestBrokenConnections(t *testing.T) {
	b := some(plan(t, 1), 2)
	good, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	start := func(t *testing.T, serving, client time.Time) (*recorder.PKI, string) {
		p, err := recorder.NewPKI(serving, client)
		if err != nil {
			t.Fatal(err)
		}
		s, err := reference.Start(reference.Handler(b.Policy.Decide), p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return p, s.URL + "/authorize"
	}
	t.Run("wrong CA", func(t *testing.T) {
		_, url := start(t, good, good)
		other, err := recorder.NewPKI(good, good)
		if err != nil {
			t.Fatal(err)
		}
		broken(t, b, webhookFor(t, other, url), "server-certificate-untrusted")
	})
	t.Run("expired server", func(t *testing.T) {
		p, url := start(t, past, good)
		broken(t, b, webhookFor(t, p, url), "server-certificate-expired")
	})
	t.Run("expired client", func(t *testing.T) {
		p, url := start(t, good, past)
		broken(t, b, webhookFor(t, p, url), "client-certificate-expired")
	})
	listener := func(t *testing.T) net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	p, err := recorder.NewPKI(good, good)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("plain HTTP", func(t *testing.T) {
		l := listener(t)
		go func() { _ = http.Serve(l, http.NotFoundHandler()) }()
		broken(t, b, webhookFor(t, p, "https://"+l.Addr().String()), "plain-http")
	})
	t.Run("hangs at the handshake", func(t *testing.T) {
		l := listener(t)
		broken(t, b, webhookFor(t, p, "https://"+l.Addr().String()), "tls-handshake-hangs")
	})
	t.Run("another certificate half way", func(t *testing.T) {
		other, err := recorder.NewPKI(good, good)
		if err != nil {
			t.Fatal(err)
		}
		var seen atomic.Int64
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if seen.Add(1) == 3000 {
				w.Header().Set("Connection", "close")
			}
			reference.Handler(b.Policy.Decide).ServeHTTP(w, req)
		}))
		s.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if seen.Load() < 3000 {
				return &p.ServerConfig().Certificates[0], nil
			}
			return &other.ServerConfig().Certificates[0], nil
		}}
		s.StartTLS()
		t.Cleanup(s.Close)
		run := broken(t, b, webhookFor(t, p, s.URL), "server-certificate-untrusted")
		if len(run.Findings) != 1 {
			t.Errorf("there are %d findings: %+v", len(run.Findings), run.Findings)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		l := listener(t)
		_ = l.Close()
		broken(t, b, webhookFor(t, p, "https://"+l.Addr().String()), "cannot-connect")
	})
}

// TestAnswersAsServersReadThem judges answers that an API server reads differently from a lenient decoder.
func TestAnswersAsServersReadThem(t *testing.T) {
	v := Question{ID: "v", Reason: "r", Expect: scenarios.Allow, Spec: newReview("u", "get", "", "pods", "n", "p")}
	const head = `{"apiVersion":"authorization.k8s.io/v1",`
	for body, want := range map[string]string{
		head + `"kind":"SubjectAccessReview","status":{"allowed":true}}`:                            "",
		head + `"kind":"SubjectAccessReview","Status":{"allowed":true}}`:                            "no-status",
		head + `"kind":"SubjectAccessReview","status":{"Allowed":true}}`:                            "conditions-not-asked-for",
		head + `"Kind":"SubjectAccessReview","status":{"allowed":true}}`:                            "wrong-kind",
		head + `"kind":"SubjectAccessReview","spec":"x","status":{"allowed":true}}`:                 "answer-unreadable",
		head + `"kind":"SubjectAccessReview","metadata":[],"status":{"allowed":true}}`:              "answer-unreadable",
		head + `"kind":"SubjectAccessReview","status":{"allowed":true,"reason":{}}}`:                "answer-unreadable",
		head + `"kind":"SubjectAccessReview","status":{"allowed":false},"status":{"allowed":true}}`: "",
	} {
		a := Answer{Check: plainCheck, HTTP: 200}
		a.readBody([]byte(body), v)
		if got := judge(v, a); (want == "") != (len(got) == 0) ||
			want != "" && !slices.Contains(got, want) {
			t.Errorf("%s: expected %q, got %v", body, want, got)
		}
	}
	for spec, foreign := range map[string]bool{
		`{"user":"u","groups":[],"extra":{},"uid":"","resourceAttributes":{"verb":"get","resource":"pods","subresource":"","namespace":"n","name":"p"},"nonResourceAttributes":null}`: false,
		`{"user":"u","resourceAttributes":{"verb":"list"}}`: true, `{"user":"w"}`: true, `{"groups":["admin"]}`: true,
	} {
		a := Answer{Check: plainCheck, HTTP: 200}
		a.readBody([]byte(head+`"kind":"SubjectAccessReview","spec":`+spec+`,"status":{"allowed":true}}`), v)
		if a.RepeatsAnotherSpec != foreign {
			t.Errorf("%s: foreign is %t", spec, a.RepeatsAnotherSpec)
		}
	}
	a := Answer{Check: plainCheck, HTTP: 226}
	if a.readBody([]byte(head+`"kind":"SubjectAccessReview","status":{"allowed":true}}`), v); a.Fault != "http-status" {
		t.Errorf("226: %+v", a)
	}
}

func TestBadKubeconfigs(t *testing.T) {
	const head = "apiVersion: v1\nkind: Config\n"
	for text, want := range map[string]string{
		"\x00":                      "cannot be read",
		head:                        "no current-context",
		head + "current-context: x": "which it does not have",
		head + "current-context: x\ncontexts: [{name: x, context: {cluster: one}}]":                                                                   "the cluster",
		head + "current-context: x\ncontexts: [{name: x, context: {cluster: one}}]\nclusters: [{name: one, cluster: {server: 'http://127.0.0.1:1'}}]": "https only",
		head + "current-context: x\ncontexts: [{name: x, context: {cluster: one, user: z}}]\nclusters: [{name: one, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: z, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: 'true', interactiveMode: Never}}}]": "another program",
	} {
		if _, err := ParseWebhook([]byte(text), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: expected %q, got %v", text, want, err)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(
		[]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"x"},"status":{"allowed":true}}`),
		200,
	)
	f.Add([]byte("<html>"), 302)
	f.Add([]byte(`{"status":{"allowed":"true"}}`), 200)
	v := Question{ID: "v", Reason: "r", Expect: "noOpinion", Spec: newReview("u", "get", "", "pods", "n", "p")}
	f.Fuzz(func(t *testing.T, raw []byte, code int) {
		a := Answer{Check: plainCheck, HTTP: code}
		a.readBody(raw, v)
		if reasons := judge(v, a); a.Allowed && len(reasons) == 0 {
			t.Errorf("%q: allowed, and nothing is found", raw)
		}
	})
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Config\ncurrent-context: x\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if w, err := ParseWebhook(raw, ""); err == nil && !strings.HasPrefix(w.url, "https:") {
			t.Errorf("%q: %s is accepted", raw, w.url)
		}
	})
}

// BenchmarkAsk measures how many reviews a second are asked and judged, with a handler that always gives the same
// answer.
func BenchmarkAsk(b *testing.B) {
	plan := plan(b, 1)
	w := startWebhook(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(reference.Answer(reference.V1, "noOpinion"))
	}))
	c, err := w.newClient(false)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.close)
	i := 0
	for b.Loop() {
		v := plan.Scenario[i%len(plan.Scenario)]
		judge(v, c.ask(b.Context(), plainCheck, v))
		i++
	}
	b.ReportMetric(float64(i)/b.Elapsed().Seconds(), "reviews/s")
}
