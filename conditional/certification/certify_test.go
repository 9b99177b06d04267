package certification

import (
	"context"
	"net/http"
	"os"
	"testing"

	"github.com/authzconf/authzconf/certify"
	webhook "github.com/authzconf/authzconf/certify/reference"
	reference "github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/conditional/wire"
)

// Result is what became of a level.
type Result = certify.LevelResult

func plan(t testing.TB, seed int64) *Plan {
	t.Helper()
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewPlan(all, seed)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// run certifies a handler by TLS.
func run(t testing.TB, b *Plan, h http.Handler, load Loader) ([]certify.Finding, []Result) {
	t.Helper()
	s, err := webhook.Start(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	raw, err := reference.Kubeconfig(s)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Plan: b, Load: load}
	if o.Authorize, err = certify.ParseWebhook(raw, ""); err != nil {
		t.Fatal(err)
	}
	if o.Conditions, err = certify.ParseWebhook(raw, reference.ConditionsContext); err != nil {
		t.Fatal(err)
	}
	done, err := Certify(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d: %d exchanges in %v", b.Seed, len(done.Answers), done.Took[Step])
	return done.Findings, done.Results
}

// into loads policies into an authorizer of this process.
func into(a *reference.Authorizer) Loader {
	return func(_ context.Context, all []vectors.Policy) error {
		s, err := reference.NewSnapshot(all)
		if err == nil {
			a.Use(s)
		}
		return err
	}
}

func newReference(t testing.TB) *reference.Authorizer {
	t.Helper()
	s, err := reference.NewSnapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	return reference.New(s)
}

func TestReferenceIsAccepted(t *testing.T) {
	seeds := 2
	if os.Getenv(allVariable) != "" {
		seeds = 20
	}
	for seed := range int64(seeds) {
		a := newReference(t)
		a.Wire = wire.Revisions()[seed%2]
		findings, results := run(t, plan(t, seed), reference.Handler(a.Wire, a), into(a))
		for _, f := range findings {
			t.Errorf("seed %d: a false alarm: %s %v", seed, f.Reason, f.Examples)
		}
		for _, r := range results {
			if !r.Granted {
				t.Errorf("seed %d: %s is not granted: %+v", seed, r.Level, r)
			}
		}
		if seed == 0 {
			t.Logf("%+v", results)
		}
	}
}

// allVariable has the tests take 20 seeds.
const allVariable = "AUTHZCONF_FAULTY"
