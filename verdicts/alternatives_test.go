package verdicts

import (
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
)

// judged returns the verdict on listAsBob with a changed expectation and a changed answer.
func judged(expect func(*scenarios.Expect), seenChange func(*Observation)) Result {
	s, e := listAsBob(), newEvidence()
	expect(s.Steps[0].Expect)
	seenChange(&e.Steps[0])
	return Judge(s, e)
}

func unchanged(*Observation) {}

func TestOneAlternativeHasToHold(t *testing.T) {
	other := []scenarios.Review{{Verb: "get", Version: "v1", Resource: "nodes", Decision: scenarios.Allow}}
	tests := map[string]struct {
		alternatives func(right []scenarios.Review) []scenarios.Alternative
		want         Verdict
	}{
		"the first": {func(right []scenarios.Review) []scenarios.Alternative {
			return []scenarios.Alternative{{Reviews: right}, {Reviews: other}}
		}, Passed},
		"the second": {func(right []scenarios.Review) []scenarios.Alternative {
			return []scenarios.Alternative{{Reviews: other}, {Reviews: right}}
		}, Passed},
		"none": {func([]scenarios.Review) []scenarios.Alternative {
			return []scenarios.Alternative{{Reviews: other}, {Reviews: []scenarios.Review{}}}
		}, Failed},
		"half of each": {func(right []scenarios.Review) []scenarios.Alternative {
			return []scenarios.Alternative{{Message: "no", Reviews: right}, {Message: `{"kind":"PodList"}`, Reviews: other}}
		}, Failed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := judged(func(e *scenarios.Expect) { e.OneOf, e.Reviews = test.alternatives(e.Reviews), nil }, unchanged)
			if r.Verdict != test.want {
				t.Errorf("verdict %s, want %s: %s", r.Verdict, test.want, r.Reason)
			}
			if test.want == Failed &&
				(len(r.Differences) != 1 || r.Differences[0].Field != "oneOf") {
				t.Errorf("differences %v", r.Differences)
			}
		})
	}
}

// TestMessageMatches checks that a pattern has to match the whole message.
func TestMessageMatches(t *testing.T) {
	for pattern, want := range map[string]Verdict{`\{"kind":"Pod[A-Z][a-z]+"\}`: Passed, `PodList`: Failed, `x|\{.*\}`: Passed, `\{.*|y`: Passed, `\{"kind"`: Failed} {
		if r := judged(func(e *scenarios.Expect) { e.MessageMatches = pattern }, unchanged); r.Verdict != want {
			t.Errorf("%s: verdict %s, want %s", pattern, r.Verdict, want)
		}
	}
}

// TestForbiddenInOtherWords checks that a 403 with the text of an authorizer counts as the impersonation filter's if
// the request was never authorized.
func TestForbiddenInOtherWords(t *testing.T) {
	words := func(o *Observation) {
		o.Response = Response{
			Code:    403,
			AuditID: "id1",
			Body:    `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"ask the owner"}`,
		}
		event, _, _ := strings.Cut(string(o.Audit), `"impersonatedUser"`)
		o.Audit = []byte(strings.Replace(event, `{"code":200},`, `{"code":403,"status":"Failure","reason":"Forbidden","message":"ask the owner"},"userAgent":"authzconf","sourceIPs":["127.0.0.1"]}`, 1))
		o.Reviews, o.Metrics = nil, nil
	}
	for name, test := range map[string]struct {
		change func(*Observation)
		field  string
	}{
		"sound":             {func(*Observation) {}, ""},
		"another reason":    {func(o *Observation) { o.Response.Body = strings.Replace(o.Response.Body, "Forbidden", "Conflict", 1) }, "reason"},
		"reason logged":     {func(o *Observation) { o.Audit = []byte(strings.Replace(string(o.Audit), "Forbidden", "Conflict", 1)) }, "audit.responseStatus"},
		"another code":      {func(o *Observation) { o.Response.Body = strings.Replace(o.Response.Body, "403", "404", 1) }, "status"},
		"another version":   {func(o *Observation) { o.Response.Body = strings.Replace(o.Response.Body, "v1", "v2", 1) }, "status"},
		"success logged":    {func(o *Observation) { o.Audit = []byte(strings.Replace(string(o.Audit), "Failure", "Success", 1)) }, "audit.responseStatus"},
		"no message logged": {func(o *Observation) { o.Audit = []byte(strings.Replace(string(o.Audit), "ask the owner", "", 1)) }, "audit.responseStatus"},
	} {
		r := judged(func(e *scenarios.Expect) {
			*e = scenarios.Expect{Outcome: scenarios.ImpersonationForbidden, Message: "ask the owner"}
		}, func(o *Observation) { words(o); test.change(o) })
		switch {
		case test.field == "" && r.Verdict != Passed:
			t.Errorf("%s: verdict %s: %s", name, r.Verdict, r.Reason)
		case test.field != "" &&
			(r.Verdict != Failed || r.Differences[0].Field != test.field):
			t.Errorf("%s: verdict %s: %s", name, r.Verdict, r.Reason)
		}
	}
}

