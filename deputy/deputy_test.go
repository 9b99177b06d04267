package deputy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"

	authorizationv1 "k8s.io/api/authorization/v1"
)

func target(t *testing.T) server.Options {
	t.Helper()
	o, err := controlPlane(local.Newest().Minor, &local.Binaries{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestRun runs all parts, and verifies the report.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	t.Parallel() // it mostly waits
	made := producttest.Run(context.Background(), t, Product, "deputy", "--pairs=1000", "--users=50", "--requests-each=6", "--seed=3")
	if o := made.Report.Outcome; o.Result != verdicts.Passed || len(made.Report.Groups) != 2 {
		t.Errorf("%+v", o)
	}
	for _, g := range made.Report.Groups {
		if want := len(Parts()) - 2 + len(attackKinds()) - 1; len(g.Cases) != want {
			t.Errorf("%s: %d cases, want %d", g.Name, len(g.Cases), want)
		}
		said := fmt.Sprint(g.Cases)
		for _, want := range []string{
			string(allowed), string(forbidden), string(unreachable), correlated,
			asPerson, refusedByProxy, refusedByServer, "streamed", "down, and said so",
		} {
			if !strings.Contains(said, " "+want) {
				t.Errorf("%s: nothing was %q", g.Name, want)
			}
		}
	}
	line, args, err := producttest.Parse(Product)(made.Report.Command[1:])
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := line.Prepare(product.NewInvocation(args, "test", os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("wrong", func(t *testing.T) { testJudgeNotices(t, prepared.Plan.(*plan), made.Log.View()) })
	for _, change := range []struct{ file, from, to, want string }{
		{"", "", "", ""},
		{"evidence/legacy/tunnel.json", `"code": 502`, `"code": 503`, "its digest is not the one in record.jsonl"},
		{reports.ReportFile, "- --users=50", "- --users=49", "it is not what the record gives"},
	} {
		differences := verifyChanged(t, made, change.file, change.from, change.to)
		if got := strings.Join(differences, "\n"); !strings.Contains(got, change.want) || (got == "") != (change.want == "") {
			t.Errorf("%s changed: %q, want %q", change.file, got, change.want)
		}
	}
}

// verifyChanged verifies a report in which one file was changed.
func verifyChanged(t *testing.T, made *product.RunResult, file, from, to string) []string {
	t.Helper()
	isChanged := false
	v := producttest.Verify(t, Product, made, func(name string, data []byte) []byte {
		if name != file {
			return data
		}
		changed := strings.Replace(string(data), from, to, 1)
		isChanged = changed != string(data)
		return []byte(changed)
	})
	if file != "" && !isChanged {
		t.Fatalf("%s has no %q", file, from)
	}
	return v.Differences
}

// TestBroken checks that mistakes are found: agents that are wrong on purpose, a deputy that loses or confuses rows,
// and a proxy that may do less than is asked of it.
func TestBroken(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	ctx := context.Background()
	w, random := newFixture(3, newPeople())
	people := newUsers(4)
	grants := slices.Concat(w.grants, userGrants(people, 2), proxyGrants(slices.Concat(w.people, people), true))
	grants = slices.DeleteFunc(grants, func(g scenarios.Grant) bool { // drops the action on ConfigMaps
		return g.Subject.User == proxyName && slices.Contains(g.Resources, "configmaps")
	})
	p, err := startPlane(ctx, target(t), grants, append(slices.Clone(w.namespaces), Namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop() })
	t.Run("preflight", func(t *testing.T) {
		agent, err := p.agent(ctx, p.url, people)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = agent.close() }()
		questions := slices.DeleteFunc(w.drawQuestions(random), func(q question) bool {
			return q.kind.resource != "configmaps" || !w.isGranted(q) || q.who.outOfReach
		})
		g, out := &group{name: constrained, fixture: w, questions: questions[:min(20, len(questions))]}, newJudgement()
		e, err := agent.observePreflight(ctx, g)
		if err != nil {
			t.Fatal(err)
		}
		if err := (sentRequests{}).checkPreflight(g, e); err != nil {
			t.Fatal(err)
		}
		if err := e.judge(out, g); err != nil {
			t.Fatal(err)
		}
		if len(out.failures) == 0 ||
			!strings.Contains(out.failures[0].String(), `the pre-flight says "allowed", the request is "not for the proxy"`) {
			t.Errorf("%d of %d failed: %q", len(out.failures), out.checks, out.failures)
		}
	})
	for name, c := range faultyAgents(p) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			ep, err := p.serve(ctx, c.handler, people)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ep.close() }()
			if out := tryAttacks(t, ep, true); !finds(out, c.finds) {
				t.Errorf("found %q, not %q", out.failures, c.finds)
			}
		})
	}
	t.Run("audit-logs", func(t *testing.T) {
		agent, err := p.agent(ctx, p.url, people)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = agent.close() }()
		// The event of an earlier request may still arrive.
		if resp, err := agent.get(ctx, "/version", people[0]); err != nil || resp.Body.Close() != nil {
			t.Fatal(err)
		}
		e, err := p.useReferenceDeputies(ctx, agent, 3)
		if err != nil {
			t.Fatal(err)
		}
		if err := (sentRequests{}).checkRows(e); err != nil {
			t.Fatal(err)
		}
		rows := e.Routes[0].Rows
		rows[0].Actor, rows[1].AuditID = "somebody-else", "lost"
		rows[2].Cluster, rows[3].Verb, rows[4].Resource = "elsewhere", "get", "secrets"
		e.Routes[1].Rows = e.Routes[1].Rows[1:]
		e.Routes[0].Attacks.Attacks[0].Answers[0].Code = http.StatusTeapot
		out := newJudgement()
		err = e.judge(
			out,
			&group{name: constrained, fixture: w, people: people, requests: 3, account: proxyName, reference: true, cluster: localCluster},
			false,
		)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"misattributed: ", "lost: ", "has no row of the deputy", "code 418, want 200", `it is of the cluster "elsewhere", and its event of "local"`, `it says "get pods `, `it says "list secrets `} {
			if !finds(out, want) {
				t.Errorf("%q, without %q", out.failures, want)
			}
		}
		if len(out.failures) != 8 { // the event of the lost row has none either
			t.Errorf("%q", out.failures)
		}
	})
}

