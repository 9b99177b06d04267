package cases

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/scenarios"
)

// twinID is what the IDs of the grants begin with that AddTwins adds.
const twinID = "twin-"

// AddTwins returns a scenario with what a file with denials has to have: after its steps, the users are granted
// everything, and the denied requests, given by the indices of their steps, come again and are allowed. It returns false
// where that is impossible: where users have no unique name, everything would be granted to those of other scenarios as
// well, and a request without a user is never allowed.
func AddTwins(s *scenarios.Scenario, denied []int) (*scenarios.Scenario, bool) {
	out := WithoutExpectations(s)
	everything := []scenarios.Grant{{APIGroups: []string{"*"}, Resources: []string{"*"}}}
	if slices.ContainsFunc(denied, func(i int) bool { return s.Steps[i].Request.Path != "" }) {
		everything = append(everything, scenarios.Grant{NonResourceURLs: []string{"*"}})
	}
	var users []string
	var repeated []scenarios.Step
	for _, i := range denied {
		r := s.Steps[i].Request
		users = append(users, s.Requestors[r.By].Username())
		if r.Impersonate != nil {
			users = append(users, r.Impersonate.User)
		}
		same := func(st scenarios.Step) bool { return reflect.DeepEqual(st.Request, r) }
		if !slices.ContainsFunc(repeated, same) {
			q := *r
			repeated = append(repeated, scenarios.Step{Request: &q})
		}
	}
	for _, user := range sets.List(sets.New(users...)) {
		if !isUniqueUser(user) {
			return s, false
		}
		for _, g := range everything {
			g.ID = fmt.Sprintf("%s%d", twinID, len(out.Grants))
			g.Verbs, g.Subject.User = []string{"*"}, user
			out.Grants = append(out.Grants, g)
			out.Steps = append(out.Steps, scenarios.Step{Grant: g.ID})
		}
	}
	out.Steps = append(out.Steps, repeated...)
	return out, true
}

// isUniqueUser reports whether Bind makes a user's name unique.
func isUniqueUser(user string) bool {
	probe := scenarios.Scenario{Grants: []scenarios.Grant{{Subject: scenarios.Subject{User: user}}}}
	bound, _ := probe.Bind("abc123")
	return user != "" && bound.Grants[0].Subject.User != user
}

// IsUnique reports whether nothing that a scenario grants reaches the users of another one.
func IsUnique(s *scenarios.Scenario) bool {
	bound, _ := s.Bind("abc123")
	for i, g := range bound.Grants {
		if g.Subject == s.Grants[i].Subject {
			return false
		}
	}
	return true
}
