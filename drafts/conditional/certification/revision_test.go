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

// renamed is the reference in a revision, with a field of its answers renamed.
func renamed(w *wire.Revision, from, to string) func(a map[string]*reference.Authorizer) http.Handler {
	return func(a map[string]*reference.Authorizer) http.Handler {
		right := reference.Handler(w, a[w.Name])
		return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			answer := httptest.NewRecorder()
			right.ServeHTTP(answer, req)
			rw.WriteHeader(answer.Code)
			_, _ = rw.Write(bytes.ReplaceAll(answer.Body.Bytes(), []byte(from), []byte(to)))
		})
	}
}

// TestRevisions asks webhooks that speak two revisions at once, that change the revision, or that speak an unknown one.
// Each has one finding that says so, and is asked nothing else.
func TestRevisions(t *testing.T) {
	for name, c := range map[string]struct {
		handler func(map[string]*reference.Authorizer) http.Handler
		want    string
	}{
		"two at once": {renamed(wire.Merged, `"conditionSetChain"`, `"conditionsChain":[],"conditionSetChain"`), "several-revisions"},
		"one after the other": {func(a map[string]*reference.Authorizer) http.Handler {
			var n atomic.Int64
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				now := []*wire.Revision{wire.Seed, wire.Merged}[n.Add(1)/5%2]
				reference.Handler(now, a[now.Name]).ServeHTTP(w, req)
			})
		}, "another-revision"},
		"a form of March 2026":    {renamed(wire.Merged, `"conditionSetChain"`, `"conditionalDecisionChain"`), "unknown-form"},
		"a field of its own":      {renamed(wire.Upstream, `"conditionalDecision"`, `"conditions"`), "unknown-form"},
		"a webhook of today":      {today, "no-conditions"},
		"an endpoint that is not": {func(map[string]*reference.Authorizer) http.Handler { return http.NotFoundHandler() }, "http-status"},
	} {
		t.Run(name, func(t *testing.T) {
			references, all := map[string]*reference.Authorizer{}, []*reference.Authorizer{}
			for _, w := range wire.Revisions() {
				references[w.Name] = newReference(t, w)
				all = append(all, references[w.Name])
			}
			findings, results := run(t, few(t), c.handler(references), intoAll(all...))
			if slices.ContainsFunc(results, func(r Result) bool { return r.Granted }) {
				t.Error("a level is granted")
			}
			n := 0
			for _, f := range findings {
				if f.Reason == c.want {
					n++
				} else if f.Reason != "http-status" { // an answer of the second phase is in another revision than the first
					t.Errorf("%s: %v", f.Reason, f.Examples)
				}
			}
			if n != 1 {
				t.Errorf("%d findings %s", n, c.want)
			}
		})
	}
}

// today answers as a webhook does that does not know conditions.
func today(a map[string]*reference.Authorizer) http.Handler {
	right := a[wire.Seed.Name]
	return reference.Handler(wire.Seed, phases{Authorizer: right, first: func(s spec) status {
		s.ConditionalAuthorization = nil
		return right.Review(s)
	}})
}
