package certify

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// underLoad runs only level load, at one rate for a second.
func underLoad(t *testing.T, b *Plan, h http.Handler, p99 time.Duration) (*Run[Answer], LevelResult) {
	t.Helper()
	w := startWebhook(t, h)
	w.Timeout = 2 * time.Second
	run, err := Certify(t.Context(), Options{
		Webhook: w, Plan: b, Levels: []CertificationLevel{"none"}, Blame: true,
		LoadOptions: LoadOptions{Rates: []int{200}, Length: time.Second, P99: p99},
	})
	if err != nil {
		t.Fatal(err)
	}
	checkRecord(t, b, run)
	i := slices.IndexFunc(run.Results, func(r LevelResult) bool { return r.Level == Load })
	if i < 0 || len(run.Results[i].Rates) != 1 {
		t.Fatalf("results %+v", run.Results)
	}
	return run, run.Results[i]
}

func TestLoad(t *testing.T) {
	b := plan(t, smallSeed)
	t.Run("right and in time", func(t *testing.T) {
		_, r := underLoad(t, b, reference.Handler(b.Policy.Decide), time.Second)
		t.Logf("%+v", r)
		if !r.Granted && r.Inconclusive == "" ||
			r.Planned != 200 ||
			r.Reviews != 200 ||
			r.Rates[0].Achieved < 100 {
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
		if r.Granted || r.Rates[0].Wrong != 2 || len(run.Findings) != 1 || run.Findings[0].Reason != "wrong-under-load" ||
			run.Findings[0].Blame != verdicts.BlameAuthorizer {
			t.Errorf("%+v %+v", r, run.Findings)
		}
	})
	t.Run("too slow", func(t *testing.T) {
		run, r := underLoad(t, b, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			time.Sleep(400 * time.Millisecond)
			reference.Handler(b.Policy.Decide).ServeHTTP(w, req)
		}), 300*time.Millisecond)
		if r.Inconclusive == "" &&
			(r.Granted || len(run.Findings) != 1 || run.Findings[0].Reason != "slow-under-load") {
			t.Errorf("%+v %+v", r, run.Findings)
		}
		if r.Rates[0].P99 < 400 {
			t.Errorf("a p99 of %.2f ms for a server that takes 400", r.Rates[0].P99)
		}
	})
}

// TestLateHarnessIsInconclusive checks that a rate is inconclusive if the harness itself was late.
func TestLateHarnessIsInconclusive(t *testing.T) {
	b := plan(t, smallSeed)
	answers := []Answer{{Check: "load-10", Stage: &Stage{Rate: 10, Planned: 10, LimitUs: 1000, Micros: 1e6}}}
	findings := func(answers []Answer) []Finding {
		found, err := b.examine(answers)
		if err != nil {
			t.Fatal(err)
		}
		return found.Sorted(nil)
	}
	for i := range 10 {
		a := answered(b.Scenario[i])
		a.Check, a.Micros, a.LateUs = "load-10", 60_000, 59_000
		answers = append(answers, a)
	}
	if found := findings(answers); len(found) > 0 {
		t.Errorf("findings about the harness: %v", found)
	}
	c, err := b.Judge(answers)
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Results[len(c.Results)-1]; r.Granted || r.Inconclusive == "" || r.Rates[0].Late != 10 || r.Rates[0].Achieved != 10 {
		t.Errorf("%+v", r)
	}
	lost := append(
		slices.Clone(answers),
		Answer{Check: "load-10", Vector: b.Scenario[0].ID, Fault: "does-not-answer-in-time", LateUs: 60_000},
	)
	if found := findings(lost); len(found) > 0 {
		t.Errorf("an answer that was late by the harness: %v", found)
	}
	for i := range answers {
		answers[i].LateUs, answers[i].Micros = 0, 500
	}
	answers[0].Stage.Dropped = 1
	if found := findings(answers); len(found) != 1 || found[0].Reason != "does-not-keep-up" {
		t.Errorf("findings %v", found)
	}
}

