package oracle_test

import (
	"testing"
	"time"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// TestPlayAt asks the same three times, each request of 4 ms, and wants reviews by when the second and third came: what
// was remembered is found until ten seconds are over, and finding it does not make it younger.
func TestPlayAt(t *testing.T) {
	grant := func(verb, group, resource string) scenarios.Grant {
		return scenarios.Grant{
			Subject:   scenarios.Subject{User: "caller"},
			Verbs:     []string{verb},
			APIGroups: []string{group},
			Resources: []string{resource},
		}
	}
	step := scenarios.Step{
		Request: &scenarios.Request{By: "caller", Verb: "list", Resource: "pods", Impersonate: &scenarios.Impersonate{User: "wanda"}},
	}
	s := &scenarios.Scenario{
		Requestors: map[string]scenarios.Requestor{"caller": {User: "caller"}},
		Grants: []scenarios.Grant{
			grant("impersonate:user-info", "authentication.k8s.io", "users"),
			grant("impersonate-on:user-info:list", "", "pods"),
		},
		Steps: []scenarios.Step{step, {Wait: scenarios.Duration(time.Second)}, step, step},
	}
	const first, found = 3, 1 // reviews: of action, identity and the request itself, or of that alone
	for name, test := range map[string]struct {
		second, third time.Duration
		reviews       []int // of those that are sure
	}{
		"just before, and just after": {9990 * time.Millisecond, 10010 * time.Millisecond, []int{first, found, first}},
		"just after, and remembered":  {10010 * time.Millisecond, 20 * time.Second, []int{first, first, found}},
		"too close to tell":           {9999 * time.Millisecond, 10010 * time.Millisecond, []int{first}},
		"at its end":                  {10003 * time.Millisecond, 12 * time.Second, []int{first}},
		"when it was stored at last":  {10004 * time.Millisecond, 12 * time.Second, []int{first, first, found}},
	} {
		var times []oracle.Span
		for _, at := range []time.Duration{0, test.second, test.third} {
			times = append(times, oracle.Span{Sent: at, Answered: at + 4*time.Millisecond})
		}
		played, sure, err := oracle.PlayAt(
			s,
			scenarios.Facts{Kubernetes: "1.37", Binary: "1.37", Gate: scenarios.GateOn},
			fixtures.FS,
			times,
		)
		if err != nil || sure != len(test.reviews) {
			t.Errorf("%s: %d requests are sure, %v; want %d", name, sure, err, len(test.reviews))
			continue
		}
		for i, want := range test.reviews {
			if got := len(played[i].Prediction.Expect().Reviews); got != want {
				t.Errorf("%s: request %d has %d reviews, want %d", name, i+1, got, want)
			}
		}
	}
}
