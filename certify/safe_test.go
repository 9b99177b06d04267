package certify

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/docs"
	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// safePlan returns the plan of level safe for a seed.
func safePlan(t testing.TB, seed int64) *Plan {
	t.Helper()
	b, err := NewSafePlan(seed)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// safeSeed is not the seed of any policy that an authorizer in these tests has.
const safeSeed = 70

// expectSafe asks an authorizer for level safe. It expects that the level is granted, with no findings but advice.
func expectSafe(t *testing.T, seed int64, w *Webhook) *Run[Answer] {
	t.Helper()
	run := certifyAll(t, safePlan(t, seed), w)
	for _, f := range run.Findings {
		if !f.Advice {
			t.Errorf("a false alarm: %s: %s", f.Reason, strings.Join(f.Examples, "\n"))
		}
	}
	if !slices.Equal(run.Levels, []CertificationLevel{Safe}) {
		t.Errorf("level safe is not granted: %+v", run.Results)
	}
	return run
}

// TestSafeAcceptsTheReference asks right authorizers: one with the policy of another seed, and one without a policy.
func TestSafeAcceptsTheReference(t *testing.T) {
	b := plan(t, 1)
	for name, decide := range map[string]reference.Decider{
		"with a policy": b.Policy.Decide,
		"never allows":  func(spec) scenarios.Decision { return scenarios.NoOpinion },
	} {
		t.Run(name, func(t *testing.T) {
			run := expectSafe(t, safeSeed, startWebhook(t, reference.Handler(decide)))
			checkRecord(t, safePlan(t, safeSeed), run)
			if len(run.Findings) > 0 {
				t.Errorf("there is advice: %+v", run.Findings)
			}
		})
	}
}

// TestSafeAcceptsSeeds uses the names of many seeds, because an authorizer may decide by the letters of a name.
func TestSafeAcceptsSeeds(t *testing.T) {
	b := plan(t, 1)
	for seed := range int64(20) {
		if wrong := firstWrong(safePlan(t, seed), b.Policy.Decide); wrong != nil {
			t.Errorf("seed %d: %s", seed, wrong)
		}
	}
}

// TestSafeDependsOnTheSeed expects that another seed gives other names, and the same seed the same names.
func TestSafeDependsOnTheSeed(t *testing.T) {
	one, again, other := safePlan(t, 1), safePlan(t, 1), safePlan(t, 2)
	if one.Suite() != again.Suite() || one.Suite() == other.Suite() {
		t.Errorf("suites %s, %s, %s", one.Suite(), again.Suite(), other.Suite())
	}
	if a, b := one.All()[0].Spec.User, other.All()[0].Spec.User; a == b {
		t.Errorf("both seeds have the user %s", a)
	}
}

// TestSafeDenialsAreAdvice asks an authorizer that denies what it does not allow. That is safe, and the report mentions it.
func TestSafeDenialsAreAdvice(t *testing.T) {
	run := expectSafe(t, safeSeed, startWebhook(t, reference.Handler(func(spec) scenarios.Decision { return scenarios.Deny })))
	if len(run.Findings) != 1 || run.Findings[0].Reason != "denies-what-is-not-granted" || !run.Findings[0].Advice {
		t.Errorf("the findings are %+v", run.Findings)
	}
	checkRecord(t, safePlan(t, safeSeed), run)
}

// oneVersion is an authorizer that allows nothing, and refuses reviews of all versions but one.
func oneVersion(version string) http.Handler {
	return early(func(w http.ResponseWriter, body []byte) ([]byte, bool) {
		isOther := bytes.Contains(body, []byte("authorization.k8s.io")) && !bytes.Contains(body, []byte(`"`+version+`"`))
		if isOther {
			http.Error(w, "another version", http.StatusBadRequest)
		}
		return body, isOther
	})(reference.Handler(func(spec) scenarios.Decision { return scenarios.NoOpinion }), nil)
}

// TestSafeForOneVersion asks authorizers that serve only one version of the review.
func TestSafeForOneVersion(t *testing.T) {
	for version, api := range map[string]string{"v1": reference.V1, "v1beta1": reference.V1beta1} {
		b, err := safePlan(t, safeSeed).ForVersions(version)
		if err != nil {
			t.Fatal(err)
		}
		w := startWebhook(t, oneVersion(api))
		run := certifyAll(t, b, w)
		if len(run.Findings) > 0 || !slices.Equal(run.Levels, []CertificationLevel{Safe}) ||
			!slices.Equal(run.ReviewVersions, []string{version}) {
			t.Errorf("%s: levels %v, versions %v, findings %+v", version, run.Levels, run.ReviewVersions, run.Findings)
		}
		if run := certifyAll(t, safePlan(t, safeSeed), w); len(run.Levels) > 0 {
			t.Errorf("an authorizer that serves %s alone is granted both", version)
		}
	}
	if _, err := safePlan(t, safeSeed).ForVersions("v2"); err == nil {
		t.Error("v2 is a version")
	}
}

// TestSafeWithoutKind judges answers without apiVersion and kind. They are safe, because an API server reads them.
func TestSafeWithoutKind(t *testing.T) {
	const allowed, not = `{"status":{"allowed":true}}`, `{"status":{"allowed":false}}`
	answer := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, text)
		})
	}
	run := expectSafe(t, safeSeed, startWebhook(t, answer(not)))
	if len(run.Findings) != 1 || run.Findings[0].Reason != "answer-without-kind" {
		t.Errorf("the findings are %+v", run.Findings)
	}
	for text, want := range map[string]authorizer.Decision{allowed: authorizer.DecisionAllow, not: authorizer.DecisionNoOpinion} {
		for _, version := range []string{"v1", "v1beta1"} {
			asked, err := webhook.New(
				startWebhook(t, answer(text)).config,
				version,
				0,
				0,
				wait.Backoff{Steps: 1},
				authorizer.DecisionDeny,
				nil,
				"webhook",
				noMetrics{},
				authorizationcel.NewDefaultCompiler(),
			)
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := asked.Authorize(
				t.Context(),
				authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "u"}, Verb: "get", Path: "/"},
			)
			if err != nil || got != want {
				t.Errorf("an API server that asks in %s takes %s for %v, %v", version, text, got, err)
			}
		}
	}
}

