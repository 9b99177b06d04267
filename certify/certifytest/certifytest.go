// Package certifytest asks an authorizer webhook, in its author's own tests, what certification asks: several thousand
// SubjectAccessReviews about a policy that the authorizer has been given. Every wrong answer fails the test.
package certifytest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// T is the part of *testing.T that this package needs.
type T = producttest.T

// Options say what an authorizer is asked.
type Options struct {
	// Load gives the authorizer its policy before anything is asked. The policy can be had as JSON of its own, as RBAC,
	// Cedar and more (Policy.Export). Its names are made from the seed.
	Load func(*policy.Policy) error
	// Seed makes the names. If it is left out, it is 1, so that failures repeat.
	Seed int64
	// Sample asks one in so many reviews. If it is left out, it is 1: all of some 47,000 reviews are asked, which takes
	// half a minute.
	Sample int
	// Levels are the levels that are tried. If they are left out, they are core and no-overgrant; robust (size,
	// concurrency and drift) takes longer.
	Levels []certify.CertificationLevel
}

// Run asks a webhook that answers SubjectAccessReviews on any path. It serves the handler by TLS, as API servers
// demand.
func Run(t T, h http.Handler, o Options) {
	t.Helper()
	run, err := ask(t.Context(), h, o)
	var notLoaded *certify.NotLoadedError
	switch {
	case errors.As(err, &notLoaded):
		t.Fatalf(
			"certifytest: nothing is allowed of %d grants that were asked about: has Options.Load given the policy to the authorizer?",
			notLoaded.Grants,
		)
		return
	case err != nil:
		t.Fatalf("certifytest: %v", err)
		return
	}
	report(t, run)
}

// report fails the test for every finding, and only logs advice.
func report(t T, run *certify.Run[certify.Answer]) {
	t.Helper()
	for _, f := range run.Findings {
		say := t.Errorf
		if f.Advice {
			say = t.Logf
		}
		say("%s (level %s), seen %d times:\n  %s", f.Reason, f.Level, f.Count, strings.Join(f.Examples, "\n  "))
	}
	t.Logf("certifytest: seed %d, %d reviews", run.Seed, len(run.Answers))
}

// ask gives the authorizer its policy, and asks the questions of the plan.
func ask(ctx context.Context, h http.Handler, o Options) (*certify.Run[certify.Answer], error) {
	if o.Load == nil {
		return nil, errors.New("Options.Load is needed: it gives the authorizer the policy that is asked about")
	}
	if o.Levels == nil {
		o.Levels = []certify.CertificationLevel{certify.Core, certify.NoOvergrant}
	}
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		return nil, err
	}
	plan, err := certify.NewPlan(set, cmp.Or(o.Seed, 1))
	if err != nil {
		return nil, err
	}
	if err := o.Load(plan.Policy); err != nil {
		return nil, err
	}
	if o.Sample > 1 {
		plan = plan.Sample(o.Sample)
	}
	return certifyHandler(ctx, h, certify.Options{Plan: plan, Levels: o.Levels})
}

// certifyHandler serves a handler by TLS while it is asked.
func certifyHandler(ctx context.Context, h http.Handler, o certify.Options) (*certify.Run[certify.Answer], error) {
	webhook, stop, err := certify.Serve(h)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stop() }()
	o.Webhook, o.Blame = webhook, true
	return certify.Certify(ctx, o)
}

// RunURL does the same as Run for a webhook that is served already. It does not check the webhook's certificate,
// because the answers are what is tested.
func RunURL(t T, address string, o Options) {
	t.Helper()
	h, err := At(address)
	if err != nil {
		t.Fatalf("certifytest: %v", err)
		return
	}
	Run(t, h, o)
}

// RunSafe asks a webhook what nobody was granted: all verbs of impersonation, verbs that nobody knows, selectors,
// unknown fields, and requests that are not reviews, by users whose names were made for this. It needs no policy, and
// takes about a second. The test fails if anything is allowed or breaks the webhook; advice is only logged. It is level
// safe of authzconf certify safe, with seed 1, so that failures repeat. Versions are the versions of
// SubjectAccessReview that the webhook serves, v1 or v1beta1; if they are left out, both are asked.
func RunSafe(t T, h http.Handler, versions ...string) {
	t.Helper()
	run, err := askSafe(t.Context(), h, versions)
	if err != nil {
		t.Fatalf("certifytest: %v", err)
		return
	}
	report(t, run)
}

// askSafe asks the questions of level safe.
func askSafe(ctx context.Context, h http.Handler, versions []string) (*certify.Run[certify.Answer], error) {
	plan, err := certify.NewSafePlan(1)
	if err != nil {
		return nil, err
	}
	if plan, err = plan.ForVersions(versions...); err != nil {
		return nil, err
	}
	return certifyHandler(ctx, h, certify.Options{Plan: plan})
}

// RunSafeURL does the same as RunSafe for a webhook that is served already. It does not check the webhook's
// certificate.
func RunSafeURL(t T, address string, versions ...string) {
	t.Helper()
	h, err := At(address)
	if err != nil {
		t.Fatalf("certifytest: %v", err)
		return
	}
	RunSafe(t, h, versions...)
}

// At returns a handler that passes requests for any path to a URL.
func At(address string) (http.Handler, error) {
	to, err := url.Parse(address)
	if err != nil || to.Host == "" || !slices.Contains([]string{"http", "https"}, to.Scheme) {
		return nil, errors.New(address + " is not the URL of a webhook (expected http:// or https://, a host, and the path where reviews are posted)")
	}
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL, r.Out.Host = to, to.Host },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 64}, // the certificate is the author's, in a test
		ErrorLog:  log.New(io.Discard, "", 0),                                                                       // it is a finding if the webhook cannot be reached
	}, nil
}
