package verdicts

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// now is when the tokens of these tests were requested.
var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// podToken has the claims of a token for ten minutes that is bound to a pod on a node.
var podToken = fmt.Sprintf(
	`{"aud":["api"],"exp":%d,"iat":%d,"iss":"api","jti":"1","kubernetes.io":{"namespace":"n","node":{"name":"node1","uid":"u3"},`+
		`"pod":{"name":"p","uid":"u2"},"serviceaccount":{"name":"agent","uid":"u1"}},"nbf":%[2]d,"sub":"system:serviceaccount:n:agent"}`,
	now.Unix()+600,
	now.Unix(),
)

// podRequest is what the API server answers when that token is requested.
var podRequest = `{"kind":"TokenRequest","metadata":{"name":"agent","namespace":"n","uid":"u1"},"spec":{"audiences":["api"],"expirationSeconds":600,` +
	`"boundObjectRef":{"kind":"Pod","name":"p"}},"status":{"token":"[redacted]","expirationTimestamp":"2026-05-04T12:10:00Z"}}`

// TestClaimsAsRequested checks that a token has the claims which, by the answer that it comes with, were requested.
func TestClaimsAsRequested(t *testing.T) {
	seconds := func(n int) string { return fmt.Sprint(now.Unix() + int64(n)) }
	asKubelets := strings.NewReplacer(`"expirationSeconds":600`, `"expirationSeconds":3607`, "12:10:00", "13:00:07").Replace(podRequest)
	for name, c := range map[string]struct {
		answer, was, is string
		failed          bool
	}{
		"as it was asked for":           {podRequest, "", "", false},
		"a second later":                {strings.Replace(podRequest, "12:10:00", "12:10:01", 1), "", "", false},
		"of an answer without UID":      {strings.Replace(podRequest, `,"uid":"u1"`, "", 1), "", "", false},
		"without any UID":               {strings.Replace(podRequest, `,"uid":"u1"`, "", 1), `"uid":"u1"`, `"uid":""`, true},
		"another end in the answer":     {strings.Replace(podRequest, "12:10:00", "12:20:00", 1), "", "", true},
		"of another account":            {podRequest, `account:n:agent`, `account:n:eve`, true},
		"of another UID":                {podRequest, `"u1"`, `"u9"`, true},
		"in another namespace":          {podRequest, `"namespace":"n"`, `"namespace":"m"`, true},
		"for somebody else":             {podRequest, `["api"]`, `["vault"]`, true},
		"for nobody":                    {podRequest, `["api"]`, `null`, true},
		"without an ID":                 {podRequest, `"jti":"1",`, ``, true},
		"without an end":                {podRequest, `"exp":` + seconds(600) + ",", ``, true},
		"with an early end":             {podRequest, `"exp":` + seconds(600), `"exp":` + seconds(60), true},
		"of another time":               {podRequest, `"iat":` + seconds(0), `"iat":` + seconds(-7200), true},
		"good since ever":               {podRequest, `"nbf":` + seconds(0), `"nbf":0`, true},
		"of another pod":                {podRequest, `"name":"p"`, `"name":"q"`, true},
		"of a pod without UID":          {podRequest, `"uid":"u2"`, `"uid":""`, true},
		"of no pod":                     {podRequest, `"pod":`, `"cod":`, true},
		"of a Secret too":               {podRequest, `"pod":`, `"secret":{"name":"s","uid":"u4"},"pod":`, true},
		"stale at once":                 {podRequest, `"pod":`, `"warnafter":` + seconds(0) + `,"pod":`, true},
		"as kubelets get it":            {asKubelets, `"exp":` + seconds(600), `"warnafter":0,"exp":` + seconds(3607), false},
		"no claims":                     {podRequest, podToken, `null`, true},
		"an answer that says nothing":   {"{}", "", "", true},
		"an answer that cannot be read": {"<html>", "", "", true},
	} {
		v := &stepJudge{judge: &judge{}, o: &Observation{Sent: now, Answered: now.Add(time.Second),
			Response: Response{Body: c.answer, Claims: json.RawMessage(strings.Replace(podToken, c.was, c.is, 1))}}}
		if v.checkTokenRequest(); (len(v.result.Differences) > 0) != c.failed {
			t.Errorf("%s: %v", name, v.result.Differences)
		}
	}
	long := strings.NewReplacer(`"pod":`, `"warnafter":`+seconds(3607)+`,"pod":`, `"exp":`+seconds(600), `"exp":`+seconds(365*24*3600)).
		Replace(podToken)
	v := &stepJudge{judge: &judge{}, o: &Observation{Sent: now, Response: Response{Body: asKubelets, Claims: json.RawMessage(long)}}}
	if v.checkTokenRequest(); len(v.result.Differences) > 0 {
		t.Errorf("to be replaced after 3,607 s, and good for a year: %v", v.result.Differences)
	}
}

