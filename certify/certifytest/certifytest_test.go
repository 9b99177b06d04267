package certifytest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/certifytest"
	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/scenarios"
)

// right returns an authorizer that decides by whatever policy it is given.
func right() (http.Handler, func(*policy.Policy) error) {
	var held *policy.Policy
	return reference.Handler(func(s authorizationv1.SubjectAccessReviewSpec) scenarios.Decision { return held.Decide(s) }),
		func(p *policy.Policy) error {
			held = p.Index()
			return nil
		}
}

func always(d scenarios.Decision) http.Handler {
	return reference.Handler(func(authorizationv1.SubjectAccessReviewSpec) scenarios.Decision { return d })
}

func nothing(*policy.Policy) error { return nil }

func TestRun(t *testing.T) {
	h, load := right()
	certifytest.Run(t, h, certifytest.Options{Load: load, Sample: 50})
}

func TestRunURL(t *testing.T) {
	h, load := right()
	s := httptest.NewTLSServer(h)
	defer s.Close()
	certifytest.RunURL(t, s.URL+"/authorize", certifytest.Options{Load: load, Sample: 50})
}

// TestRunSafe asks authorizers that allow nothing: one that has no opinion, and one that denies.
func TestRunSafe(t *testing.T) {
	certifytest.RunSafe(t, always(scenarios.NoOpinion))
	certifytest.RunSafe(t, always(scenarios.Deny))
	s := httptest.NewTLSServer(always(scenarios.NoOpinion))
	defer s.Close()
	certifytest.RunSafeURL(t, s.URL+"/authorize")
}

// TestFails checks that an authorizer fails, with a reason, if it allows everything or nothing or cannot be asked.
func TestFails(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(certifytest.T)
		want string
	}{
		"always allow": {func(t certifytest.T) {
			certifytest.Run(t, always(scenarios.Allow), certifytest.Options{Load: nothing, Sample: 200})
		}, "allows-what-is-not-granted (level core)"},
		"never allow": {func(t certifytest.T) {
			certifytest.Run(t, always(scenarios.NoOpinion), certifytest.Options{Load: nothing, Sample: 200})
		}, "has Options.Load given the policy"},
		"no loader": {func(t certifytest.T) { certifytest.Run(t, always(scenarios.Allow), certifytest.Options{}) }, "Options.Load is needed"},
		"safe, always allow": {func(t certifytest.T) { certifytest.RunSafe(t, always(scenarios.Allow)) },
			"anybody with an account can act as every user"},
		"safe, gone":   {func(t certifytest.T) { certifytest.RunSafeURL(t, "http://127.0.0.1:1") }, "http-status"},
		"safe, no URL": {func(t certifytest.T) { certifytest.RunSafeURL(t, "localhost:8443") }, "is not the URL of a webhook"},
		"no URL": {func(t certifytest.T) {
			certifytest.RunURL(t, "localhost:8443", certifytest.Options{Load: nothing, Sample: 200})
		}, "is not the URL of a webhook"},
		"gone": {func(t certifytest.T) {
			certifytest.RunURL(t, "http://127.0.0.1:1", certifytest.Options{Load: nothing, Sample: 200})
		}, "http-status"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &producttest.FailureLog{Ctx: t.Context()}
			c.run(n)
			if !strings.Contains(strings.Join(n.Failed, "\n"), c.want) {
				t.Errorf("%q is not in %q", c.want, n.Failed)
			}
		})
	}
}

func Example() {
	// In your own test, t is its *testing.T and h is your webhook.
	t := &producttest.FailureLog{Ctx: context.Background()}
	h := always(scenarios.Allow)

	certifytest.Run(t, h, certifytest.Options{
		Sample: 200, // leave it out in the end, to ask everything
		Load: func(p *policy.Policy) error {
			_, err := p.RBAC() // or JSON, Cedar, Rego: whatever your authorizer reads
			return err
		},
	})
	fmt.Println(len(t.Failed) > 0)
	// Output: true
}

func ExampleRunSafe() {
	// In your own test, t is its *testing.T and h is your webhook.
	t := &producttest.FailureLog{Ctx: context.Background()}
	h := always(scenarios.Allow)

	certifytest.RunSafe(t, h)
	fmt.Println(len(t.Failed) > 0)
	// Output: true
}
