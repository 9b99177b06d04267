package verdicts

import (
	"cmp"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
)

func TestJudgeBackend(t *testing.T) {
	bob := scenarios.User{Name: "bob", Groups: []string{"system:authenticated"}}
	told := scenarios.User{Name: "bob-" + suffix, Groups: bob.Groups}
	for name, test := range map[string]struct {
		want  []scenarios.User
		seen  []BackendRequest
		field string
	}{
		"as wanted":       {[]scenarios.User{bob}, []BackendRequest{{User: told}}, ""},
		"not judged":      {nil, []BackendRequest{{User: told}}, ""},
		"none, as wanted": {[]scenarios.User{}, nil, ""},
		"not reached":     {[]scenarios.User{bob}, nil, "backend"},
		"reached":         {[]scenarios.User{}, []BackendRequest{{User: told}}, "backend"},
		"the requestor":   {[]scenarios.User{bob}, []BackendRequest{{User: scenarios.User{Name: "alice-" + suffix}}}, "backend"},
		"another request": {[]scenarios.User{bob}, []BackendRequest{{Method: "PUT", User: told}}, "backend (request)"},
		"told of impersonation": {[]scenarios.User{bob}, []BackendRequest{{User: told, Impersonation: map[string][]string{"Impersonate-User": {"bob"}}}},
			"backend (impersonation headers)"},
	} {
		s, e := listAsBob(), newEvidence()
		for i, r := range test.seen {
			test.seen[i].Method, test.seen[i].URL = cmp.Or(r.Method, "GET"), e.Steps[0].Request.URL
		}
		s.Steps[0].Expect.Backend, e.Steps[0].Backend = test.want, test.seen
		r := Judge(s, e)
		switch {
		case test.field == "" && r.Verdict != Passed:
			t.Errorf("%s: %s: %s", name, r.Verdict, r.Reason)
		case test.field != "" &&
			(len(r.Differences) == 0 || r.Differences[0].Field != test.field):
			t.Errorf("%s: %s %v, want a difference in %s", name, r.Verdict, r.Differences, test.field)
		}
	}
}