// noMetrics replaces the metrics of an API server, so that a test needs no registry.
type noMetrics struct {
	metrics.NoopRequestMetrics
	metrics.NoopWebhookMetrics
	authorizationcel.NoopMatcherMetrics
}

// TestSafeDifferentlyRight asks authorizers that are right in another way than the reference.
func TestSafeDifferentlyRight(t *testing.T) {
	t.Parallel()
	all := differentlyRightOnes(plan(t, 2))
	for _, name := range sample.OneIn(3, slices.Sorted(maps.Keys(all))) {
		t.Run(name, func(t *testing.T) { expectSafe(t, safeSeed, all[name].serve(t)) })
	}
}

// TestSafeAsksWhatServersAsk expects that level safe asks about every verb of impersonation that API servers sent in
// the scenarios, with each kind of identity that they sent with it.
func TestSafeAsksWhatServersAsk(t *testing.T) {
	asked := map[string]bool{}
	for _, q := range safePlan(t, 1).All() {
		asked[impersonationShape(q.Spec)] = true
	}
	for _, q := range plan(t, 1).Scenario {
		shape := impersonationShape(q.Spec)
		if shape != "" && !asked[shape] {
			t.Errorf("%s is not asked, and a scenario has it: %s", shape, q.ID)
		}
	}
}

// impersonationShape returns the verb of a review of impersonation, and the resource of the identity that it asks for.
// It returns "" for other reviews.
func impersonationShape(s spec) string {
	verb := verbOf(s)
	switch {
	case !strings.HasPrefix(verb, "impersonate"):
		return ""
	case strings.HasPrefix(verb, "impersonate-on:"):
		return verb
	}
	return fmt.Sprintf("%s %s/%s", verb, s.ResourceAttributes.Group, s.ResourceAttributes.Resource)
}

// safeScore is how many authorizers of a kind there are, and how many level safe rejects.
type safeScore struct {
	kind           string
	made, rejected int
}

// generatedStep is a prime. The generated authorizers come class by class, and one in so many of them is asked for the
// table. All of them would take half an hour, and level safe is not expected to find them.
const generatedStep = 29

// safeScores asks all faulty authorizers of these tests for level safe. They have the policy of a certification. A
// question about what nobody was granted can show only by chance what they do wrong with it.
func safeScores(t *testing.T, b, safe *Plan) (scores []safeScore, byHand []string) {
	count := func(kind string, all map[string]reference.Decider) {
		s := safeScore{kind: kind, made: len(all)}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if firstWrong(safe, all[name]) != nil {
				s.rejected++
			}
		}
		t.Logf("%+v", s)
		scores = append(scores, s)
	}
	right, grants := b.Policy.Decide, b.Policy.Grants
	hand := safeScore{kind: "written by hand, in the table below"}
	for _, r := range faultyAuthorizers() {
		hand.made++
		run := certifyAll(t, safe, startWebhook(t, r.Handler(b.Policy)))
		isWrong := slices.ContainsFunc(run.Findings, func(f Finding) bool { return !f.Advice })
		if isWrong {
			hand.rejected++
			byHand = append(byHand, r.ID)
		}
	}
	t.Logf("%+v %v", hand, byHand)
	scores = append(scores, hand)
	count("written as a vendor's developer might", written(grants))
	others := map[string]reference.Decider{}
	for _, list := range []map[string]faultyDecider{outsiders, strangers, forOne()} {
		for name, mistaken := range list {
			others[name] = mistaken(right, grants)
		}
	}
	count("written later, by others", others)
	adverse := map[string]reference.Decider{}
	for name, mistaken := range adversaries {
		adverse[name] = mistaken(right, grants)
	}
	count("adversaries", adverse)
	made := safeScore{kind: fmt.Sprintf("generated, one in %d", generatedStep)}
	for i, g := range generatedAuthorizers(b.Policy) {
		if i%generatedStep != 0 {
			continue
		}
		made.made++
		if firstWrong(safe, g.wrong(right)) != nil {
			made.rejected++
		}
	}
	return append(scores, made), byHand
}