// TestTokenReviewNamesOwner checks that a TokenReview of a good token says completely whose it is, and that one of a bad token says
// only why it is bad.
func TestTokenReviewNamesOwner(t *testing.T) {
	const good = `{"kind":"TokenReview","spec":{"token":"[redacted]"},"status":{"authenticated":true,"audiences":["api"],"user":{"username":"system:serviceaccount:n:agent","uid":"u1",` +
		`"groups":["system:serviceaccounts","system:serviceaccounts:n","system:authenticated"],"extra":{"authentication.kubernetes.io/credential-id":["JTI=1"],` +
		`"authentication.kubernetes.io/node-name":["node1"],"authentication.kubernetes.io/node-uid":["u3"],"authentication.kubernetes.io/pod-name":["p"],"authentication.kubernetes.io/pod-uid":["u2"]}}}}`
	const bad = `{"kind":"TokenReview","spec":{"token":"[redacted]"},"status":{"error":"[invalid bearer token, it has expired]","user":{}}}`
	for name, c := range map[string]struct {
		answer, was, is, message string
		failed                   bool
	}{
		"good":                      {good, "", "", "", false},
		"of another UID":            {good, `"u1"`, `"u9"`, "", true},
		"of another node":           {good, `node1`, `node2`, "", true},
		"for another audience":      {good, `["api"]`, `["vault"]`, "", true},
		"not known to be signed in": {good, `,"system:authenticated"`, ``, "", true},
		"without its ID":            {good, `["JTI=1"]`, `["1"]`, "", true},
		"not good":                  {good, `true`, `false`, "", true},
		"good, with an error":       {good, `"audiences"`, `"error":"but","audiences"`, "", true},
		"good, and should not be":   {good, "", "", "[invalid bearer token, it has expired]", true},
		"expired":                   {bad, "", "", "[invalid bearer token, it has expired]", false},
		"of somebody all the same":  {bad, `"user":{}`, `"user":{"username":"eve"}`, "[invalid bearer token, it has expired]", true},
		"expired, and should not":   {bad, "", "", "", true},
		"not to be read":            {"<html>", "", "", "", true},
	} {
		request := &scenarios.Request{Verb: "create", Body: map[string]any{"kind": "TokenReview", "spec": map[string]any{"token": "agent"}}}
		v := &stepJudge{judge: &judge{}, request: request, expect: &scenarios.Expect{Message: c.message}, o: &Observation{
			Request:  SentRequest{Claims: json.RawMessage(podToken)},
			Response: Response{Code: codeCreated, Body: strings.Replace(c.answer, c.was, c.is, 1)}}}
		v.checkMessage()
		if v.checkTokenReview(); (len(v.result.Differences) > 0) != c.failed {
			t.Errorf("%s: %v", name, v.result.Differences)
		}
	}
}

// TestTokenReviewAsksAboutNamedRequestor checks that a TokenReview has to ask about a token of the requestor that the scenario names.
func TestTokenReviewAsksAboutNamedRequestor(t *testing.T) {
	agent := scenarios.Requestor{ServiceAccount: &scenarios.ServiceAccount{Namespace: "n", Name: "agent", Pod: "p", Node: "node1"}}
	request := &scenarios.Request{By: "operator", Verb: "create", Resource: "tokenreviews", APIGroup: "authentication.k8s.io",
		Body: map[string]any{"kind": "TokenReview", "spec": map[string]any{"token": "agent"}}}
	for claims, sent := range map[string]bool{podToken: true, "": false, strings.ReplaceAll(podToken, "agent", "eve"): false} {
		s := &scenarios.Scenario{Requestors: map[string]scenarios.Requestor{"agent": agent, "operator": {User: "operator"}}}
		o := &Observation{
			Request: SentRequest{
				Requestor:  "operator",
				Credential: &scenarios.User{Name: "operator"},
				Method:     "POST",
				URL:        request.URI(),
				UserAgent:  request.UserAgent(),
				Headers:    request.WireHeaders(),
				Body:       json.RawMessage(`{"kind":"TokenReview","spec":{"token":"[redacted]"}}`),
				Claims:     json.RawMessage(claims),
			},
		}
		v := &stepJudge{judge: &judge{s: s}, request: request, requestor: s.Requestors["operator"], o: o}
		if problem := v.checkSent(); (problem == "") != sent {
			t.Errorf("%.60s: %q", claims, problem)
		}
	}
}

// TestClaimsIn checks that claims are found where a token is, and only in what is a token.
func TestClaimsIn(t *testing.T) {
	token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(podToken)) + ".c2lnbmVk"
	for body, want := range map[string]string{
		`{"spec":{"token":"` + token + `"}}`:   podToken,
		`{"status":{"token":"` + token + `"}}`: podToken,
		`{"spec":{"token":"opaque"}}`:          "",
		`{"spec":{"token":"a.b.c"}}`:           "",
		`{"spec":{"token":7}}`:                 "",
		`<html>`:                               "",
	} {
		if got := string(ClaimsIn([]byte(body))); got != want {
			t.Errorf("%.60s: %s", body, got)
		}
	}
}