// isForOneCluster reports whether the attacks of a kind need no second cluster.
func isForOneCluster(kind string) bool { return kind != clustersKind }

// tryAttacks returns the judgement of all attacks on an endpoint.
func tryAttacks(t *testing.T, ep *endpoint, isReference bool) *judgement {
	t.Helper()
	table := attacksOf(isForOneCluster)
	e, err := ep.sendAttacks(context.Background(), table, 1)
	if err != nil {
		t.Fatal(err)
	}
	out := newJudgement()
	judgeInto(t, out, e, table, ep.people, proxyName, isReference)
	return out
}

// judgeInto judges attacks into one judgement.
func judgeInto(t *testing.T, out *judgement, e *attacksEvidence, table []attack, people []*Identity, account string, isReference bool) {
	t.Helper()
	j := newAttackJudge(e, table, people, account)
	j.reference, j.logged = isReference, len(out.foundBy) > 0
	if err := j.judgeAttacks(e, table, func(attack) *judgement { return out }); err != nil {
		t.Fatal(err)
	}
}

// finds reports whether a failure has a text.
func finds(out *judgement, text string) bool {
	return slices.ContainsFunc(out.failures, func(f failure) bool { return strings.Contains(f.String(), text) })
}

type faultyAgent struct {
	handler http.Handler
	finds   string
}

// faultyAgents are wrong in one way each. The first is the agent as the article describes it.
func faultyAgents(p *plane) map[string]faultyAgent {
	naive := func(change func(in, out http.Header)) http.Handler {
		return &httputil.ReverseProxy{
			Transport: p.transport,
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(p.url)
				token := "Bearer " + p.token
				r.Out.Header.Set("Authorization", token)
				change(r.In.Header, r.Out.Header)
			},
		}
	}
	var mixed http.Header
	return map[string]faultyAgent{
		"as the article has it": {naive(func(http.Header, http.Header) {}), "Connection names the user: it was made as the proxy itself"},
		"strips impersonation": {
			naive(func(_, out http.Header) { out.Del("Impersonate-User") }),
			"no identity at all: it was made as the proxy itself",
		},
		"keeps a foreign token": {naive(func(in, out http.Header) {
			if a := in.Get("Authorization"); a != "" {
				out.Set("Authorization", a)
			}
		}), "a foreign Authorization: its own Authorization reached the API server"},
		"leaks headers to the next request": {naive(func(in, out http.Header) {
			if mixed != nil && out.Get("Impersonate-User") != "" {
				out["Impersonate-User"] = mixed["Impersonate-User"]
			}
			if mixed == nil {
				mixed = http.Header{"Impersonate-User": {"client-1@corp"}}
			}
			_ = in
		}), `it was made as "client-1@corp"`},
	}
}

