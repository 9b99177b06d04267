package reference

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// members decides by groups: it allows the members of a group, and denies one user.
func members(r authorizationv1.SubjectAccessReviewSpec) scenarios.Decision {
	switch {
	case r.User == "banned":
		return scenarios.Deny
	case len(r.Groups) == 1 && r.Groups[0] == "team":
		return scenarios.Allow
	}
	return scenarios.NoOpinion
}

func TestHandler(t *testing.T) {
	const attributes = `"nonResourceAttributes":{"verb":"get","path":"/"}`
	review := func(version, rest string) string {
		return `{"apiVersion":"authorization.k8s.io/` + version + `","kind":"SubjectAccessReview","spec":{` + rest + `}}`
	}
	for body, want := range map[string]string{
		review("v1", `"user":"u","groups":["team"],`+attributes):     `"allowed":true,"denied":false`,
		review("v1", `"user":"u","group":["team"],`+attributes):      `"allowed":false,"denied":false`,
		review("v1beta1", `"user":"u","group":["team"],`+attributes): `"allowed":true,"denied":false`,
		review("v1", `"user":"banned",`+attributes):                  `"allowed":false,"denied":true`,
		review("v1", `"new":1,"groups":["team"],`+attributes):        `"allowed":true,"denied":false`,
		review("v1", attributes):                                     "neither user nor groups",
		review("v1", `"user":"u"`):                                   "one of resourceAttributes",
		review("v2", `"user":"u",`+attributes):                       "apiVersion",
		`{"kind":"Pod"}`:                                             "kind",
		"":                                                           "not a JSON",
	} {
		rec := httptest.NewRecorder()
		Handler(members).ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		if !strings.Contains(rec.Body.String(), want) {
			t.Errorf("%s: expected %s, got %s", body, want, rec.Body)
		}
		if refused := !strings.HasPrefix(want, `"`); refused != (rec.Code == http.StatusBadRequest) {
			t.Errorf("%s: code %d", body, rec.Code)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","spec":{"user":"u","group":["g"],"nonResourceAttributes":{}}}`))
	f.Add([]byte(`{"kind":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		version, spec, err := Decode(body)
		if err == nil &&
			(version != V1 && version != V1beta1 ||
				spec.User == "" && len(spec.Groups) == 0) {
			t.Errorf("%q is accepted", body)
		}
	})
}
