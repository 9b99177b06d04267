package certify

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// underLoad runs level load alone, at one rate for a second.
func underLoad(t *testing.T, b *Plan, h http.Handler, p99 time.Duration) (*Run[Answer], LevelResult) {
	t.Helper()
	w := serve(t, h)
	w.Timeout = 2 * time.Second
	run, err := Certify(t.Context(), Options{
		Webhook: w, Plan: b, Levels: []CertificationLevel{"none"}, Blame: true,
		LoadOptions: LoadOptions{Rates: []int{200}, Length: time.Second, P99: p99},
	})
	if err != nil {
		t.Fatal(err)
	}
	bundle(t, run)
	i := slices.IndexFunc(run.Results, func(r LevelResult) bool { return r.Level == Load })
	if i < 0 || len(run.Results[i].Rates) != 1 {
		t.Fatalf("results %+v", run.Results)
	}
	return run, run.Results[i]
}

func TestLoad(t *testing.T) {
	b := plan(t, 8)
	t.Run("right and in time", func(t *testing.T) {
		_, r := underLoad(t, b, reference.Handler(b.Policy.Decide), time.Second)
		t.Logf("%+v", r)
		if !r.Granted && r.Inconclusive == "" || r.Planned != 200 || r.Reviews != 200 || r.Rates[0].Achieved < 100 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("wrong now and then", func(t *testing.T) {
		var n atomic.Int64
		run, r := underLoad(t, b, reference.Handler(func(s authorizationv1.SubjectAccessReviewSpec) scenarios.Decision {
			if n.Add(1)%100 == 0 {
				return scenarios.Deny
			}
			return b.Policy.Decide(s)
		}), time.Second)
		if r.Granted || r.Rates[0].Wrong != 2 || len(run.Findings) != 1 || run.Findings[0].Reason != "wrong-under-load" || run.Findings[0].Blame != verdicts.BlameAuthorizer {
			t.Errorf("%+v %+v", r, run.Findings)
		}
	})
	t.Run("too slow", func(t *testing.T) {
		run, r := underLoad(t, b, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			time.Sleep(400 * time.Millisecond)
			reference.Handler(b.Policy.Decide).ServeHTTP(w, req)
		}), 300*time.Millisecond)
		if r.Inconclusive == "" && (r.Granted || len(run.Findings) != 1 || run.Findings[0].Reason != "slow-under-load") {
			t.Errorf("%+v %+v", r, run.Findings)
		}
		if r.Rates[0].P99 < 400 {
			t.Errorf("a p99 of %.2f ms for a server that takes 400", r.Rates[0].P99)
		}
	})
}

// TestLate makes a rate inconclusive in which the harness was late itself.
func TestLate(t *testing.T) {
	b := plan(t, 8)
	answers := []Answer{{Check: "load-10", Stage: &Stage{Rate: 10, Planned: 10, LimitUs: 1000, Micros: 1e6}}}
	for i := range 10 {
		a := answered(b.Scenario[i])
		a.Check, a.Micros, a.LateUs = "load-10", 60_000, 59_000
		answers = append(answers, a)
	}
	found, err := b.judgeAll(answers)
	if err != nil || len(found) > 0 {
		t.Errorf("findings about the harness: %v %v", found, err)
	}
	results := b.levels(answers, found)
	if r := results[len(results)-1]; r.Granted || r.Inconclusive == "" || r.Rates[0].Late != 10 || r.Rates[0].Achieved != 10 {
		t.Errorf("%+v", r)
	}
	lost := append(slices.Clone(answers), Answer{Check: "load-10", Vector: b.Scenario[0].ID, Fault: "does-not-answer-in-time", LateUs: 60_000})
	if found, _ := b.judgeAll(lost); len(found) > 0 {
		t.Errorf("an answer that was late by the harness: %v", found)
	}
	for i := range answers {
		answers[i].LateUs, answers[i].Micros = 0, 500
	}
	answers[0].Stage.Dropped = 1
	if found, _ := b.judgeAll(answers); len(found) != 1 || found[0].Reason != "does-not-keep-up" {
		t.Errorf("findings %v", found)
	}
}

func TestLoadOptions(t *testing.T) {
	for _, bad := range []LoadOptions{
		{Rates: []int{0}, Length: LoadLength, P99: LoadP99}, {Rates: []int{100_001}, Length: LoadLength, P99: LoadP99},
		{Rates: []int{1}, Length: time.Millisecond, P99: LoadP99}, {Rates: []int{1}, Length: LoadLength},
	} {
		if bad.Check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	if err := (LoadOptions{Rates: LoadRates(), Length: LoadLength, P99: LoadP99}).Check(); err != nil {
		t.Error(err)
	}
}
