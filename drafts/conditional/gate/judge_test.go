package gate

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/docs"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/verdicts"
)

const lazily = `
description: A conditional allow that comes to no opinion has the next authorizer asked.
source: {document: KEP-5681, section: Proposal}
level: must
apiServer:
  chain:
    - {decision: Conditional, conditions: [{id: a, effect: Allow, type: example.com/t, condition: x, is: false}]}
    - {decision: Deny}
  want: {authorized: ConditionalAllow, asked: [a0], proceeds: true, conditionsChain: [a0 conditions, a1 denied], askedLater: [a1], evaluatedBy: [a0], decision: Deny, admitted: false}
  eager: {asked: [a0, a1], askedLater: []}
`

func parsed(t *testing.T, text string) []*vectors.Vector {
	t.Helper()
	all, err := vectors.Parse("v.vector.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// right returns what is seen of a correct server.
func right() *Play {
	allow := []vectors.Condition{{ID: "a", Effect: vectors.Allow, Type: "example.com/t", Condition: "x"}}
	refused := &Sent{
		Code:        http.StatusForbidden,
		Events:      []string{"asked a0", "admission", "evaluates a0", "asked a1"},
		Message:     `configmaps "c" is forbidden: User "u" cannot create resource "configmaps" in API group ""`,
		Annotations: map[string]string{conditionalAnnotation: "true"},
	}
	review := func() *vectors.SubjectAccessReviewStatus {
		return &vectors.SubjectAccessReviewStatus{ConditionsChain: []vectors.ConditionSet{
			{AuthorizerName: "a0-deny", FailureMode: vectors.FailDeny, Conditions: allow}, {AuthorizerName: "a1-deny", Denied: true},
		}}
	}
	return &Play{Server: "kube-apiserver v9", Form: newestForm, Seen: []*VectorEvidence{{
		Vector: "v", Starts: true, Form: newestForm, Request: refused, Alone: refused, Behind: &Sent{Code: http.StatusForbidden},
		Review: review(), Reviews: map[string]*vectors.SubjectAccessReviewStatus{localReview: review(), selfReview: review()},
	}}}
}

// TestJudge checks that every field that is seen is judged.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name, why string
		change    func(*VectorEvidence)
	}{
		{"all of it right", "", func(*VectorEvidence) {}},
		{"another is asked", "asked: want [a0], got [a0 a1]", func(s *VectorEvidence) { s.Request.Events = slices.Insert(s.Request.Events, 1, "asked a1") }},
		{"nobody is asked later", "askedLater: want [a1], got []", func(s *VectorEvidence) { s.Request.Events = s.Request.Events[:3] }},
		{"nothing is evaluated", "evaluatedBy: want [a0], got []", func(s *VectorEvidence) { s.Request.Events = slices.Delete(s.Request.Events, 2, 3) }},
		{"evaluated without the object", "conditions are evaluated by other data than admission has", func(s *VectorEvidence) { s.Request.Events[2] += forObject + "-1" }},
		{"refused by the filter", "proceeds: want true, got false", func(s *VectorEvidence) { s.Request.Events = []string{"asked a0"} }},
		{"let through", "admitted: want false, got true", func(s *VectorEvidence) { s.Request.Code = http.StatusCreated }},
		{"Deny is no opinion", "decision: want Deny, got NoOpinion", func(s *VectorEvidence) { s.Behind.Code = http.StatusCreated }},
		{"shown as allowed", "authorized: want ConditionalAllow, got Allow", func(s *VectorEvidence) { s.Review = &vectors.SubjectAccessReviewStatus{Allowed: true} }},
		{"a set is not shown", "conditionsChain: want [a0 conditions a1 denied], got [a0 conditions]", func(s *VectorEvidence) { s.Review.ConditionsChain = s.Review.ConditionsChain[:1] }},
		{"no answer to a request", "the request is answered 503", func(s *VectorEvidence) { s.Request.Code = http.StatusServiceUnavailable }},
		{"the user's own review shows something else", "a SelfSubjectAccessReview shows", func(s *VectorEvidence) { s.Reviews[selfReview].ConditionsChain = nil }},
		{"a validating webhook is called for what is refused", "before conditions are enforced", func(s *VectorEvidence) { s.Request.Events = append(s.Request.Events, validation) }},
		{"a policy is evaluated for what is refused", "before conditions are enforced", func(s *VectorEvidence) { s.Request.Annotations[policyAnnotation] = "true" }},
		{"a webhook sees conditions", "an admission webhook sees conditions", func(s *VectorEvidence) { s.Request.Events = slices.Insert(s.Request.Events, 2, admission+exposed) }},
		{"the audit event does not say that there were conditions", "the audit annotation " + conditionalAnnotation, func(s *VectorEvidence) { delete(s.Request.Annotations, conditionalAnnotation) }},
		{"a server of the KEP's text need not say so", "", func(s *VectorEvidence) {
			delete(s.Request.Annotations, conditionalAnnotation)
			s.Form = "conditionsEndpointKubeConfigContext"
		}},
		{"the refusal does not say what is refused", `the refusal is "no"`, func(s *VectorEvidence) { s.Request.Message = "no" }},
		{"it does not start", "", func(s *VectorEvidence) { *s = VectorEvidence{Vector: "v"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := right()
			c.change(p.Seen[0])
			got, _ := judgeOne(t, lazily, p)
			want := verdicts.Failed
			switch {
			case c.name == "it does not start": // the vector does not state whether it starts
				want = verdicts.NotSupported
			case c.why == "":
				want = verdicts.Passed
			}
			if got.Verdict != want || !strings.Contains(strings.Join(got.Why, "; "), c.why) {
				t.Errorf("%s: %q; want %s, %q", got.Verdict, got.Why, want, c.why)
			}
		})
	}
}

// judgeOne judges what was seen of a vector, in the reading that was chosen for the server.
func judgeOne(t *testing.T, text string, p *Play) (vectors.Result, vectors.Reading) {
	t.Helper()
	all, seen := parsed(t, text), map[string]*VectorEvidence{}
	for _, s := range p.Seen {
		seen[s.Vector] = s
	}
	reading := ChooseReading(all, seen)
	r, _ := seen["v"].Judge(all[0], reading)
	return r, reading
}

// TestReading checks that a server that asks the whole chain at first is judged by the eager reading, and that the
// reading is reported.
func TestReading(t *testing.T) {
	p := right()
	p.Seen[0].Request.Events = []string{"asked a0", "asked a1", "admission", "evaluates a0"}
	if r, reading := judgeOne(t, lazily, p); r.Verdict != verdicts.Passed || reading != vectors.Eager {
		t.Errorf("%v, %s", r, reading)
	}
	if _, reading := judgeOne(t, lazily, right()); reading != vectors.Lazy {
		t.Error(reading)
	}
}

// TestAdvice checks that a vector passes although the server does not follow advice.
func TestAdvice(t *testing.T) {
	p := right()
	p.Seen[0].Request.Code = http.StatusCreated
	r, _ := judgeOne(t, strings.Replace(lazily, "level: must", "level: should", 1), p)
	if r.Verdict != verdicts.Passed || !strings.HasPrefix(strings.Join(r.Why, ""), "the text advises otherwise: ") {
		t.Errorf("%+v", r)
	}
}

var update = flag.Bool("update", false, "write the table of docs/conditional-results.md")

// TestDocs compares the table on the page with the vectors that can run, and with the reasons why the others cannot.
func TestDocs(t *testing.T) {
	all := builtin(t, func(v *vectors.Vector) bool { return v.APIServer != nil })
	counts := map[string][]int{}
	for i, w := range wire.Revisions() {
		for _, v := range all {
			why := Cannot(v, w)
			if counts[why] == nil {
				counts[why] = make([]int, len(wire.Revisions()))
			}
			counts[why][i]++
		}
	}
	var b strings.Builder
	b.WriteString("| API-server vectors |")
	for _, w := range wire.Revisions() {
		_, _ = fmt.Fprintf(&b, " `%s` |", w.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(wire.Revisions())) + "\n")
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		text := "not supported: " + why
		if why == "" {
			text = "played"
		}
		_, _ = fmt.Fprintf(&b, "| %s |", text)
		for _, n := range counts[why] {
			_, _ = fmt.Fprintf(&b, " %d |", n)
		}
		b.WriteString("\n")
	}
	docs.ComparePart(t, "../../../docs/conditional-results.md", "gate", b.String(), *update)
}

