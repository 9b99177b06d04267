package verdicts

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
)

// TestWebhookAnswersAsScripted checks that the audit event gives the reason of a webhook that allows, and that the webhook has to
// answer as the scenario says.
func TestWebhookAnswersAsScripted(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Evidence)
		verdict Verdict
		says    string
	}{
		"sound":             {func(*Evidence) {}, Passed, ""},
		"reason of another": {inAudit("on call", "at night"), Failed, "audit.reason"},
		"reason of RBAC":    {inAudit("on call", `RBAC: allowed by ClusterRoleBinding \"system:x\" of ClusterRole \"system:x\" to Group \"system:authenticated\"`), Failed, "audit.reason"},
		"not asked":         {func(e *Evidence) { e.Steps[0].Reviews = e.Steps[0].Reviews[:5] }, Failed, "reviews (at the webhook)"},
		"another answer":    {func(e *Evidence) { e.Steps[0].Reviews[1].Decision = scenarios.Allow }, Invalid, "is said to have answered"},
		"another place":     {func(e *Evidence) { e.Steps[0].Reviews[1].Point = "elsewhere" }, Invalid, "arrived at"},
		"another version":   {func(e *Evidence) { e.Steps[0].Reviews[0].APIVersion = "v1beta1" }, Invalid, "arrived at"},
	} {
		s, e := listAsBob(), newEvidence()
		s.Requires.Chain = "webhook-first"
		s.Policy = []scenarios.PolicyRule{{For: scenarios.Grant{Subject: scenarios.Subject{User: "bob"}, Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}}, Answer: scenarios.AnswerAllow, Reason: "on call"}}
		var all []Review
		for i, r := range e.Steps[0].Reviews {
			at := r
			at.Point, at.Decision = Policy, scenarios.NoOpinion
			if i == 2 {
				at.Decision = scenarios.Allow
			}
			all = append(all, r, at)
		}
		e.Steps[0].Reviews = all
		event := string(e.Steps[0].Audit)
		from := strings.Index(event, "RBAC: allowed by")
		e.Steps[0].Audit = json.RawMessage(event[:from] + `on call"}}`)
		c.change(e)
		if r := Judge(s, e); r.Verdict != c.verdict || !strings.Contains(r.Reason, c.says) {
			t.Errorf("%s: %s: %s", name, r.Verdict, r.Reason)
		}
	}
}

// TestAnswerRepeatsTheQuestion checks that the answer to an access review has to contain everything that was asked.
func TestAnswerRepeatsTheQuestion(t *testing.T) {
	const asked = `{"kind":"SubjectAccessReview","spec":{"user":"carol","uid":"7","extra":{"team":["a"]}}}`
	for answer, want := range map[string]int{
		strings.Replace(asked, `"uid"`, `"groups":["g"],"uid"`, 1): 0,
		strings.Replace(asked, `"uid":"7",`, "", 1):                1,
		strings.Replace(asked, `["a"]`, `["b"]`, 1):                1,
		`{"kind":"SubjectAccessReview"}`:                           1,
	} {
		v := &stepJudge{
			judge:   &judge{},
			request: &scenarios.Request{},
			o:       &Observation{Request: SentRequest{Body: json.RawMessage(asked)}, Response: Response{Code: 201, Body: answer}},
		}
		if v.checkAnswer(); len(v.result.Differences) != want {
			t.Errorf("%s: %v", answer, v.result.Differences)
		}
	}
}
