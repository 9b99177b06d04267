package certify

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/authzconf/authzconf/certify/reference"
)

// recorded is what an API server of Kubernetes 1.37 posted to a webhook, header and body, without what differs between
// API servers (the port, and the timeout that it was given).
const recorded = "testdata/request.txt"

// wiretap records the requests that a webhook gets.
type wiretap struct {
	mu  sync.Mutex
	got []string
}

var differs = regexp.MustCompile(`(timeout=)[0-9.ms]+|(Host: ).*|(Go-http-client/)[0-9.]+|(HTTP/)[0-9.]+`)

func (w *wiretap) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		text, err := httputil.DumpRequest(req, true)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		w.mu.Lock()
		w.got = append(w.got, strings.ReplaceAll(differs.ReplaceAllString(string(text), "$1$2$3$4…"), "\r\n", "\n"))
		w.mu.Unlock()
		next.ServeHTTP(rw, req)
	})
}

// last returns the newest request, or "" if there is none.
func (w *wiretap) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.got) == 0 {
		return ""
	}
	return w.got[len(w.got)-1]
}

// usual returns a question as an API server asks it. Its user has characters that JSON can write in two ways.
func usual() Question {
	return Question{ID: "usual", Spec: newReview("a<b&c>", "get", "", "pods", "default", "one")}
}

// TestServersSendWhatIsRecorded compares the record with what a real API server asks.
func TestServersSendWhatIsRecorded(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	t.Parallel()
	b, tap := *plan(t, 1), &wiretap{}
	c, err := startCluster(t.Context(), &b, startWebhook(t, tap.before(reference.Handler(b.Policy.Decide))), ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.target.ReloadAuthorizer(t.Context(), c.authorizerAt(chainPlaces()[0])); err != nil {
		t.Fatal(err)
	}
	if seen := c.askReview(t.Context(), usual().Spec); seen.Error != "" {
		t.Fatal(seen.Error)
	}
	if *update {
		if err := os.WriteFile(recorded, []byte(tap.last()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := golden(t); tap.last() != want {
		t.Errorf("an API server sends\n%s\nand recorded is\n%s", tap.last(), want)
	}
}

func golden(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestAsksAsServersDo compares what direct mode sends with what an API server sent, byte for byte. A webhook must not
// be able to behave well only for the tester.
func TestAsksAsServersDo(t *testing.T) {
	b, tap := plan(t, 1), &wiretap{}
	w := startWebhook(t, tap.before(reference.Handler(b.Policy.Decide)))
	v := usual()
	body, err := v.body()
	if err != nil {
		t.Fatal(err)
	}
	poster, err := w.NewPoster()
	if err != nil {
		t.Fatal(err)
	}
	defer poster.Close()
	for name, ask := range map[string]func(){
		"HTTP/2":   func() { askOnce(t, w, v, false) },
		"HTTP/1.1": func() { askOnce(t, w, v, true) },
		"Poster":   func() { poster.Post(t.Context(), append(bytes.Clone(body), '\n')) },
	} {
		ask()
		if got, want := tap.last(), golden(t); got != want {
			t.Errorf("%s: sent is\n%s\nand an API server sends\n%s", name, got, want)
		}
	}
}

func askOnce(t *testing.T, w *Webhook, v Question, http1 bool) {
	t.Helper()
	c, err := w.newClient(http1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if a := c.ask(t.Context(), "test", v); a.Fault != "" {
		t.Error(a.Fault)
	}
}

// TestRequestAddress checks that addresses are made from a kubeconfig's server as client-go makes them.
func TestRequestAddress(t *testing.T) {
	for server, want := range map[string]string{
		"https://a.example":                "https://a.example/?timeout=10s",
		"https://a.example:8443/authorize": "https://a.example:8443/authorize?timeout=10s",
		"https://a.example/authorize/":     "https://a.example/authorize?timeout=10s",
		"https://a.example/authorize?x=y":  "https://a.example/authorize?timeout=10s",
	} {
		w := &Webhook{url: server, Timeout: Timeout}
		address, err := w.address()
		if err != nil {
			t.Fatal(err)
		}
		c := &client{Webhook: w, address: address}
		req, err := c.request(context.Background(), http.MethodPost, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if got := req.URL.String(); got != want {
			t.Errorf("%s becomes %s, expected %s", server, got, want)
		}
		if raw, _ := io.ReadAll(req.Body); string(raw) != "{}" {
			t.Errorf("the body is %q", raw)
		}
	}
}
