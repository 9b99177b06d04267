package certification

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/authzconf/authzconf/certify"
	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	reference "github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// Result is the result of the certification of a level.
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

// served serves a handler by TLS, and returns how its two endpoints are reached.
func served(t testing.TB, h http.Handler) (ends []*certify.Webhook) {
	t.Helper()
	s, err := webhook.Start(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	raw, err := reference.Kubeconfig(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, context := range []string{"", reference.ConditionsContext} {
		w, err := certify.ParseWebhook(raw, context)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, w)
	}
	return ends
}

// run certifies a handler that is served by TLS, together with the handlers of its replicas.
func run(t testing.TB, b *Plan, h http.Handler, load Loader, replicas ...http.Handler) ([]certify.Finding, []Result) {
	t.Helper()
	o := Options{Plan: b, Load: load, Webhooks: served(t, h)}
	for _, replica := range replicas {
		o.Webhooks = append(o.Webhooks, served(t, replica)...)
	}
	done, err := Certify(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d: %d exchanges in %v", b.Seed, len(done.Answers), done.Durations[Step])
	return done.Findings, done.Results
}

// into returns a loader that loads policies into an authorizer of this process.
func into(a *reference.Authorizer) Loader {
	return func(_ context.Context, all []vectors.Policy) error {
		s, err := reference.NewSnapshot(all)
		if err == nil {
			a.Use(s)
		}
		return err
	}
}

func newReference(t testing.TB, w *wire.Revision) *reference.Authorizer {
	t.Helper()
	s, err := reference.NewSnapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	return reference.New(w, s)
}

// TestRememberingIsAccepted checks that an authorizer may remember its answers, if it remembers them with all conditions
// and forgets them when the policies change.
func TestRememberingIsAccepted(t *testing.T) {
	a := newReference(t, wire.Newest())
	var answers sync.Map
	remembering := reference.Handler(a.Wire, phases{Authorizer: a, first: func(s spec) status {
		key, _ := json.Marshal(s)
		if known, isKnown := answers.Load(string(key)); isKnown {
			return known.(status)
		}
		st := a.Review(s)
		answers.Store(string(key), st)
		return st
	}})
	load := func(ctx context.Context, all []vectors.Policy) error {
		answers.Clear()
		return into(a)(ctx, all)
	}
	findings, results := run(t, plan(t, 1), remembering, load)
	for _, f := range findings {
		t.Errorf("a false alarm: %s %v", f.Reason, f.Examples)
	}
	for _, r := range results {
		if !r.Granted {
			t.Errorf("%s is not granted: %+v", r.Level, r)
		}
	}
}

func TestReferenceIsAccepted(t *testing.T) {
	seeds := len(wire.Revisions())
	if sample.IsEverything() {
		seeds = 20
	}
	for seed := range int64(seeds) {
		a := newReference(t, wire.Revisions()[int(seed)%len(wire.Revisions())])
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

// TestNothingIsLeftOut checks that a level is granted only if all exchanges of all its vectors are there, each once and
// in order. Nobody can know whether an authorizer is right if one of them is missing.
func TestNothingIsLeftOut(t *testing.T) {
	b, a := plan(t, 3), newReference(t, wire.Newest())
	done, err := CertifyHandler(t.Context(), reference.Handler(a.Wire, a), Options{Plan: b, Load: into(a), Wire: a.Wire})
	if err != nil {
		t.Fatal(err)
	}
	granted := func(answers []Exchange) (n int) {
		c, err := b.Judge(answers)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range c.Results {
			if r.Granted {
				n++
			}
		}
		return n
	}
	all := granted(done.Answers)
	if all != len(Levels()) {
		t.Fatalf("%d levels are granted to the reference", all)
	}
	variants := map[Variant]int{}
	for i := 0; i < len(done.Answers)-1; i += 41 {
		x := done.Answers[i]
		variants[x.Variant]++
		for what, edited := range map[string][]Exchange{
			"left out": slices.Delete(slices.Clone(done.Answers), i, i+1),
			"twice":    slices.Insert(slices.Clone(done.Answers), i, x),
			"for the next": slices.Replace(slices.Clone(done.Answers), i, i+1, Exchange{
				Vector: x.Vector, Step: x.Step, Variant: done.Answers[i+1].Variant, Wire: x.Wire, HTTP: x.HTTP, Answer: x.Answer,
			}),
		} {
			if x.Variant == done.Answers[i+1].Variant && what == "for the next" {
				continue
			}
			if granted(edited) == all {
				t.Errorf("%s, step %d %q: %s, and all levels are granted", x.Vector, x.Step, x.Variant, what)
			}
		}
	}
	if len(variants) != 4 {
		t.Errorf("only %v were tried", variants)
	}
}
