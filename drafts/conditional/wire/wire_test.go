package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

func chain(all ...vectors.Condition) vectors.SubjectAccessReviewStatus {
	return vectors.SubjectAccessReviewStatus{ConditionsChain: []vectors.ConditionSet{{AuthorizerName: "n", FailureMode: vectors.FailDeny, Conditions: all}}}
}

var (
	valid  = vectors.Condition{ID: "a", Effect: vectors.Allow, Type: "example.com/t", Condition: "x"}
	nested = vectors.SubjectAccessReviewStatus{ConditionsChain: []vectors.ConditionSet{{AuthorizerName: "o", ConditionsChain: chain(valid).ConditionsChain}}}
	mixed  = chain(valid, vectors.Condition{ID: "b", Effect: vectors.Deny, Type: "example.com/u", Condition: "y"})
)

// TestJSON holds the names of each text.
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
		again, err := c.w.ReadAccess(raw)
		if err != nil || !reflect.DeepEqual(*again, c.s) {
			t.Errorf("%s: %+v, %v, want %+v", c.w.Name, again, err, c.s)
		}
		if told := Told(raw); len(told) != 1 || told[0] != c.w {
			t.Errorf("%s: told %v", raw, told)
		}
		q, err := c.w.AskConditions(vectors.AuthorizationConditionsRequest{ConditionSets: c.s.ConditionsChain, ConditionData: vectors.ConditionData{Operation: "CREATE"}})
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
	raw, err := Seed.AnswerConditions(vectors.AuthorizationConditionsResponse{Denied: true, Reason: "r"})
	if err != nil || string(raw) != `{"apiVersion":"authorization.k8s.io/v1alpha1","kind":"AuthorizationConditionsReview","response":{"allowed":false,"denied":true,"reason":"r"}}` {
		t.Errorf("%s, %v", raw, err)
	}
	if _, err := Seed.AnswerConditions(chain(valid)); err == nil {
		t.Error("conditions evaluate to conditions")
	}
	if _, err := Named("newest"); err == nil || err.Error() != `"newest" is not a revision of the wire (expected one of seed, merged)` {
		t.Error(err)
	}
}

// TestAsked: what an API server sends is read leniently, and what cannot be answered is refused.
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
		if got := string(s.Mode()); err == nil && got != want || err != nil && err.Error() != want {
			t.Errorf("%s: %q, %v, want %q", body, got, err, want)
		}
	}
}

// TestCannot: each revision has vectors that it cannot say, and says why.
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
		if n == 0 || n > 20 {
			t.Errorf("%s: %d of %d vectors are not applicable", w.Name, n, len(all))
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"u","resourceAttributes":{}},"status":{"conditionsChain":[]}}`))
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1alpha1","kind":"AuthorizationConditionsReview","request":{"conditionSets":[{"authorizerName":"a"}],"object":{}}}`))
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
