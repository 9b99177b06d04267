package recorder

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
)

const (
	asV1     = `"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1"`
	question = `"resourceAttributes":{"verb":"get","resource":"pods"}`
)

// spec is a review of the version with the given fields.
func spec(version, fields string) string { return `{` + version + `,"spec":{` + fields + `}}` }

var getPods = &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}

// accepted are reviews, and what they mean.
var accepted = []struct {
	name  string
	body  string
	probe bool
	want  authorizationv1.SubjectAccessReviewSpec
}{{
	name: "v1",
	body: spec(asV1, question+`,"user":"jane","groups":["a","b"],"uid":"1","extra":{"k":["v","w"]}`),
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, User: "jane", UID: "1",
		Groups: []string{"a", "b"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v", "w"}}},
}, {
	name: "v1 knows no group",
	body: spec(asV1, question+`,"user":"jane","group":["a"]`),
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, User: "jane"},
}, {
	name: "v1 does not judge a group",
	body: spec(asV1, question+`,"user":"jane","group":7`),
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, User: "jane"},
}, {
	name: "groups and no user",
	body: spec(asV1, question+`,"groups":["a"]`),
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, Groups: []string{"a"}},
}, {
	name: "non-resource",
	body: spec(asV1, `"nonResourceAttributes":{"path":"/healthz","verb":"get"},"user":"jane"`),
	want: authorizationv1.SubjectAccessReviewSpec{User: "jane",
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/healthz", Verb: "get"}},
}, {
	name: "probe", probe: true,
	body: spec(asV1, question+`,"user":"jane","extra":{"authzconf.dev/probe":["1"]}`),
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, User: "jane",
		Extra: map[string]authorizationv1.ExtraValue{ProbeExtraKey: {"1"}}},
}, {
	name: "probe in escapes", probe: true,
	body: spec(asV1, question+`,"user":"jane","extra":{"authzconf.dev\/prob\u0065":[]}`),
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, User: "jane",
		Extra: map[string]authorizationv1.ExtraValue{ProbeExtraKey: {}}},
}, {
	name: "the probe key elsewhere",
	body: spec(asV1, question+`,"user":"jane","extra":{"k":["authzconf.dev/probe"]}`),
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, User: "jane",
		Extra: map[string]authorizationv1.ExtraValue{"k": {ProbeExtraKey}}},
}, {
	name: "as 1.33 writes it",
	body: `{` + asV1 + `,"metadata":{"creationTimestamp":null},"spec":{` + question + `,"user":"jane"},"status":{"allowed":false}}` + "\n",
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, User: "jane"},
}, {
	name: "spaced",
	body: "\n { " + asV1 + " ,\t\"spec\" : { " + question + " , \"user\" : \"jane\" , \"groups\" : [ ] } }\r\n",
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, User: "jane", Groups: []string{}},
}, {
	name: "fields of the future",
	body: spec(asV1, question+`,"user":"jane","conditions":{"mode":"x"}`),
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, User: "jane"},
}, {
	name: "names are case-sensitive",
	body: spec(asV1, question+`,"user":"jane","User":"bob"`),
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, User: "jane"},
}, {
	name: "the last of two users",
	body: spec(asV1, question+`,"user":"jane","user":"bob"`),
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, User: "bob"},
}, {
	name: "about nobody",
	body: spec(asV1, question+`,"user":"","groups":[],"uid":"1"`),
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, Groups: []string{}, UID: "1"},
}, {
	name: "no question",
	body: spec(asV1, `"user":"jane"`),
	want: authorizationv1.SubjectAccessReviewSpec{User: "jane"},
}, {
	name: "nothing",
	body: `{` + asV1 + `,"spec":null}`,
}, {
	name: "beyond ASCII",
	body: spec(asV1, question+`,"user":"jané <j\u0061ne>"`),
	want: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods, User: "jané <jane>"},
}}

func TestReadReview(t *testing.T) {
	for _, tc := range accepted {
		t.Run(tc.name, func(t *testing.T) {
			got, err := readReview([]byte(tc.body))
			if diff := cmp.Diff(tc.want, got.spec); err != nil || diff != "" || got.probe() != tc.probe {
				t.Errorf("probe %v, %v\n%s", got.probe(), err, diff)
			}
		})
	}
}

// refused are no reviews, and why.
var refused = []struct{ name, body, want string }{
	{"nothing", ``, "unexpected end of JSON input"},
	{"no JSON", `hello`, "invalid character 'h'"},
	{"half a review", spec(asV1, question)[:60], "unexpected end of JSON input"},
	{"two reviews", spec(asV1, question+`,"user":"a"`) + `{}`, "after top-level value"},
	{"null", `null`, `kind is ""`},
	{"a list", `[]`, "cannot unmarshal array"},
	{"no kind", `{"apiVersion":"authorization.k8s.io/v1","spec":{"user":"a",` + question + `}}`, `kind is ""`},
	{"another kind", strings.Replace(spec(asV1, question+`,"user":"a"`), kind, "TokenReview", 1), `kind is "TokenReview"`},
	{"no version", `{"kind":"SubjectAccessReview","spec":{"user":"a",` + question + `}}`, `apiVersion is ""`},
	{"another version", strings.Replace(spec(asV1, question+`,"user":"a"`), "/v1", "/v2", 1), `apiVersion is "authorization.k8s.io/v2"`},
	{"v1beta1", strings.Replace(spec(asV1, question+`,"user":"a"`), "/v1", "/v1beta1", 1), `apiVersion is "authorization.k8s.io/v1beta1"`},
	{"another group", strings.Replace(spec(asV1, question+`,"user":"a"`), "authorization.", "authentication.", 1), `apiVersion is "authentication.k8s.io/v1"`},
	{"user of the wrong type", spec(asV1, question+`,"user":7`), "cannot unmarshal number"},
	{"groups of the wrong type", spec(asV1, question+`,"user":"a","groups":"b"`), "cannot unmarshal string"},
	{"extra of the wrong type", spec(asV1, question+`,"user":"a","extra":{"k":"v"}`), "cannot unmarshal string"},
	{"a question of the wrong type", spec(asV1, `"user":"a","resourceAttributes":"get"`), "cannot unmarshal string"},
	{"too deep", spec(asV1, `"x":`+strings.Repeat("[", 20_000)), "exceeded max depth"},
}

func TestReadReviewRefuses(t *testing.T) {
	for _, tc := range refused {
		t.Run(tc.name, func(t *testing.T) {
			_, err := readReview([]byte(tc.body))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestReasonIsOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"a\r\n b\tc":                    "a b c",
		strings.Repeat("x", 300):        strings.Repeat("x", 300),
		strings.Repeat("x", 299) + "é…": strings.Repeat("x", 299) + "…",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// FuzzReadReview holds that what is accepted is JSON, and that what is not is said in one line.
func FuzzReadReview(f *testing.F) {
	seeds, err := filepath.Glob("testdata/reviews/*.json")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range seeds {
		body, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(nodeAgentReview))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := readReview(body)
		if err != nil {
			if reason := oneLine(err.Error()); reason == "" || strings.ContainsAny(reason, "\r\n") || len(reason) > maxReason+len("…") {
				t.Fatalf("reason %q", reason)
			}
			return
		}
		if !json.Valid(body) {
			t.Fatalf("accepted: %+v", r)
		}
		if verb, ok := writtenVerb(body); ok &&
			(verb != r.verb() || r.probe()) {
			t.Fatalf("counted as %q: %+v", verb, r)
		}
	})
}
