package wire

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

func chain(all ...vectors.Condition) vectors.SubjectAccessReviewStatus {
	return vectors.SubjectAccessReviewStatus{
		ConditionsChain: []vectors.ConditionSet{{AuthorizerName: "n", FailureMode: vectors.FailDeny, Conditions: all}},
	}
}

// withoutModes returns a chain without failure modes: that is how a revision without failure modes reads the chain.
func withoutModes(chain []vectors.ConditionSet) []vectors.ConditionSet {
	out := slices.Clone(chain)
	for i := range out {
		out[i].FailureMode = ""
	}
	return out
}

var (
	valid  = vectors.Condition{ID: "a", Effect: vectors.Allow, Type: "example.com/t", Condition: "x"}
	nested = vectors.SubjectAccessReviewStatus{
		ConditionsChain: []vectors.ConditionSet{{AuthorizerName: "o", ConditionsChain: chain(valid).ConditionsChain}},
	}
	alone = vectors.SubjectAccessReviewStatus{
		ConditionsChain: []vectors.ConditionSet{{Conditions: []vectors.Condition{{ID: "b", Effect: vectors.Deny}, valid}}},
	}
	union = vectors.SubjectAccessReviewStatus{
		ConditionsChain: []vectors.ConditionSet{{AuthorizerName: "o"}, {AuthorizerName: "p", ConditionsChain: []vectors.ConditionSet{
			{AuthorizerName: "n", Conditions: []vectors.Condition{valid}}, {AuthorizerName: "q", Denied: true},
		}}},
	}
	withMode = vectors.SubjectAccessReviewStatus{
		ConditionsChain: []vectors.ConditionSet{
			{AuthorizerName: "n", FailureMode: vectors.FailNoOpinion, Conditions: []vectors.Condition{valid}},
		},
	}
	mixed = chain(valid, vectors.Condition{ID: "b", Effect: vectors.Deny, Type: "example.com/u", Condition: "y"})
)