func TestCompareAnswers(t *testing.T) {
	reach, out := question{who: &Identity{Name: "a"}}, question{who: &Identity{Name: "b", outOfReach: true}}
	yes := authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "RBAC: allowed by RoleBinding"}
	for _, c := range []struct {
		name                   string
		question               question
		granted                bool
		review, request, rules answer
		status                 authorizationv1.SubjectAccessReviewStatus
		wrong                  int
	}{
		{"allowed", reach, true, allowed, allowed, allowed, yes, 0},
		{"denied", reach, false, forbidden, forbidden, forbidden, authorizationv1.SubjectAccessReviewStatus{}, 0},
		{"out of reach", out, true, unreachable, unreachable, unreachable, authorizationv1.SubjectAccessReviewStatus{}, 0},
		{"a yes that is none", reach, true, allowed, forbidden, allowed, yes, 3},
		{"a no that is a yes", reach, false, forbidden, allowed, allowed, authorizationv1.SubjectAccessReviewStatus{}, 2},
		{"rules that say otherwise", reach, true, allowed, allowed, forbidden, yes, 1},
		{"a yes without a reason", reach, true, allowed, allowed, allowed, authorizationv1.SubjectAccessReviewStatus{Allowed: true}, 1},
		{"a no with a reason", reach, false, forbidden, forbidden, forbidden, authorizationv1.SubjectAccessReviewStatus{Reason: "because"}, 1},
		{"a yes for one who is out of reach", out, true, allowed, allowed, allowed, yes, 1},
	} {
		if wrong := (answers{c.review, c.request, c.rules, c.status}).compare(c.question.who.outOfReach, c.granted); len(wrong) != c.wrong {
			t.Errorf("%s: %q", c.name, wrong)
		}
	}
}

// TestSeedMakesTheFixture checks that the same seed makes the same fixture, with questions of every kind.
func TestSeedMakesTheFixture(t *testing.T) {
	a, randomA := newFixture(5, newPeople())
	b, randomB := newFixture(5, newPeople())
	questions := a.drawQuestions(randomA)
	if !slices.EqualFunc(questions, b.drawQuestions(randomB), func(x, y question) bool { return x.String() == y.String() }) {
		t.Error("the same seed makes other questions")
	}
	granted, seen := 0, map[string]bool{}
	for _, p := range questions {
		if a.isGranted(p) {
			granted++
		}
		seen[p.verb], seen[p.kind.fullResource()], seen[p.who.Name], seen[p.namespace] = true, true, true, true
	}
	if want := len(verbs) + len(kinds) + peopleCount + spaceCount + 1; len(seen) != want || granted < 100 || granted > len(questions)-100 {
		t.Errorf("%d questions, %d of them granted, %d values of %d", len(questions), granted, len(seen), want)
	}
}

