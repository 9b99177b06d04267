package certify

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// clusterRun certifies a handler over a policy that can be replaced, in the chain
// of a real API server.
func clusterRun(t *testing.T, b *Plan, webhook func(*policy.Holder) http.Handler, change func(*Options)) *Run[Answer] {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	holder := policy.NewHolder(b.Policy)
	o := Options{
		Webhook: startWebhook(t, webhook(holder)),
		Plan:    b,
		Levels:  []CertificationLevel{Core},
		Blame:   true,
		Cluster: &ClusterOptions{
			Load: func(_ context.Context, p *policy.Policy) error { holder.Store(p); return nil },
		},
	}
	if change != nil {
		change(&o)
	}
	run, err := Certify(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v %+v", run.Durations, run.Results[len(Levels()):])
	return run
}

func right(h *policy.Holder) http.Handler { return reference.Handler(h.Decide) }

// few selects the checks of some places.
func few(names ...string) func(*Options) {
	return func(o *Options) {
		o.Cluster.isSelected = func(c clusterCheck) bool { return slices.Contains(names, c.Place.String()) }
	}
}

// TestReferenceInCluster expects that nothing is wrong with the reference authorizer: in one of two places, another one with
// every commit, or by night in all places and with several seeds.
func TestReferenceInCluster(t *testing.T) {
	sample.InTurn(t, 0, 2)
	t.Parallel()
	seeds, change := int64(1), few(sample.Some(1, []string{"middle/deny", "last/no-opinion"})...)
	if sample.IsEverything() {
		seeds, change = 5, nil
	}
	for seed := range seeds {
		b := plan(t, seed)
		run := clusterRun(t, b, right, change)
		for _, f := range run.Findings {
			t.Errorf("seed %d: a false alarm: %s (%s): %s", seed, f.Reason, f.Blame, strings.Join(f.Examples, "\n"))
		}
		for _, r := range run.Results {
			granted := r.Level == Core ||
				r.Level == Revocation ||
				r.Level == InCluster && change == nil
			if granted != r.Granted {
				t.Errorf("seed %d: level %s: granted is %t: %+v", seed, r.Level, r.Granted, r)
			}
		}
		checkRecord(t, b, run)
	}
}

// TestScenariosAskNothingOfRBACAlone checks that a webhook is asked for nothing that only RBAC says, such as the binding by which it
// allows.
func TestScenariosAskNothingOfRBACAlone(t *testing.T) {
	b := *plan(t, 1)
	b.cell = verdicts.Cell{Name: "1.37", Provider: server.Local, Kubernetes: "1.37", Gate: scenarios.GateOn}
	all := b.completeScenarios()
	for _, s := range all {
		for i, st := range s.Steps {
			if text := st.Expect.Message + st.Expect.MessageMatches; strings.Contains(text, "RBAC: ") {
				t.Errorf("%s, step %d: %s", s.ID, i, text)
			}
		}
	}
	if len(all) < 100 {
		t.Errorf("%d scenarios", len(all))
	}
}

// TestHiddenFaults checks that faults are found in a cluster that cannot be seen without one.
func TestHiddenFaults(t *testing.T) {
	if !sample.IsEverything() {
		t.Skip("half a minute for each: make faulty-authorizers")
	}
	for _, r := range hiddenFaults() {
		t.Run(r.ID, func(t *testing.T) {
			b := plan(t, 4)
			run := clusterRun(t, b, r.Handler, few("first/no-opinion"))
			i := slices.IndexFunc(run.Findings, func(f Finding) bool { return f.Reason == r.Finding })
			if i < 0 {
				t.Fatalf("%s is not rejected for %s, but for %+v", r.Description, r.Finding, run.Findings)
			}
			for _, f := range run.Findings {
				if f.Blame != verdicts.BlameAuthorizer {
					t.Errorf("%s is blamed on %q: %q", f.Reason, f.Blame, f.Examples)
				}
				if slices.Contains(Levels(), f.Level) {
					t.Errorf("%s is found without a cluster", f.Reason)
				}
			}
			for _, a := range run.Answers {
				if a.Control && a.ClusterObservation != nil && b.isWrong(a) {
					j, err := b.judgeObservation(a)
					t.Errorf("the reference is wrong about %+v %v", j, err)
				}
			}
			checkRecord(t, b, run)
		})
	}
}

// TestBlameAPIServer turns the gate off, although the checks are for an API server with the gate on.
func TestBlameAPIServer(t *testing.T) {
	t.Parallel() // no window is measured
	b := plan(t, 6)
	run := clusterRun(t, b, right, func(o *Options) {
		o.Cluster.gate, o.Cluster.Load = scenarios.GateOff, nil
		o.Cluster.isSelected = func(c clusterCheck) bool {
			return c.Place.String() == "last/deny"
		}
	})
	if len(run.Findings) == 0 {
		t.Error("nothing is found")
	}
	for _, f := range run.Findings {
		if f.Reason != "impersonation-differs" || f.Blame != verdicts.BlameAPIServer {
			t.Errorf("%s is blamed on %q: %q", f.Reason, f.Blame, f.Examples)
		}
	}
	if last := run.Results[len(run.Results)-1]; last.Level != InCluster {
		t.Errorf("revocation without a hook: %+v", last)
	}
}

// TestBlame provokes each kind of fault that needs no cluster.
func TestBlame(t *testing.T) {
	t.Parallel()
	blames := func(t *testing.T, b *Plan, w *Webhook, want verdicts.Blame) {
		t.Helper()
		run, err := Certify(t.Context(), Options{Webhook: w, Plan: b, Levels: []CertificationLevel{Core}, Blame: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(run.Findings) == 0 {
			t.Error("nothing is found")
		}
		for _, f := range run.Findings {
			if f.Blame != want {
				t.Errorf("%s is blamed on %q, expected %q: %q", f.Reason, f.Blame, want, f.Examples)
			}
		}
		checkRecord(t, b, run)
	}
	t.Run("authorizer", func(t *testing.T) {
		b := plan(t, 7)
		r := faultyAuthorizers()[0]
		blames(t, b, startWebhook(t, r.Handler(b.Policy)), verdicts.BlameAuthorizer)
	})
	t.Run("environment", func(t *testing.T) {
		b := plan(t, 7)
		s, err := reference.Start(reference.Handler(b.Policy.Decide), nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := s.Kubeconfig()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		w, err := ParseWebhook(raw, "")
		if err != nil {
			t.Fatal(err)
		}
		blames(t, b, w, verdicts.BlameEnvironment)
	})
	t.Run("harness", func(t *testing.T) {
		b := *plan(t, 7)
		b.setQuestions(b.Scenario, b.Probes)
		i := slices.IndexFunc(b.Probes, func(v Question) bool { return v.Expect == scenarios.Allow && v.Level == Core })
		b.Probes[i].Expect = scenarios.NoOpinion // the policy grants it
		run, err := Certify(
			t.Context(),
			Options{
				Webhook: startWebhook(t, reference.Handler(b.Policy.Decide)),
				Plan:    &b,
				Levels:  []CertificationLevel{Core},
				Blame:   true,
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		if len(run.Findings) != 1 || run.Findings[0].Blame != verdicts.BlameHarness {
			t.Errorf("findings %+v", run.Findings)
		}
	})
}

// TestHiddenTable compares the table in docs/certify-cluster.md with the faulty authorizers.
func TestHiddenTable(t *testing.T) {
	raw, err := os.ReadFile("../docs/certify-cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range hiddenFaults() {
		if line := "| " + r.ID + " | " + r.Description + " | " + r.Finding + " |\n"; !strings.Contains(string(raw), line) {
			t.Errorf("docs/certify-cluster.md lacks %s", line)
		}
	}
}