// TestJSON compares the JSON of each revision with the names in its text.
func TestJSON(t *testing.T) {
	const head = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":false,`
	for _, c := range []struct {
		w      *Revision
		s      vectors.SubjectAccessReviewStatus
		want   string
		cannot string
	}{
		{Seed, chain(valid), head + `"conditionsChain":[{"failureMode":"Deny","authorizerName":"n","conditions":[{"id":"a","effect":"Allow","type":"example.com/t","condition":"x"}]}]}}`, ""},
		{Seed, nested, "", "a set of sets"},
		{Merged, chain(valid), head + `"conditionSetChain":[{"failureMode":"Deny","authorizerName":"n","conditionsType":"example.com/t","conditions":[{"id":"a","effect":"Allow","condition":"x"}]}]}}`, ""},
		{Merged, nested, head + `"conditionSetChain":[{"authorizerName":"o","conditionSetChain":[{"failureMode":"Deny","authorizerName":"n","conditionsType":"example.com/t","conditions":[{"id":"a","effect":"Allow","condition":"x"}]}]}]}}`, ""},
		{Merged, mixed, "", "conditions of several types in one set"},
		{Upstream, chain(valid), head + `"conditionalDecision":{"type":"Union","union":[{"authorizerName":"n","decision":{"type":"ConditionsMap","conditionsMap":{"allowConditions":[{"id":"a","condition":"x","type":"example.com/t"}]}}}]}}}`, ""},
		{Upstream, alone, head + `"conditionalDecision":{"type":"ConditionsMap","conditionsMap":{"denyConditions":[{"id":"b"}],"allowConditions":[{"id":"a","condition":"x","type":"example.com/t"}]}}}}`, ""},
		{Upstream, union, head + `"conditionalDecision":{"type":"Union","union":[{"authorizerName":"o","decision":{"type":"NoOpinion","noOpinion":{}}},{"authorizerName":"p","decision":{"type":"Union","union":[{"authorizerName":"n","decision":{"type":"ConditionsMap","conditionsMap":{"allowConditions":[{"id":"a","condition":"x","type":"example.com/t"}]}}},{"authorizerName":"q","decision":{"type":"Deny","deny":{}}}]}}]}}}`, ""},
		{Upstream, withMode, "", "a failure mode"},
	} {
		raw, err := c.w.AnswerAccess(c.s)
		var cannot *Inexpressible
		if c.cannot != "" {
			if !errors.As(err, &cannot) || cannot.What != c.cannot {
				t.Errorf("%s: %v, want %s", c.w.Name, err, c.cannot)
			}
			continue
		}
		if err != nil || string(raw) != c.want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", c.w.Name, err, raw, c.want)
		}
		if c.w.Rules.Union {
			c.s.ConditionsChain = withoutModes(c.s.ConditionsChain)
		}
		again, err := c.w.ReadAccess(raw)
		if err != nil || !reflect.DeepEqual(*again, c.s) {
			t.Errorf("%s: %+v, %v, want %+v", c.w.Name, again, err, c.s)
		}
		if known := Recognize(raw); len(known) != 1 || known[0] != c.w {
			t.Errorf("%s: recognized as %v", raw, known)
		}
		q, err := c.w.AskConditions(
			vectors.AuthorizationConditionsRequest{
				UID:           "u",
				ConditionSets: c.s.ConditionsChain,
				ConditionData: vectors.ConditionData{Operation: "CREATE"},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		asked, err := c.w.DecodeConditions(q)
		if err != nil || !reflect.DeepEqual(asked.ConditionSets, c.s.ConditionsChain) || asked.Operation != "CREATE" {
			t.Errorf("%s: %+v, %v", q, asked, err)
		}
		if other := Revisions()[0]; other != c.w {
			if _, err := other.DecodeConditions(q); err == nil || !strings.Contains(err.Error(), "has no conditionSets") {
				t.Errorf("read as %s: %v", other.Name, err)
			}
		}
	}
	raw, err := Seed.AnswerConditions("u", vectors.AuthorizationConditionsResponse{Denied: true, Reason: "r"})
	if err != nil || string(raw) != `{"apiVersion":"authorization.k8s.io/v1alpha1","kind":"AuthorizationConditionsReview","response":{"allowed":false,"denied":true,"reason":"r"}}` {
		t.Errorf("%s, %v", raw, err)
	}
	if _, err := Seed.AnswerConditions("u", chain(valid)); err == nil {
		t.Error("conditions evaluate to conditions")
	}
	_, err = Named("newest")
	if err == nil ||
		err.Error() != `"newest" is not a revision of the wire (expected one of seed, merged, upstream)` {
		t.Error(err)
	}
}

// TestAdmissionRequest checks that the newest revision sends the objects in an AdmissionRequest, as an API server
// would.
func TestAdmissionRequest(t *testing.T) {
	q := vectors.AuthorizationConditionsRequest{UID: "u", ConditionSets: alone.ConditionsChain, ConditionData: vectors.ConditionData{
		Operation: "CREATE",
		Object:    vectors.Object{"metadata": map[string]any{"generateName": "bob-", "name": "bob-x"}},
		Options:   vectors.Object{"dryRun": []any{"All"}},
	}}
	q.Authorized.User, q.Authorized.Groups = "alice", []string{"dev"}
	q.Authorized.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb:      "create",
		Version:   "v1",
		Resource:  "pods",
		Namespace: "shop",
	}
	raw, err := Upstream.AskConditions(q)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"apiVersion":"authorization.k8s.io/v1alpha1","kind":"AuthorizationConditionsReview","request":{"decision":{"type":"ConditionsMap","conditionsMap":{"denyConditions":[{"id":"b"}],"allowConditions":[{"id":"a","condition":"x","type":"example.com/t"}]}},` +
		`"admissionRequest":{"uid":"u","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"requestKind":{"group":"","version":"v1","kind":"Pod"},"requestResource":{"group":"","version":"v1","resource":"pods"},` +
		`"namespace":"shop","operation":"CREATE","userInfo":{"username":"alice","groups":["dev"]},"object":{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"bob-","name":"bob-x"}},"oldObject":null,"dryRun":true,"options":{"dryRun":["All"]}}}}`
	if string(raw) != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
	for name, d := range map[string]vectors.ConditionData{
		"a namespaceObject":      {NamespaceObject: vectors.Object{}},
		"an impersonatedRequest": {ImpersonatedRequest: &vectors.ImpersonatedRequest{}},
	} {
		var cannot *Inexpressible
		_, err := Upstream.AskConditions(vectors.AuthorizationConditionsRequest{ConditionData: d})
		if !errors.As(err, &cannot) || cannot.What != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	for body, want := range map[string]string{
		`{"decision":{"type":"Allow","allow":{}}}`: "the review has no admissionRequest with a uid",
		`{}`: "the review has no decision",
		`{"decision":{"type":"Maybe"},"admissionRequest":{"uid":"u"}}`:                        `the type "Maybe" is none of Deny, NoOpinion, Allow, ConditionsMap and Union`,
		`{"decision":{"type":"Allow"},"admissionRequest":{"uid":"u"}}`:                        "a decision of the type Allow has no member of that name",
		`{"decision":{"type":"Allow","allow":{},"deny":{}}}`:                                  "a decision of the type Allow has a member of the type Deny",
		`{"decision":{"type":"Union","union":[{"decision":{"type":"Allow"}}]}}`:               "a union has a decision without an authorizerName",
		`{"decision":{"type":"Union","union":[{"authorizerName":"a"}]}}`:                      "a union has an authorizer without a decision",
		`{"decision":{"type":"Allow","allow":{}},"admissionRequest":{"uid":"u","object":[]}}`: "the admissionRequest has something that is not an object",
	} {
		review := `{"apiVersion":"authorization.k8s.io/v1alpha1","kind":"AuthorizationConditionsReview","request":` + body + `}`
		if _, err := Upstream.DecodeConditions([]byte(review)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

// TestReply checks that a response repeats the UID, and that it is concrete.
func TestReply(t *testing.T) {
	const head = `{"apiVersion":"authorization.k8s.io/v1alpha1","kind":"AuthorizationConditionsReview","response":`
	raw, err := Upstream.AnswerConditions("u", vectors.AuthorizationConditionsResponse{Denied: true, Reason: "r", EvaluationError: "e"})
	if err != nil || string(raw) != head+`{"uid":"u","decision":{"type":"Deny","deny":{"reason":"r","evaluationError":"e"}}}}` {
		t.Errorf("%s, %v", raw, err)
	}
	got, err := Upstream.ReadConditions(raw)
	if err != nil || !got.Denied || got.Reason != "r" || got.EvaluationError != "e" {
		t.Errorf("%+v, %v", got, err)
	}
	if !Upstream.IsReplyTo("u", raw) || Upstream.IsReplyTo("v", raw) || !Seed.IsReplyTo("v", raw) {
		t.Error("a response to another review is taken, or one to this refused")
	}
	if _, err := Upstream.AnswerConditions("u", alone); err == nil {
		t.Error("conditions evaluate to conditions")
	}
	conditional := head + `{"uid":"u","decision":{"type":"ConditionsMap","conditionsMap":{"allowConditions":[{"id":"a"}]}}}}`
	if got, err := Upstream.ReadConditions([]byte(conditional)); err != nil || got.Decision() != vectors.Conditional {
		t.Errorf("a conditional response: %+v, %v", got, err)
	}
	if _, err := Upstream.ReadConditions([]byte(head + `{"uid":"u"}}`)); err == nil {
		t.Error("a response without a decision is read")
	}
}

// TestFindUnknown checks that exactly the fields that no revision has are found.
func TestFindUnknown(t *testing.T) {
	answer := []byte(`{"status":{"allowed":false,"conditionalDecisionChain":[{"type":"x","conditionsType":"y"}],"conditionalDecision":{},"a":1}}`)
	if got := FindUnknown(answer); !slices.Equal(got, []string{"a", "conditionalDecisionChain"}) {
		t.Error(got)
	}
	if known := Recognize([]byte(`{"status":{"conditionSet":[{"type":"x","conditionsType":"y"}]}}`)); known != nil {
		t.Errorf("a form of nobody is recognized as %v", known)
	}
}

// TestAsked checks that a review of an API server is read leniently, and that a review that cannot be answered is
// refused.
func TestAsked(t *testing.T) {
	const head = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":`
	for body, want := range map[string]string{
		head + `{"user":"u","resourceAttributes":{"verb":"get"},"conditionalAuthorization":{"mode":"Optimized"},"tomorrow":1}}`: "Optimized",
		head + `{"user":"u","resourceAttributes":{},"conditionalAuthorization":{"mode":"Tomorrow"}}}`:                           "",
		head + `{"resourceAttributes":{}}}`: "the spec has neither user nor groups",
		head + `{"user":"u"}}`:              "the spec must have one of resourceAttributes and nonResourceAttributes",
		`{"kind":"SubjectAccessReview"}`:    "it is not of kind SubjectAccessReview of authorization.k8s.io/v1",
		`[]`:                                "the body is not a review in JSON",
	} {
		s, err := Merged.DecodeAccess([]byte(body))
		if got := string(s.Mode()); err == nil && got != want ||
			err != nil && err.Error() != want {
			t.Errorf("%s: %q, %v, want %q", body, got, err, want)
		}
	}
}

// TestCannot checks that each revision has vectors that it cannot express, and that it says why.
func TestCannot(t *testing.T) {
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range Revisions() {
		n := 0
		for _, v := range all {
			if why := w.Cannot(v); why != "" {
				n++
				t.Logf("%s: %s: %s", w.Name, v.ID, why)
			}
		}
		if n == 0 || n > 60 {
			t.Errorf("%s: %d of %d vectors are not applicable", w.Name, n, len(all))
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"u","resourceAttributes":{}},"status":{"conditionsChain":[]}}`))
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1alpha1","kind":"AuthorizationConditionsReview","request":{"conditionSets":[{"authorizerName":"a"}],"object":{}}}`))
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"u","resourceAttributes":{},"authorizationOptions":{"handledDecisionTypes":["Allow","Deny","NoOpinion","Union","ConditionsMap"]}},"status":{"conditionalDecision":{"type":"Union","union":[{"authorizerName":"a","decision":{"type":"ConditionsMap","conditionsMap":{"allowConditions":[{"id":"a/b"}]}}}]}}}`))
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1alpha1","kind":"AuthorizationConditionsReview","request":{"decision":{"type":"NoOpinion","noOpinion":{}},"admissionRequest":{"uid":"u","object":{"a":1}}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, w := range Revisions() {
			if s, err := w.DecodeAccess(body); err == nil {
				if _, err := w.AskAccess(s); err != nil {
					t.Error(err)
				}
			}
			if q, err := w.DecodeConditions(body); err == nil {
				if _, err := w.AskConditions(*q); err != nil {
					t.Error(err)
				}
			}
			if s, err := w.ReadAccess(body); err == nil {
				_ = w.Rules.Validate(*s, vectors.Optimized)
				if _, err := w.AnswerAccess(*s); err != nil && w != Seed {
					t.Error(err)
				}
			}
		}
	})
}