// TestInOrder checks the order of conditions and other validation: nothing may validate a request before its conditions
// were evaluated.
func TestInOrder(t *testing.T) {
	for _, c := range []struct {
		events  []string
		inOrder bool
	}{
		{[]string{"asked a0", admission, "evaluates a0", validation}, true},
		{[]string{"asked a0", admission, validation}, true},
		{[]string{"asked a0", admission, validation, "evaluates a0"}, false},
	} {
		if got := (&Sent{Code: http.StatusCreated, Events: c.events}).isInOrder(); got != c.inOrder {
			t.Errorf("%v: %t", c.events, got)
		}
	}
}

// TestJudgeCheck checks that a check passes only with exactly the lines that it wants.
func TestJudgeCheck(t *testing.T) {
	c := Check{Want: []string{"a", "b"}}
	for _, lines := range [][]string{{"a"}, {"a", "c"}, {"a", "b", "c"}, nil} {
		if r := c.Judge(&CheckEvidence{Lines: lines}); r.Verdict != verdicts.Failed || len(r.Why) == 0 {
			t.Errorf("%v: %+v", lines, r)
		}
	}
	if r := c.Judge(&CheckEvidence{Lines: []string{"a", "b"}}); r.Verdict != verdicts.Passed {
		t.Errorf("%+v", r)
	}
}