func TestOptions(t *testing.T) {
	good := options{impersonation: Impersonations(), pairs: 1, users: 1, requests: 1}
	if err := good.check(true); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*options){
		func(o *options) { o.impersonation = []string{"x"} },
		func(o *options) { o.parts = []string{"x"} },
		func(o *options) { o.pairs = 0 },
	} {
		o := good
		if change(&o); o.check(true) == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestButtonsCanBeAskedAbout checks that every button asks about something that can be asked, and that a page without buttons asks for
// the rules.
func TestButtonsCanBeAskedAbout(t *testing.T) {
	for _, g := range pages() {
		questions, requests := g.reviewsOf(&Identity{Name: "a"}, "team")
		if len(questions) != len(g.Asks) || len(requests) != max(1, len(g.Asks)) {
			t.Errorf("%s: %d questions, %d requests", g.Page, len(questions), len(requests))
		}
		for i, q := range questions {
			if !slices.Contains(sortedVerbs(), q.verb) || q.kind.resource == "" || strings.ContainsAny(q.kind.fullResource(), " .") ||
				q.namespace != "team" {
				t.Errorf("%s: %q is %+v", g.Page, g.Asks[i], q)
			}
		}
	}
	questions, _ := pages()[1].reviewsOf(&Identity{}, "team")
	if got := describeQuestion(questions[3].attributes()); got != "patch deployments/scale apps v1 team " {
		t.Errorf("got %q", got)
	}
}

// judgeChanged judges what was seen in a part after it was changed.
func judgeChanged(t *testing.T, _ *plan, view record.View, g *group, part string, change func(*partEvidence)) judgements {
	t.Helper()
	seen, err := record.Read[partEvidence](view, partKey(g, part))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(seen)
	changed := &partEvidence{}
	if err := errors.Join(err, json.Unmarshal(raw, changed)); err != nil {
		t.Fatal(err)
	}
	change(changed)
	out, err := g.judge(part, changed, true)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// editEvent changes the text of the first event of an attack.
func editEvent(e *attackEvidence, from, to string) {
	e.Events[0] = bytes.Replace(e.Events[0], []byte(from), []byte(to), 1)
}

// testJudgeNotices checks that the judge finds what is wrong in what was seen. Each change is one thing that a wrong
// server or deputy would show.
func testJudgeNotices(t *testing.T, p *plan, view record.View) {
	for name, test := range map[string]struct {
		part   string
		change func(*partEvidence)
		want   string
	}{
		"nothing":                       {preflightPart, func(*partEvidence) {}, ""},
		"a question to the authorizer":  {preflightPart, func(e *partEvidence) { e.Preflight.Visits[0].Authorizer = nil }, "and has to be asked"},
		"a request that did not arrive": {preflightPart, func(e *partEvidence) { e.Preflight.Questions[0].Request.Audit = nil }, "it did not arrive"},
		"a review that failed":          {preflightPart, func(e *partEvidence) { e.Preflight.Questions[0].Review.Response.Code = 500 }, "the review was answered 500"},
		"a row that is missing":         {auditLogsPart, func(e *partEvidence) { e.AuditLogs.Routes[0].Rows = e.AuditLogs.Routes[0].Rows[1:] }, "has no row of the deputy"},
		"another person in an event": {auditLogsPart, func(e *partEvidence) {
			editEvent(&e.AuditLogs.Routes[0].Attacks.Attacks[0], `"username":"client-0@corp"`, `"username":"somebody"`)
		}, `it was made as "somebody"`},
		"an event with other groups": {attacksPart, func(e *partEvidence) {
			const user = `"impersonatedUser":{"groups":[`
			editEvent(&e.Attacks.Attacks[0], user, user+`"system:masters",`)
		}, `with the group "system:masters"`},
		"an event that contradicts itself": {attacksPart, func(e *partEvidence) {
			editEvent(&e.Attacks.Attacks[0], `"authorization.k8s.io/decision":"allow"`, `"authorization.k8s.io/decision":"forbid"`)
		}, "was decided"},
		"a control that did not arrive": {attacksPart, func(e *partEvidence) { e.Attacks.Attacks[0].Events = nil }, "it is the answer to another request"},
		"a stream that shows nothing":   {tunnelPart, func(e *partEvidence) { e.Tunnel.Streams["watch"] = streamEvidence{Event: "{}"} }, "watch: what came first is"},
		"a token that is given away":    {tunnelPart, func(e *partEvidence) { e.Tunnel.Down.Body += hiddenToken }, "a target that is down: "},
	} {
		t.Run(name, func(t *testing.T) {
			said := ""
			for _, out := range judgeChanged(t, p, view, p.groups[0], test.part, test.change) {
				said += fmt.Sprint(out.failures)
			}
			if (said == "[]") != (test.want == "") || !strings.Contains(said, test.want) {
				t.Errorf("found %s, want %q", said, test.want)
			}
		})
	}
	out := judgeChanged(t, p, view, p.groups[0], attacksPart, func(e *partEvidence) { e.Attacks.Attacks[3].Events = nil })
	if r := out[controlsKind].result(); r.Verdict == verdicts.Passed ||
		!strings.Contains(out[controlsKind].inconclusive, "there is no event of it") {
		t.Errorf("without an event: %+v", r)
	}
}
