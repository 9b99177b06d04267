package certify

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/docs"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
)

// all is read once for all tests, and a plan is made once for each seed. Neither is ever changed.
var (
	all   = sync.OnceValues(func() (*scenarios.Set, error) { return scenarios.Load(scenarios.FS, fixtures.FS) })
	books sync.Map
)

func loaded(t testing.TB) *scenarios.Set {
	t.Helper()
	set, err := all()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func plan(t testing.TB, seed int64) *Plan {
	t.Helper()
	if b, ok := books.Load(seed); ok {
		return b.(*Plan)
	}
	b, err := NewPlan(loaded(t), seed)
	if err != nil {
		t.Fatal(err)
	}
	if seed != 1 && seed != 2 {
		b = some(b, 50)
	}
	books.Store(seed, b)
	return b
}

// smallSeed is a seed with a small plan, for tests that are not about the questions. Only the seeds 1 and 2 have large
// plans.
const smallSeed = 5

// startWebhook starts a webhook, and returns how to reach it.
func startWebhook(t testing.TB, h http.Handler) *Webhook {
	t.Helper()
	s, err := reference.Start(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	raw, err := s.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	w, err := ParseWebhook(raw, "")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// inProcess asks a handler without a connection. The decisions are the same, and asking takes a tenth of the time.
func inProcess(t testing.TB, h http.Handler) *Webhook {
	t.Helper()
	w := startWebhook(t, h)
	w.config.WrapTransport = func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, req)
			return rec.Result(), req.Context().Err()
		})
	}
	return w
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// some returns a sample of a plan, unless everything is to be asked.
func some(b *Plan, n int, reasons ...string) *Plan {
	if sample.IsEverything() {
		return b
	}
	return b.Sample(n, reasons...)
}

// checkRecord records the answers of a run, and expects the judge to return the same from the record.
func checkRecord(t *testing.T, b *Plan, run *Run[Answer]) {
	t.Helper()
	log := record.New()
	steps := &stepRecorder[Answer]{log: log}
	if err := steps.record("all", 0, run.Answers); err != nil {
		t.Fatal(err)
	}
	answers, err := readAnswers[Answer](log.View())
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Judge(answers)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, run.Certification) {
		t.Errorf("the record gives\n%+v\nand the run\n%+v", again, run.Certification)
	}
}

// answered returns the answer that the policy gives, as if it had come.
func answered(v Question) Answer {
	a := Answer{Check: plainCheck, Vector: v.ID, HTTP: 200, Protocol: 2}
	a.keepBody(reference.Answer(v.apiVersion(), v.Expect), v)
	return a
}

func certifyAll(t testing.TB, b *Plan, w *Webhook, levels ...CertificationLevel) *Run[Answer] {
	t.Helper()
	run, err := Certify(t.Context(), Options{Webhook: w, Plan: b, Levels: levels})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TestTableOfFaultyAuthorizers compares the table in docs/faulty-authorizers.md with the faulty authorizers that
// TestFaultyAuthorizersAreRejected certifies.
func TestTableOfFaultyAuthorizers(t *testing.T) {
	table := "| faulty authorizer | what is wrong | rejected for |\n|---|---|---|\n"
	for _, r := range faultyAuthorizers() {
		table += fmt.Sprintf("| %s | %s | %s |\n", r.ID, r.Description, r.Finding)
	}
	docs.ComparePart(t, "../docs/faulty-authorizers.md", "kill table", table, *update)
}

var update = flag.Bool("update", false, "write golden files")

func TestReferenceIsAccepted(t *testing.T) {
	t.Parallel()
	seeds := int64(1)
	if sample.IsEverything() {
		seeds = 20
	}
	for seed := int64(1); seed <= seeds; seed++ {
		b := plan(t, seed)
		run := certifyAll(t, b, startWebhook(t, reference.Handler(b.Policy.Decide)))
		for _, f := range run.Findings {
			t.Errorf("seed %d: a false alarm: %s: %s", seed, f.Reason, strings.Join(f.Examples, "\n"))
		}
		for _, r := range run.Results {
			if !r.Granted {
				t.Errorf("seed %d: level %s is not granted: %+v", seed, r.Level, r)
			}
		}
		if seed == 1 {
			t.Logf("%d answers, %v, %+v", len(run.Answers), run.Durations, run.Results)
		}
	}
}

// pickOneOfEach picks one faulty authorizer of every second class: with each commit of the other classes, and in time every
// authorizer of a class.
func pickOneOfEach() (picked []faultyAuthorizer) {
	for i, class := range faultyClasses() {
		if sample.TakesIndex(i, 2) {
			picked = append(picked, class[sample.Turn()/2%len(class)])
		}
	}
	return picked
}

// decidesOnly reports whether only the decisions of an authorizer are wrong. Such an authorizer needs no connections,
// but all questions.
func decidesOnly(r faultyAuthorizer) bool {
	for _, class := range faultyClasses()[:4] {
		if slices.ContainsFunc(class, func(o faultyAuthorizer) bool { return o.ID == r.ID }) {
			return true
		}
	}
	return false
}

// kill certifies a faulty authorizer, one level after the other until the finding comes, and returns what was found
// until then. For most of them it asks only some of the questions, and all about the fault.
func kill(t *testing.T, b *Plan, r faultyAuthorizer) (reasons []string, granted bool) {
	granted = true
	start := startWebhook
	if decidesOnly(r) {
		start = inProcess
	}
	levels := Levels()
	isOfTime := slices.Contains([]string{"drifts", "answers-slowly", "wrong-under-concurrency", "wrong-after-silence"}, r.Finding)
	switch {
	case isOfTime:
		levels = []CertificationLevel{Robust}
	case r.Finding != reasonTransient:
		b = some(b, 11, r.Finding)
	}
	for _, level := range levels {
		run := certifyAll(t, b, start(t, r.Handler(b.Policy)), level)
		for _, f := range run.Findings {
			reasons = append(reasons, f.Reason)
		}
		if granted = granted && slices.Contains(run.Levels, level); slices.Contains(reasons, r.Finding) {
			break
		}
	}
	return reasons, granted
}

func TestFaultyAuthorizersAreRejected(t *testing.T) {
	t.Parallel()
	b := plan(t, 1)
	all := faultyAuthorizers()
	if len(all) < 35 {
		t.Errorf("there are %d faulty authorizers", len(all))
	}
	if !sample.IsEverything() {
		all = pickOneOfEach()
	}
	ids := map[string]bool{}
	for _, r := range all {
		t.Run(r.ID, func(t *testing.T) {
			if ids[r.ID] {
				t.Errorf("there are two faulty authorizers %s", r.ID)
			}
			ids[r.ID] = true
			reasons, granted := kill(t, b, r)
			if !slices.Contains(reasons, r.Finding) {
				t.Errorf("%s is not rejected for %s, but for %v", r.Description, r.Finding, reasons)
			}
			if granted {
				t.Error("every level is granted")
			}
		})
	}
}