func TestLoadOptions(t *testing.T) {
	for _, bad := range []LoadOptions{
		{Rates: []int{0}, Length: LoadLength, P99: LoadP99}, {Rates: []int{100_001}, Length: LoadLength, P99: LoadP99},
		{Rates: []int{1}, Length: time.Millisecond, P99: LoadP99}, {Rates: []int{1}, Length: LoadLength},
		{Rates: []int{7, 5, 7}, Length: LoadLength, P99: LoadP99}, {Rates: []int{1}, Length: LoadLength, P99: LoadP99, Volume: -1},
	} {
		if bad.Check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	if err := (LoadOptions{Rates: LoadRates(), Length: LoadLength, P99: LoadP99}).Check(); err != nil {
		t.Error(err)
	}
}

// TestChangesUnderLoadAreFound is about rates that are kept up for long: answers must not become slower, and the memory must not grow.
func TestChangesUnderLoadAreFound(t *testing.T) {
	grows := []int64{10 << 20, 20 << 20, 40 << 20, 80 << 20}
	for name, c := range map[string]struct {
		rate Rate
		want string
	}{
		"steady":           {Rate{TargetRate: 100, Seconds: 600, P99s: []float64{5, 6, 7}, Limit: 100}, ""},
		"slower":           {Rate{TargetRate: 100, Seconds: 600, P99s: []float64{5, 6, 25}, Limit: 100}, slowsDown},
		"grows":            {Rate{TargetRate: 100, Seconds: 600, Memory: grows, Limit: 100}, memoryGrows},
		"grows a little":   {Rate{TargetRate: 100, Seconds: 600, Memory: []int64{1, 10 << 20, 30 << 20}, Limit: 100}, ""},
		"memory not known": {Rate{TargetRate: 100, Seconds: 600, Memory: make([]int64, 11), Limit: 100}, ""},
	} {
		found := c.rate.problems()
		if (len(found) == 0) != (c.want == "") ||
			len(found) > 0 && found[0].reason != c.want {
			t.Errorf("%s: %v", name, found)
		}
	}
	slow := Rate{Seconds: 600, TargetRate: 100, P99s: []float64{5, 25}, Limit: 100}
	for p99, want := range map[float64]verdicts.Blame{6: verdicts.BlameAuthorizer, 30: verdicts.BlameEnvironment} {
		c := controls{rates: map[string]Rate{"load-100": {Seconds: 60, TargetRate: 100, P99: p99, Limit: 100}}}
		if got := c.blameForRate(slow, slowsDown); got != want {
			t.Errorf("the reference takes %.0f ms: %q", p99, got)
		}
	}
}

// TestMinuteAtOneRate keeps up a rate for a minute, with a webhook whose memory grows and that is sometimes wrong.
func TestMinuteAtOneRate(t *testing.T) {
	if !sample.IsEverything() {
		t.Skip("it takes two minutes: make faulty-authorizers")
	}
	b := plan(t, smallSeed)
	var n atomic.Int64
	right := reference.Handler(b.Policy.Decide)
	run, err := Certify(t.Context(), Options{
		Webhook: startWebhook(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/metrics" {
				_, _ = fmt.Fprintf(w, "# HELP x\nprocess_resident_memory_bytes %e\n", float64(n.Load())*1e6)
				return
			}
			if n.Add(1)%100 == 99 {
				_, _ = w.Write(reference.Answer(reference.V1, scenarios.Deny))
				return
			}
			right.ServeHTTP(w, req)
		})), Plan: b, Levels: []CertificationLevel{"none"}, Blame: true,
		LoadOptions: LoadOptions{Rates: []int{20}, Length: steadyFrom, P99: 10 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	checkRecord(t, b, run)
	r := run.Results[len(run.Results)-1]
	if r.Level != Load || r.Granted || len(r.Rates) != 1 || len(r.Rates[0].P99s) != 10 || len(r.Rates[0].Memory) != 11 {
		t.Fatalf("%+v", run.Results)
	}
	reasons := map[string]verdicts.Blame{}
	for _, f := range run.Findings {
		reasons[f.Reason] = f.Blame
	}
	for _, want := range []string{"wrong-under-load", memoryGrows} {
		if reasons[want] != verdicts.BlameAuthorizer {
			t.Errorf("%s is blamed on %q", want, reasons[want])
		}
	}
}

// TestTooLittleLoadIsNotGranted judges runs in which less was asked than the level demands.
func TestTooLittleLoadIsNotGranted(t *testing.T) {
	all := []Answer{
		{Check: volumeCheck, Stage: &Stage{Planned: LoadVolume}},
		{Check: idleCheck, Stage: &Stage{IdleMs: LoadIdle.Milliseconds()}},
	}
	for name, c := range map[string]struct {
		rate    Rate
		answers []Answer
		less    bool
	}{
		"the level":    {Rate{TargetRate: LoadMinimum, Limit: 100}, all, false},
		"a low rate":   {Rate{TargetRate: LoadMinimum - 1, Limit: 100}, all, true},
		"a high limit": {Rate{TargetRate: LoadMinimum, Limit: 101}, all, true},
		"no volume":    {Rate{TargetRate: LoadMinimum, Limit: 100}, all[1:], true},
		"not idle":     {Rate{TargetRate: LoadMinimum, Limit: 100}, all[:1], true},
	} {
		if got := missingLoad([]Rate{c.rate}, c.answers); (got != "") != c.less {
			t.Errorf("%s: %q", name, got)
		}
	}
}
