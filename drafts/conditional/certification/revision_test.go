package certification

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// few is a plan of some vectors.
func few(t testing.TB) *Plan {
	t.Helper()
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(v *vectors.Vector) bool { return v.Webhook == nil })
	b, err := NewPlan(all[:12], 1)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRevisions: a webhook that speaks two revisions at once, or one and then another, has one finding that says so.
func TestRevisions(t *testing.T) {
	for name, c := range map[string]struct {
		handler func(*reference.Authorizer) http.Handler
		want    string
	}{
		"both at once": {func(a *reference.Authorizer) http.Handler {
			right := reference.Handler(wire.Merged, a)
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				answer := httptest.NewRecorder()
				right.ServeHTTP(answer, req)
				w.WriteHeader(answer.Code)
				_, _ = w.Write(bytes.Replace(answer.Body.Bytes(), []byte(`"conditionSetChain"`), []byte(`"conditionsChain":[],"conditionSetChain"`), 1))
			})
		}, "several-revisions"},
		"one after the other": {func(a *reference.Authorizer) http.Handler {
			var n atomic.Int64
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				reference.Handler(wire.Revisions()[n.Add(1)/5%2], a).ServeHTTP(w, req)
			})
		}, "another-revision"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newReference(t)
			findings, results := run(t, few(t), c.handler(a), into(a))
			if !slices.ContainsFunc(results, func(r Result) bool { return !r.Granted }) {
				t.Error("every level is granted")
			}
			n := 0
			for _, f := range findings {
				if f.Reason == c.want {
					n++
				} else if f.Reason != "http-status" { // of a second phase in another revision than the first
					t.Errorf("%s: %v", f.Reason, f.Examples)
				}
			}
			if n != 1 {
				t.Errorf("%d findings %s", n, c.want)
			}
		})
	}
}