// TestHeadersTooLarge checks that a request which the HTTP server refuses needs no audit event.
func TestHeadersTooLarge(t *testing.T) {
	refused := func(o *Observation) {
		*o = Observation{
			Request:  o.Request,
			Response: Response{Code: 431, Body: "431 Request Header Fields Too Large"},
			Reviews:  []Review{},
		}
	}
	expect := scenarios.Expect{Outcome: scenarios.HeadersTooLarge, Code: 431, Reviews: []scenarios.Review{}}
	if r := judged(func(e *scenarios.Expect) { *e = expect }, refused); r.Verdict != Passed {
		t.Errorf("verdict %s: %s", r.Verdict, r.Reason)
	}
	if r := judged(func(*scenarios.Expect) {}, refused); r.Verdict != Failed || r.Differences[0].Field != "outcome" {
		t.Errorf("verdict %s: %v", r.Verdict, r.Differences)
	}
}

// TestUnstatedFieldsAreJudged checks that an answer, its audit events and the resulting user are judged even where a scenario states
// nothing of them.
func TestUnstatedFieldsAreJudged(t *testing.T) {
	long := func(o *Observation) {
		o.AuditStarted = []byte(strings.NewReplacer("ResponseComplete", "ResponseStarted", `"code":200}`, `"code":200},"stageTimestamp":"2026-01-01T00:00:00.000000Z"`).Replace(string(o.Audit)))
	}
	started := func(old, text string) func(*Observation) {
		return func(o *Observation) {
			long(o)
			o.AuditStarted = []byte(strings.Replace(string(o.AuditStarted), old, text, 1))
		}
	}
	const began, inEvent = "audit as the answer begins", "user in the audit event"
	for name, test := range map[string]struct {
		change func(*Observation)
		field  string
	}{
		"nothing":                     {unchanged, ""},
		"a warning":                   {func(o *Observation) { o.Response.Warnings = []string{`299 - "beware"`} }, "warnings"},
		"as the answer begins":        {long, ""},
		"not as the answer begins":    {func(o *Observation) { o.AuditStarted = []byte(`"none"`) }, began},
		"begun by somebody else":      {started(`"username":"alice`, `"username":"eve`), began},
		"begun by no mode":            {started(`"authenticationMetadata":{"impersonationConstraint":"impersonate:user-info"},`, ""), began},
		"begun for another reason":    {started("RBAC: allowed by", "RBAC: allowed, by"), began},
		"a group in the review alone": {func(o *Observation) { o.Reviews[2].Spec.Groups = []string{"system:authenticated", "crew"} }, "user in the final review"},
		"a UID that nobody asked for": {func(o *Observation) {
			o.Reviews[2].Spec.UID = "1"
			o.Audit = []byte(strings.Replace(string(o.Audit), `"impersonatedUser":{`, `"impersonatedUser":{"uid":"1",`, 1))
		}, inEvent},
		"a name cut short": {func(o *Observation) {
			o.Reviews[2].Spec.User = "bob"
			o.Audit = []byte(strings.Replace(string(o.Audit), `"username":"bob-abc123"`, `"username":"bob"`, 1))
		}, inEvent},
	} {
		r := judged(func(e *scenarios.Expect) { e.User, e.Reviews = nil, nil }, test.change)
		found := slices.ContainsFunc(r.Differences, func(d Difference) bool { return d.Field == test.field })
		if (test.field == "") != (r.Verdict == Passed) || found != (test.field != "") {
			t.Errorf("%s: verdict %s: %v", name, r.Verdict, r.Differences)
		}
	}
}

// TestDetailsAgreeWithRefusal checks that the details of a refusal have to agree with the beginning of its message.
func TestDetailsAgreeWithRefusal(t *testing.T) {
	const message = `pods \"web\" is forbidden: User \"alice-abc123\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope`
	for details, want := range map[string]Verdict{
		`{"name":"web","kind":"pods"}`:                Passed,
		`{"kind":"pods"}`:                             Failed,
		`{"name":"web","group":"apps","kind":"pods"}`: Failed,
		`{"name":"we","kind":"pods"}`:                 Failed,
		`{}`:                                          Failed,
	} {
		body := `{"kind":"Status","status":"Failure","reason":"Forbidden","message":"` + message + `","details":` + details + `,"code":403}`
		r := judged(func(e *scenarios.Expect) { *e = scenarios.Expect{Outcome: scenarios.ImpersonationForbidden} }, func(o *Observation) {
			o.Response = Response{Code: 403, AuditID: "id1", Body: body}
			o.Audit, o.Reviews, o.Metrics = nil, nil, nil
			o.NoAudit = "none"
		})
		got := Passed
		if slices.ContainsFunc(r.Differences, func(d Difference) bool { return d.Field == "refusal" }) {
			got = Failed
		}
		if got != want {
			t.Errorf("%s: %v", details, r.Differences)
		}
	}
}