// TestSafeTable compares the table of docs/faulty-authorizers.md with what level safe rejects.
func TestSafeTable(t *testing.T) {
	if !sample.IsEverything() {
		t.Skip("all faulty authorizers take a minute: make faulty-authorizers")
	}
	b := plan(t, 1)
	scores, byHand := safeScores(t, b, safePlan(t, safeSeed))
	made, found := trySafeFaults(t)
	scores = slices.Concat([]safeScore{{"without a policy, wrong in what level safe asks about", made, found}}, scores)
	table := "| faulty authorizers | tried | rejected | share |\n|---|--:|--:|--:|\n"
	for _, s := range scores {
		table += fmt.Sprintf("| %s | %d | %d | %s |\n", s.kind, s.made, s.rejected, share(s.rejected, s.made))
	}
	table += "\nThose written by hand that it rejects: " + strings.Join(byHand, ", ") + ".\n"
	t.Log(table)
	docs.ComparePart(t, "../docs/faulty-authorizers.md", "faulty authorizers of level safe", table, *update)
}

// TestSafeFaultyTable compares the table of faulty authorizers without a policy with those that are tried.
func TestSafeFaultyTable(t *testing.T) {
	table := "| faulty authorizer | what is wrong | rejected for |\n|---|---|---|\n"
	for _, r := range safeFaults() {
		table += fmt.Sprintf("| %s | %s | %s |\n", r.ID, r.Description, r.Finding)
	}
	docs.ComparePart(t, "../docs/faulty-authorizers.md", "kill table of level safe", table, *update)
}

// TestSafeFindsItsFaults expects that every faulty authorizer without a policy is rejected for its own reason, and that
// there is one for every reason of the questions.
func TestSafeFindsItsFaults(t *testing.T) {
	sample.InTurn(t, 1, 2)
	trySafeFaults(t)
	rejectedFor := map[string]bool{}
	for _, r := range safeFaults() {
		rejectedFor[r.Finding] = true
	}
	for _, q := range safePlan(t, 1).All() {
		if !rejectedFor[q.Reason] {
			t.Errorf("no faulty authorizer is rejected for %s", q.Reason)
			rejectedFor[q.Reason] = true
		}
	}
}

// trySafeFaults asks all faulty authorizers without a policy. It returns how many there are, and how many were rejected
// for their reason.
func trySafeFaults(t *testing.T) (made, found int) {
	safe := safePlan(t, safeSeed)
	for _, r := range safeFaults() {
		made++
		w := startWebhook(t, r.Handler(safe.Policy))
		w.Timeout = fastTimeout
		run := certifyAll(t, safe, w)
		isFound := slices.ContainsFunc(run.Findings, func(f Finding) bool { return f.Reason == r.Finding && !f.Advice })
		if !isFound || len(run.Levels) > 0 {
			t.Errorf("%s is not rejected for %s: levels %v, findings %+v", r.ID, r.Finding, run.Levels, run.Findings)
			continue
		}
		found++
		checkRecord(t, safe, run)
	}
	return made, found
}

// TestSafeReport runs the product on an authorizer that allows verbs which it does not know. The report says what
// anybody can do, and follows from its evidence.
func TestSafeReport(t *testing.T) {
	s, err := reference.Start(safeFaults()[0].Handler(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	raw, err := s.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	made := producttest.Run(t.Context(), t, SafeProduct, "certify", "safe", "--seed=70", "--authorizer-kubeconfig="+kubeconfig)
	r := trialRun{SafeProduct, made, t.TempDir()}
	if err := reports.Save(r.folder, made.Report, made.Log, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := made.Report.Outcome.Result; got != verdicts.Failed {
		t.Errorf("the outcome is %s", got)
	}
	text, err := os.ReadFile(filepath.Join(r.folder, reports.ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"anybody with an account can act as every user", "It does not show that anything is allowed", "direct, without a policy"} {
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
			t.Errorf("%q is not in the report", want)
		}
	}
	if v := r.verify(t, nil); len(v.Differences) > 0 || v.Cases == 0 {
		t.Errorf("verify: %d cases, %q", v.Cases, v.Differences)
	}
}
