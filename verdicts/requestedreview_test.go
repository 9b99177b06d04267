package verdicts

import (
	"encoding/json"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// TestRequestedReviewIsPassedOn checks that an access review which a client asks for has to be passed to the authorizers unchanged, and
// answered as they decide.
func TestRequestedReviewIsPassedOn(t *testing.T) {
	const (
		who      = `"user":"carol","uid":"7","groups":["g"],"extra":{"team":["a","b"]}`
		what     = `"verb":"list","version":"v1","resource":"pods","subresource":"log","namespace":"n","name":"x"`
		selected = `"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["1"]},{"key":"b","operator":"NotIn","values":["2"]}]},"labelSelector":{"requirements":[{"key":"l","operator":"Exists"}]}`
		raw      = `"fieldSelector":{"rawSelector":"a=1,b!=2"},"labelSelector":{"rawSelector":"l"}`
	)
	spec := func(who, what string) string {
		return "{" + strings.TrimPrefix(who+`,"resourceAttributes":{`+what+"}}", ",")
	}
	const asked, selector, self = who, what + "," + selected, `"user":"bob","groups":["system:authenticated"]`
	for name, c := range map[string]struct {
		kind, asks, arrives string
		allowed             bool
		field               string
	}{
		"as it stands":       {"SubjectAccessReview", spec(asked, selector), spec(asked, selector), true, ""},
		"selectors as texts": {"LocalSubjectAccessReview", spec(asked, what+","+raw), spec(asked, selector), true, ""},
		"about oneself":      {"SelfSubjectAccessReview", spec("", what), spec(self, what), true, ""},
		"no version":         {"SelfSubjectAccessReview", spec("", `"verb":"get"`), spec(self, `"verb":"get","version":"*"`), true, ""},
		"a path":             {"SubjectAccessReview", `{"user":"carol","nonResourceAttributes":{"verb":"get","path":"/x"}}`, `{"user":"carol","nonResourceAttributes":{"verb":"get","path":"/x"}}`, true, ""},
		"another path":       {"SubjectAccessReview", `{"user":"carol","nonResourceAttributes":{"verb":"get","path":"/x"}}`, `{"user":"carol","nonResourceAttributes":{"verb":"get","path":"/"}}`, true, "reviews (asked for)"},
		"no UID":             {"SubjectAccessReview", spec(asked, what), spec(strings.Replace(who, `"uid":"7",`, "", 1), what), true, "reviews (asked for)"},
		"one value":          {"SubjectAccessReview", spec(asked, what), spec(strings.Replace(who, `,"b"`, "", 1), what), true, "reviews (asked for)"},
		"no groups":          {"SubjectAccessReview", spec(asked, what), spec(strings.Replace(who, `"groups":["g"],`, "", 1), what), true, "reviews (asked for)"},
		"no selector":        {"SubjectAccessReview", spec(asked, what+","+raw), spec(asked, what), true, "reviews (asked for)"},
		"one requirement":    {"SubjectAccessReview", spec(asked, selector), spec(asked, strings.Replace(selector, `,{"key":"b","operator":"NotIn","values":["2"]}`, "", 1)), true, "reviews (asked for)"},
		"no subresource":     {"SubjectAccessReview", spec(asked, what), spec(asked, strings.Replace(what, `"subresource":"log",`, "", 1)), true, "reviews (asked for)"},
		"another answer":     {"SubjectAccessReview", spec(asked, what), spec(asked, what), false, "status of the answer"},
		"of the requestor":   {"SelfSubjectAccessReview", spec("", what), spec(`"user":"alice","groups":["system:authenticated"]`, what), true, "reviews (asked for)"},
	} {
		var arrived authorizationv1.SubjectAccessReviewSpec
		if err := json.Unmarshal([]byte(c.arrives), &arrived); err != nil {
			t.Fatal(name, err)
		}
		o := newEvidence().Steps[0]
		o.Request.Body = json.RawMessage(`{"kind":"` + c.kind + `","spec":` + c.asks + `}`)
		o.Response = Response{
			Code: 201,
			Body: `{"kind":"` + c.kind + `","spec":` + c.asks + `,"status":{"allowed":` + map[bool]string{true: "true", false: "false"}[c.allowed] + `}}`,
		}
		v := &stepJudge{
			judge:   &judge{e: newEvidence()},
			o:       &o,
			request: &scenarios.Request{},
			event:   AuditOf(&o),
			decided: []DecidedReview{{Spec: arrived, Decision: scenarios.Allow}},
		}
		v.event.ImpersonatedUser.Username = "bob"
		v.checkAnswer()
		got := ""
		for _, d := range v.result.Differences {
			got += d.Field
		}
		if got != c.field {
			t.Errorf("%s: %q, want %q: %v", name, got, c.field, v.result.Differences)
		}
	}
}
