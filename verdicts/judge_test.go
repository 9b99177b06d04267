package verdicts

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

const suffix = "abc123"

// listAsBob is a scenario in which alice lists pods as bob.
func listAsBob() *scenarios.Scenario {
	yes, allow, constraint := true, "allow", "impersonate:user-info"
	return &scenarios.Scenario{
		ID: "test/list", Digest: "d1", Level: scenarios.Core,
		Requestors: map[string]scenarios.Requestor{"alice": {User: "alice"}},
		Grants: []scenarios.Grant{
			{Subject: scenarios.Subject{User: "alice"}, Verbs: []string{"impersonate:user-info"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"users"}},
			{Subject: scenarios.Subject{User: "alice"}, Verbs: []string{"impersonate-on:user-info:list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
			{Subject: scenarios.Subject{User: "bob"}, Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		},
		Steps: []scenarios.Step{{
			Request: &scenarios.Request{By: "alice", Impersonate: &scenarios.Impersonate{User: "bob"}, Verb: "list", Resource: "pods"},
			Expect: &scenarios.Expect{
				Outcome: scenarios.Allowed, Code: 200,
				User: &scenarios.User{Name: "bob", Groups: []string{"system:authenticated"}},
				Reviews: []scenarios.Review{
					{Verb: "impersonate-on:user-info:list", Version: "v1", Resource: "pods", Decision: scenarios.Allow},
					{Verb: "impersonate:user-info", Group: "authentication.k8s.io", Version: "v1", Resource: "users", Name: "bob", Decision: scenarios.Allow},
					{By: scenarios.ByImpersonated, Verb: "list", Version: "v1", Resource: "pods", Decision: scenarios.Allow},
				},
				Audit: &scenarios.AuditExpect{ImpersonatedUser: &yes, Constraint: &constraint, Decision: &allow},
				Metrics: &scenarios.MetricsExpect{
					Attempts:       []scenarios.MetricDelta{{Mode: "user-info", Decision: "allowed", Count: 1}},
					Authorizations: []scenarios.MetricDelta{{Mode: "user-info", Decision: "allowed", Count: 2}},
				},
			},
		}},
	}
}

// review returns a review at the front of the chain.
func review(user, verb, group, resource, name string) Review {
	return Review{Point: Front, APIVersion: "authorization.k8s.io/v1", Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{"system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Version: "v1", Resource: resource, Name: name},
	}}
}

// newEvidence returns evidence that satisfies listAsBob.
func newEvidence() *Evidence {
	alice, bob := "alice-"+suffix, "bob-"+suffix
	samples := func(name string, count int) []MetricSample {
		return []MetricSample{
			{Name: name + "_total", Mode: "user-info", Decision: "allowed", Delta: count},
			{Name: name + "_duration_seconds_count", Mode: "user-info", Decision: "allowed", Delta: count},
		}
	}
	return &Evidence{
		Scenario: "test/list", Digest: "d1", Suffix: suffix, Cell: Cell{Name: "cell", Provider: "local"},
		Capabilities: scenarios.AllCapabilities(),
		Steps: []Observation{{
			Request: SentRequest{
				Requestor:  alice,
				Credential: &scenarios.User{Name: alice},
				Method:     "GET",
				URL:        "/api/v1/pods?resourceVersion=0",
				UserAgent:  "authzconf",
				Headers:    map[string][]string{"Impersonate-User": {bob}},
			},
			Response: Response{Code: 200, AuditID: "id1", Body: `{"kind":"PodList"}`},
			Reviews: []Review{
				review(alice, "impersonate-on:user-info:list", "", "pods", ""),
				review(alice, "impersonate:user-info", "authentication.k8s.io", "users", bob),
				review(bob, "list", "", "pods", ""),
			},
			Audit: json.RawMessage(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id1","stage":"ResponseComplete",
				"requestURI":"/api/v1/pods?resourceVersion=0","verb":"list","user":{"username":"` + alice + `","groups":["system:authenticated"]},
				"objectRef":{"resource":"pods","apiVersion":"v1"},"responseStatus":{"code":200},
				"impersonatedUser":{"username":"` + bob + `","groups":["system:authenticated"]},
				"authenticationMetadata":{"impersonationConstraint":"impersonate:user-info"},
				"userAgent":"authzconf","sourceIPs":["127.0.0.1"],"annotations":{"authorization.k8s.io/decision":"allow",
				"authorization.k8s.io/reason":"RBAC: allowed by ClusterRoleBinding \"authzconf-` + suffix + `-1\" of ClusterRole \"authzconf-` + suffix + `-1\" to User \"` + bob + `\""}}`,
			),
			Metrics: append(
				samples("apiserver_impersonation_attempts", 1),
				samples("apiserver_impersonation_authorization_attempts", 2)...),
		},
		},
	}
}

func TestJudgePasses(t *testing.T) {
	r := Judge(listAsBob(), newEvidence())
	if r.Verdict != Passed {
		t.Fatalf("verdict %s: %s\n%v", r.Verdict, r.Reason, r.Differences)
	}
	if r.Judged < 10 {
		t.Errorf("only %d expectations were compared", r.Judged)
	}
}

// TestJudgeNotices changes one thing in the evidence in each case, and expects that the judge names it.
func TestJudgeNotices(t *testing.T) {
	first := func(e *Evidence) *Observation { return &e.Steps[0] }
	tests := map[string]struct {
		change func(*Evidence)
		field  string
	}{
		"time of another request": {func(e *Evidence) {
			first(e).Sent = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			first(e).Answered = first(e).Sent
			inAudit(
				`"level"`,
				`"requestReceivedTimestamp":"2001-01-01T00:00:00.000000Z","stageTimestamp":"2001-01-01T00:00:00.000000Z","level"`,
			)(
				e,
			)
		}, "audit.requestReceivedTimestamp"},
		"end before the beginning": {
			inAudit(`"level"`, `"requestReceivedTimestamp":"2001-01-01T00:00:00.000000Z","level"`),
			"audit.stageTimestamp",
		},
		"a second event": {func(e *Evidence) { first(e).AuditAgain = first(e).Audit }, "audit (events)"},
		"the answer in the event": {
			inAudit(`"level":"Metadata"`, `"level":"Metadata","responseObject":{"kind":"PodList"}`),
			"audit (objects)",
		},
		"the body in the event": {
			inAudit(`"level":"Metadata"`, `"level":"Metadata","requestObject":{"kind":"Pod"}`),
			"audit (objects)",
		},
		"another level":                {inAudit(`"level":"Metadata"`, `"level":"Request"`), "audit (type)"},
		"UID of the object":            {inAudit(`{"resource":"pods"`, `{"resource":"pods","uid":"7"`), "audit.objectRef"},
		"version of the object":        {inAudit(`{"resource":"pods"`, `{"resource":"pods","resourceVersion":"7"`), "audit.objectRef"},
		"message of a success":         {inAudit(`{"code":200}`, `{"code":200,"message":"refused"}`), "audit.responseStatus"},
		"status code":                  {func(e *Evidence) { first(e).Response.Code = 201 }, "code"},
		"refused behind authorization": {func(e *Evidence) { first(e).Response.Code = 403 }, "code"},
		"denied": {func(e *Evidence) {
			first(e).Response.Code = 403
			first(e).Audit = json.RawMessage(strings.Replace(string(first(e).Audit), `"allow"`, `"forbid"`, 1))
		}, "outcome"},
		"review name":      {func(e *Evidence) { first(e).Reviews[1].Spec.ResourceAttributes.Name = "carol" }, "reviews[1].name"},
		"review namespace": {func(e *Evidence) { first(e).Reviews[0].Spec.ResourceAttributes.Namespace = "ns" }, "reviews[0].namespace"},
		"review version":   {func(e *Evidence) { first(e).Reviews[0].Spec.ResourceAttributes.Version = "" }, "reviews[0].version"},
		"review subresource": {
			func(e *Evidence) { first(e).Reviews[2].Spec.ResourceAttributes.Subresource = "log" },
			"reviews[2].subresource",
		},
		"requestor's groups": {func(e *Evidence) { first(e).Reviews[0].Spec.Groups = nil }, "reviews[0].requestor"},
		"order": {func(e *Evidence) {
			r := first(e).Reviews
			r[0], r[1] = r[1], r[0]
		}, "reviews[0].verb"},
		"groups of the final review": {
			func(e *Evidence) { first(e).Reviews[2].Spec.Groups = []string{"system:masters"} },
			"user in the final review",
		},
		"constraint in the audit event": {func(e *Evidence) {
			first(e).Audit = json.RawMessage(strings.Replace(string(first(e).Audit), "impersonate:user-info", "impersonate", 1))
		}, "audit.constraint"},
		"user in the audit event": {func(e *Evidence) {
			first(e).Audit = json.RawMessage(strings.Replace(string(first(e).Audit), "bob-", "rob-", 1))
		}, "user in the audit event"},
		"decision in the audit event": {func(e *Evidence) {
			first(e).Audit = json.RawMessage(strings.Replace(string(first(e).Audit), `"allow"`, `"forbid"`, 1))
		}, "outcome in the audit event"},
		"attempts":  {func(e *Evidence) { first(e).Metrics[0].Delta = 2 }, "metrics.attempts"},
		"histogram": {func(e *Evidence) { first(e).Metrics[1].Delta = 2 }, "metrics.attempts (duration histogram)"},
		"a field that nobody knows in the impersonated user": {
			inAudit(`"impersonatedUser":{`, `"impersonatedUser":{"roles":["admin"],`),
			"audit (fields)",
		},
		"a field that nobody knows in the event": {inAudit(`"verb":`, `"roles":["admin"],"verb":`), "audit (fields)"},
		"a field there twice":                    {inAudit(`"verb":`, `"verb":"get","verb":`), "audit (fields)"},
		"level of the event":                     {inAudit(`Metadata`, `Request`), "audit (type)"},
		"type of the event":                      {inAudit(`audit.k8s.io/v1`, `audit.k8s.io/v2`), "audit (type)"},
		"an event from before its request": {
			inAudit(`"verb":`, `"requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z","verb":`),
			"audit.stageTimestamp",
		},
		"an annotation that nobody knows": {
			inAudit(`"annotations":{`, `"annotations":{"authorization.k8s.io/role":"x",`),
			"audit.annotations",
		},
		"user of the event": {
			inAudit(`"user":{"username":"alice`, `"user":{"username":"eve`),
			"audit.user",
		},
		"groups of the event": {
			inAudit(`"groups":["system:authenticated"]},`, `"groups":["system:masters"]},`),
			"audit.user",
		},
		"verb of the event":       {inAudit(`"verb":"list"`, `"verb":"get"`), "audit.verb"},
		"stage of the event":      {inAudit(`ResponseComplete`, `Panic`), "audit.stage"},
		"URI of the event":        {inAudit(`/api/v1/pods`, `/api/v1/nodes`), "audit.requestURI"},
		"object of the event":     {inAudit(`"resource":"pods"`, `"resource":"nodes"`), "audit.objectRef"},
		"code of the event":       {inAudit(`"code":200`, `"code":201`), "audit.responseStatus.code"},
		"another request's event": {inAudit(`"auditID":"id1"`, `"auditID":"id2"`), "audit.auditID"},
		"event that is no event": {
			func(e *Evidence) { first(e).Audit = json.RawMessage(`{"level":7}`) },
			"audit",
		},
		"UID of the requestor": {
			func(e *Evidence) { first(e).Reviews[0].Spec.UID = "7" },
			"reviews[0].requestor",
		},
		"user agent of the event": {
			inAudit(`"userAgent":"authzconf"`, `"userAgent":"authzconf/1"`),
			"audit.userAgent",
		},
		"address of the event":      {inAudit(`127.0.0.1`, `127.0.0.2`), "audit.sourceIPs"},
		"no address in the event":   {inAudit(`["127.0.0.1"]`, `[]`), "audit.sourceIPs"},
		"reason names another":      {inAudit(`-1\" of`, `-0\" of`), "audit.reason"},
		"reason names another kind": {inAudit(`to User`, `to Group`), "audit.reason"},
		"no reason": {
			inAudit(`authorization.k8s.io/reason`, `pod-security.kubernetes.io/why`),
			"audit.reason",
		},
		"empty reason": {
			inAudit(`"authorization.k8s.io/reason":"`, `"authorization.k8s.io/reason":"","pod-security.kubernetes.io/x":"`),
			"audit.reason",
		},
		"token called stale": {
			inAudit(`"authorization.k8s.io/reason":`, `"authentication.k8s.io/stale-token":"x","authorization.k8s.io/reason":`),
			"audit.annotations",
		},
		"built-in of somebody else": {
			inAudit(`RBAC: allowed by ClusterRoleBinding \"authzconf-`, `RBAC: allowed by ClusterRoleBinding \"system:`),
			"audit.reason",
		},
		"label of a metric": {
			func(e *Evidence) { first(e).Metrics[0].Labels = []string{"user=bob"} },
			"metrics.labels of apiserver_impersonation_attempts_total",
		},
		"type of a metric": {
			func(e *Evidence) { first(e).Metrics[1].Type = "gauge" },
			"metrics.type of apiserver_impersonation_attempts_duration_seconds_count",
		},
		"value of a metric's label": {func(e *Evidence) { first(e).Metrics[0].Mode = "user" }, "metrics.attempts"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEvidence()
			test.change(e)
			r := Judge(listAsBob(), e)
			if r.Verdict != Failed || len(r.Differences) == 0 {
				t.Fatalf("verdict %s (%s), want failed", r.Verdict, r.Reason)
			}
			if got := r.Differences[0].Field; got != test.field {
				t.Errorf("first difference is in %q, want %q", got, test.field)
			}
		})
	}
}

// inAudit returns a change of the audit event.
func inAudit(old, text string) func(*Evidence) {
	return func(e *Evidence) {
		e.Steps[0].Audit = json.RawMessage(strings.Replace(string(e.Steps[0].Audit), old, text, 1))
	}
}

// TestEqualReviewsLookAlike checks that an observed review has the same text as the equal expected one, on whichever of
// the two users it is about, so that the difference in the number of reviews shows only what is missing or too much.
func TestEqualReviewsLookAlike(t *testing.T) {
	for name, c := range map[string]struct {
		requestor string
		final     string // the text of the review of the request itself
	}{
		"of two users":            {"alice", "(impersonated) list pods → allow"},
		"of a user of their name": {"bob", "list pods → allow"},
	} {
		t.Run(name, func(t *testing.T) {
			s := listAsBob()
			v := &stepJudge{
				judge:     &judge{e: &Evidence{Capabilities: scenarios.AllCapabilities()}},
				requestor: scenarios.Requestor{User: c.requestor}, request: s.Steps[0].Request, expect: s.Steps[0].Expect,
			}
			v.decided, _ = DeriveDecisions([]Review{
				review(c.requestor, "impersonate-on:user-info:list", "", "pods", ""),
				review(c.requestor, "impersonate:user-info", "authentication.k8s.io", "users", "bob"),
				review("bob", "list", "", "pods", ""),
				review("mallory", "get", "", "secrets", "one too many"),
			})
			v.checkReviews()
			if len(v.result.Differences) != 1 {
				t.Fatalf("%d differences: %v", len(v.result.Differences), v.result.Differences)
			}
			d := v.result.Differences[0]
			if want := d.Want + `; get secrets "one too many" → allow`; d.Field != "reviews" || d.Got != want {
				t.Errorf("%s: got %q, want %q", d.Field, d.Got, want)
			}
			if !strings.HasSuffix(d.Want, "; "+c.final) {
				t.Errorf("expected: %q, without %q at its end", d.Want, c.final)
			}
		})
	}
}

// TestContradictions checks that the API server is to blame where it contradicts itself, whatever the reviews say.
func TestContradictions(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Observation)
		field  string
	}{
		"asks about somebody else": {func(o *Observation) { o.Reviews[2].Spec.User = "mallory" }, "reviews (whom they are about)"},
		"leaves out an authorizer": {func(o *Observation) { o.Reviews[2].Point = Back }, "reviews (at the end of the chain)"},
		"asks two different things": {func(o *Observation) {
			back := o.Reviews[2]
			back.Point, back.Spec.UID = Back, "7"
			o.Reviews = append(o.Reviews, back)
		}, "reviews (at the end of the chain)"},
		"counts more than it asks":   {func(o *Observation) { o.Metrics[2].Delta = 3 }, "metrics (counted, and seen by the recorder)"},
		"counts less than it asks":   {func(o *Observation) { o.Metrics[2].Delta = 1 }, "metrics (counted, and seen by the recorder)"},
		"counts under another label": {func(o *Observation) { o.Metrics[2].Decision = "denied" }, "metrics (counted, and seen by the recorder)"},
		"allows what nobody allowed": {func(o *Observation) {
			back := o.Reviews[1]
			back.Point = Back
			o.Reviews = []Review{o.Reviews[0], o.Reviews[1], back, o.Reviews[2]}
		}, "metrics (counted, and seen by the recorder)"},
		"writes no event, but others": {func(o *Observation) { o.Audit, o.NoAudit = nil, "no audit event came" }, "audit"},
		"writes that a handler panicked": {func(o *Observation) {
			o.Response = Response{Code: 500, AuditID: "id1", Body: "This request caused apiserver to panic. Look in the logs for details."}
			o.Audit = json.RawMessage(strings.NewReplacer("ResponseComplete", "Panic", `"code":200`, `"code":500`).Replace(string(o.Audit)))
		}, "code"},
		"ends the connection": {func(o *Observation) { o.Response, o.Audit = Response{Broken: "EOF"}, nil }, "outcome"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvidence()
			test.change(&e.Steps[0])
			e.Control = newEvidence()
			test.change(&e.Control.Steps[0])
			r := Judge(listAsBob(), e)
			if r.Verdict != Failed || r.Blame != BlameAPIServer || r.Differences[0].Field != test.field {
				t.Errorf("verdict %s, blame %s: %s", r.Verdict, r.Blame, r.Reason)
			}
		})
	}
}

// TestFurtherCredentialsAreCompared judges a request that carries two credentials.
func TestFurtherCredentialsAreCompared(t *testing.T) {
	for name, c := range map[string]struct {
		sent []*scenarios.User
		want Verdict
	}{
		"sent":         {[]*scenarios.User{{Name: "proxied-abc123"}}, Passed},
		"not sent":     {nil, Invalid},
		"of another":   {[]*scenarios.User{{Name: "eve"}}, Invalid},
		"one too many": {[]*scenarios.User{{Name: "proxied-abc123"}, {Name: "eve"}}, Invalid},
		"nobody's":     {[]*scenarios.User{nil}, Invalid},
	} {
		s, e := listAsBob(), newEvidence()
		s.Requestors["proxied"] = scenarios.Requestor{User: "proxied"}
		s.Steps[0].Request.With = []string{"proxied"}
		e.Steps[0].Request.Others = c.sent
		if r := Judge(s, e); r.Verdict != c.want {
			t.Errorf("%s: %s %s, want %s", name, r.Verdict, r.Reason, c.want)
		}
	}
}

// TestJudgeInvalid checks that evidence which cannot be believed is invalid.
func TestJudgeInvalid(t *testing.T) {
	tests := map[string]func(*Evidence){
		"other text":              func(e *Evidence) { e.Digest = "d2" },
		"problem":                 func(e *Evidence) { e.Problems = []Problem{{Blame: BlameEnvironment, Text: "etcd died"}} },
		"no observation":          func(e *Evidence) { e.Steps = nil },
		"too many":                func(e *Evidence) { e.Steps = append(e.Steps, e.Steps[0]) },
		"no audit event":          func(e *Evidence) { e.Steps[0].Audit = nil },
		"sent by another":         func(e *Evidence) { e.Steps[0].Request.Requestor = "eve" },
		"with another credential": func(e *Evidence) { e.Steps[0].Request.Credential.Name = "eve" },
		"with more groups":        func(e *Evidence) { e.Steps[0].Request.Credential.Groups = []string{"system:masters"} },
		"with a second one":       func(e *Evidence) { e.Steps[0].Request.Others = []*scenarios.User{{Name: "eve"}} },
		"without a credential":    func(e *Evidence) { e.Steps[0].Request.Credential = nil },
		"another method":          func(e *Evidence) { e.Steps[0].Request.Method = "HEAD" },
		"another path":            func(e *Evidence) { e.Steps[0].Request.URL = "/api/v1/nodes?resourceVersion=0" },
		"another query":           func(e *Evidence) { e.Steps[0].Request.URL = "/api/v1/pods" },
		"a header too few":        func(e *Evidence) { e.Steps[0].Request.Headers = nil },
		"a header too many":       func(e *Evidence) { e.Steps[0].Request.Headers["Impersonate-Uid"] = []string{"7"} },
		"another header":          func(e *Evidence) { e.Steps[0].Request.Headers["Impersonate-User"] = []string{"eve"} },
		"a body":                  func(e *Evidence) { e.Steps[0].Request.Body = json.RawMessage(`{}`) },
		"a review is lost":        func(e *Evidence) { e.Steps[0].Reviews = e.Steps[0].Reviews[1:] },
		"half of a review is lost": func(e *Evidence) {
			e.Steps[0].Reviews = slices.Clone(e.Steps[0].Reviews)
			e.Steps[0].Reviews[0].Point = Back
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEvidence()
			change(e)
			if r := Judge(listAsBob(), e); r.Verdict != Invalid || r.Reason == "" || r.Blame == "" {
				t.Errorf("got %+v, want invalid with reason and blame", r)
			}
		})
	}
}

// TestJudgeNotJudged checks that the result names what a target cannot show.
func TestJudgeNotJudged(t *testing.T) {
	e := newEvidence()
	e.Capabilities = nil
	e.Steps[0].Reviews, e.Steps[0].Audit, e.Steps[0].Metrics = nil, nil, nil
	r := Judge(listAsBob(), e)
	if r.Verdict != Passed {
		t.Fatalf("verdict %s: %s", r.Verdict, r.Reason)
	}
	if got := strings.Join(r.NotJudged, " "); got != "user reviews audit metrics" {
		t.Errorf("not judged: %q", got)
	}
}

func TestJudgeNothingIsInvalid(t *testing.T) {
	s := listAsBob()
	s.Steps = nil
	if r := Judge(s, &Evidence{Digest: "d1", Suffix: suffix}); r.Verdict != Invalid {
		t.Errorf("a scenario in which nothing was judged is %s", r.Verdict)
	}
}

func TestBlame(t *testing.T) {
	wrong := func() *Evidence { // the API server asked for another name
		e := newEvidence()
		e.Steps[0].Reviews[1].Spec.ResourceAttributes.Name = "carol"
		return e
	}
	tests := map[string]struct {
		evidence func() *Evidence
		want     Blame
	}{
		"no control run":       {wrong, BlameAPIServer},
		"control saw the same": {func() *Evidence { e := wrong(); e.Control = wrong(); return e }, BlameAPIServer},
		"control passed":       {func() *Evidence { e := wrong(); e.Control = newEvidence(); return e }, BlameEnvironment},
		"allowed once, and not again": {func() *Evidence {
			e := newEvidence()
			e.Steps[0].Reviews[2].Spec.User = "carol"
			e.Control = newEvidence()
			return e
		}, BlameAPIServer},
		"control broke": {func() *Evidence {
			e := wrong()
			e.Control = newEvidence()
			e.Control.Problems = []Problem{{Blame: BlameHarness, Text: "x"}}
			return e
		}, BlameEnvironment},
		"authorizer denied what is granted": {func() *Evidence {
			e := newEvidence()
			o := &e.Steps[0]
			back := o.Reviews[0]
			back.Point = Back
			o.Reviews = []Review{o.Reviews[0], back}
			o.Response = Response{
				Code: 403,
				Body: `{"kind":"Status","message":"User \"alice-abc123\" cannot impersonate-on:user-info:list resource \"pods\""}`,
			}
			o.Response.AuditID = "id1"
			o.Audit = json.RawMessage(`{"kind":"Event"}`)
			o.Metrics = []MetricSample{{Name: AuthorizationsMetric, Mode: "user-info", Decision: "denied", Delta: 1}}
			return e
		}, BlameAuthorizer},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := Judge(listAsBob(), test.evidence())
			if r.Verdict != Failed || r.Blame != test.want {
				t.Errorf("verdict %s, blame %s (%s), want failed by %s", r.Verdict, r.Blame, r.Reason, test.want)
			}
		})
	}
}

// TestTokenIssuedWronglyIsAPIServerFault checks that the API server is to blame for a token that it issued with other claims than were requested. A
// token that might be another requestor's, or that was issued elsewhere, shows nothing about the API server.
func TestTokenIssuedWronglyIsAPIServerFault(t *testing.T) {
	account := func(change func(*scenarios.ServiceAccount)) scenarios.Requestor {
		sa := &scenarios.ServiceAccount{Namespace: "n", Name: "agent", Pod: "pod", Node: "node1"}
		change(sa)
		return scenarios.Requestor{ServiceAccount: sa}
	}
	as := func(*scenarios.ServiceAccount) {}
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:n"}
	for name, c := range map[string]struct {
		who, other scenarios.Requestor
		of         scenarios.User
		failed     bool
	}{
		"without its node":         {account(as), scenarios.Requestor{User: "bob"}, scenarios.User{Name: "system:serviceaccount:n:agent", Groups: groups}, true},
		"without a name":           {account(as), scenarios.Requestor{User: "bob"}, scenarios.User{Name: "system:serviceaccount:n:", Groups: groups}, true},
		"without a namespace":      {account(as), scenarios.Requestor{User: "bob"}, scenarios.User{Name: "system:serviceaccount::agent", Groups: groups}, true},
		"of somebody else":         {account(as), scenarios.Requestor{User: "bob"}, scenarios.User{Name: "system:serviceaccount:n:eve", Groups: groups}, false},
		"of another token of it":   {account(as), account(func(sa *scenarios.ServiceAccount) { sa.Pod = "" }), scenarios.User{Name: "system:serviceaccount:n:agent", Groups: groups}, false},
		"that a kubelet asked for": {account(func(sa *scenarios.ServiceAccount) { sa.Running = true }), scenarios.Requestor{User: "bob"}, scenarios.User{Name: "system:serviceaccount:n:agent", Groups: groups}, false},
	} {
		v := &stepJudge{judge: &judge{s: &scenarios.Scenario{Requestors: map[string]scenarios.Requestor{"a": c.who, "b": c.other}}}}
		if problem := v.checkCredential(&c.of, c.who); (problem == "") != c.failed || (len(v.result.Differences) == 1) != c.failed {
			t.Errorf("%s: %q, %v", name, problem, v.result.Differences)
		}
	}
}
