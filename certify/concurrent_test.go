package certify

import (
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/scenarios"
)

// sharedWithout has authorizers that make one decision for reviews which they answer at the same time and which differ
// in one attribute.
func sharedWithout() map[string]func(reference.Decider) reference.Decider {
	type attributes = authorizationv1.ResourceAttributes
	lacks := func(change func(a *attributes)) func(r *review) { return func(r *review) { *r = without(*r, change) } }
	out := map[string]func(reference.Decider) reference.Decider{}
	for name, forget := range map[string]func(r *review){
		"user":        func(r *review) { r.User = "" },
		"groups":      func(r *review) { r.Groups = nil },
		"verb":        func(r *review) { *r = withVerb(*r, "") },
		"api-group":   lacks(func(a *attributes) { a.Group = "" }),
		"resource":    lacks(func(a *attributes) { a.Resource = "" }),
		"subresource": lacks(func(a *attributes) { a.Subresource = "" }),
		"name":        lacks(func(a *attributes) { a.Name = "" }),
		"namespace":   lacks(func(a *attributes) { a.Namespace = "" }),
		"path": func(r *review) {
			if r.NonResourceAttributes != nil {
				r.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: r.NonResourceAttributes.Verb}
			}
		},
	} {
		out[name] = sharing(func(r review) any {
			forget(&r)
			return r
		})
	}
	return out
}

// TestSharedAnswersAreFound checks that authorizers are found which share answers among reviews at the same time and
// ignore an attribute, for every attribute.
func TestSharedAnswersAreFound(t *testing.T) {
	t.Parallel()
	b := some(plan(t, 1), 50)
	all := sharedWithout()
	names := sample.OneIn(3, slices.Sorted(maps.Keys(all)))
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			run := certifyAll(t, b, startWebhook(t, reference.Handler(all[name](b.Policy.Decide))), Robust)
			if !slices.ContainsFunc(run.Findings, func(f Finding) bool { return f.Reason == "wrong-under-concurrency" }) {
				t.Errorf("answers are shared by reviews that differ in %s, and found is %v", name, run.Findings)
			}
		})
	}
}

// TestSharedEqualReviewsAreAccepted checks that an authorizer may share answers among equal reviews.
func TestSharedEqualReviewsAreAccepted(t *testing.T) {
	t.Parallel()
	b := some(plan(t, 1), 50)
	run := certifyAll(t, b, startWebhook(t, reference.Handler(sharing(func(r review) any { return r })(b.Policy.Decide))), Robust)
	if !slices.Contains(run.Levels, Robust) {
		t.Errorf("findings %v, results %+v", run.Findings, run.Results)
	}
}

// TestManyAreInFlight counts the reviews of each formation in the handler.
func TestManyAreInFlight(t *testing.T) {
	t.Parallel()
	b := some(plan(t, 1), 50)
	right := reference.Handler(b.Policy.Decide)
	var under, most atomic.Int64
	note := func(n int64) bool {
		before := most.Load()
		return n <= before || most.CompareAndSwap(before, n)
	}
	run := certifyAll(t, b, startWebhook(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n := under.Add(1)
		defer under.Add(-1)
		for !note(n) {
			runtime.Gosched()
		}
		right.ServeHTTP(w, req)
	})), Robust)
	i := slices.IndexFunc(run.Results, func(r LevelResult) bool { return r.Level == Robust })
	measured := run.Results[i].Concurrency
	if len(measured) != len(b.concurrentChecks()) {
		t.Fatalf("measured %+v", measured)
	}
	for _, c := range measured {
		t.Log(c.Check, c, "at most", c.MaxInFlight)
		if !c.isEnough() {
			t.Errorf("%s: %s", c.Check, c)
		}
	}
	if most.Load() < streamCount {
		t.Errorf("at most %d reviews were in the handler", most.Load())
	}
}

// TestFewAreInFlight asks a server that accepts few reviews at once. The level is inconclusive, and its result says
// why.
func TestFewAreInFlight(t *testing.T) {
	b := plan(t, smallSeed)
	var answers []Answer
	for _, v := range b.concurrentQuestions()[concurrentPrefix+"http1"] {
		a := answered(v)
		a.Check, a.InFlight = concurrentPrefix+"http1", 8
		answers = append(answers, a)
	}
	c, err := b.Judge(answers)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(c.Results, func(r LevelResult) bool { return r.Level == Robust })
	if c.Results[i].Granted || c.Results[i].Inconclusive == "" || c.Cases["robust/at-once-http1"].Inconclusive == "" {
		t.Errorf("%+v %+v", c.Results[i], c.Cases["robust/at-once-http1"])
	}
}

// TestPairsDifferInOneAttribute checks that for each attribute there are pairs which differ only in it and in the decision, granted to
// users, to groups and to both.
func TestPairsDifferInOneAttribute(t *testing.T) {
	b := plan(t, 1)
	count := map[string]map[scenarios.Decision]int{}
	for _, v := range b.All() {
		if v.Paired && v.Form == "" {
			if count[v.Reason] == nil {
				count[v.Reason] = map[scenarios.Decision]int{}
			}
			count[v.Reason][v.Expect]++
		}
	}
	for _, attribute := range []string{"user", "groups", "verb", "api-group", "resource", "subresource", "name", "namespace", "path"} {
		n := count["ignores-"+attribute]
		t.Log(attribute, n)
		if n[scenarios.Allow] < 6 || n[scenarios.Allow] != n[scenarios.NoOpinion] {
			t.Errorf("%s: %v", attribute, n)
		}
	}
}

// TestFewConnectionsAndStreams certifies servers that accept few streams, or one review on a connection.
func TestFewConnectionsAndStreams(t *testing.T) {
	t.Parallel()
	b := some(plan(t, 1), 50)
	right, good := reference.Handler(b.Policy.Decide), time.Now().Add(time.Hour)
	for name, change := range map[string]func(s *httptest.Server){
		"8 streams":     func(s *httptest.Server) { s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 8} },
		"HTTP/1.1 only": func(s *httptest.Server) { s.EnableHTTP2 = false },
	} {
		t.Run(name, func(t *testing.T) {
			p, err := recorder.NewPKI(good, good)
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewUnstartedServer(right)
			s.TLS, s.EnableHTTP2 = p.ServerConfig(), true
			s.Config.ErrorLog = log.New(io.Discard, "", 0) // some connections turn out not to be needed
			change(s)
			s.StartTLS()
			t.Cleanup(s.Close)
			run := certifyAll(t, b, webhookFor(t, p, s.URL+"/authorize"), Robust)
			isTooBusy := slices.ContainsFunc(run.Results, func(r LevelResult) bool { return strings.Contains(r.Inconclusive, "nothing can be said about time") })
			if isTooBusy && len(run.Findings) == 0 {
				t.Skipf("the machine is too busy to say anything about time: %+v", run.Results)
			}
			if !slices.Contains(run.Levels, Robust) {
				t.Errorf("findings %v, results %+v", run.Findings, run.Results)
			}
		})
	}
}
