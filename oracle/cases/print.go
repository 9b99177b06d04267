package cases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/authzconf/authzconf/scenarios"
)

// Print renders a scenario as a file that loads as the same scenario: what the loader derives is left out.
// Comments go on top, a line each.
func Print(s *scenarios.Scenario, comments ...string) ([]byte, error) {
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s.Lean()); err != nil {
		return nil, err
	}
	// By way of JSON: it keeps the order of fields, and tells an empty list of reviews from one that is left out.
	text, err := yaml.JSONToYAML(raw.Bytes())
	if err != nil {
		return nil, fmt.Errorf("printing scenario %s: %w", s.ID, err)
	}
	var out strings.Builder
	for _, c := range comments {
		out.WriteString("# " + c + "\n")
	}
	out.Write(text)
	return []byte(out.String()), nil
}

// twinID begins the IDs of the grants that Paired adds.
const twinID = "twin-"

// Paired adds what a file with denials has to have: after its steps, the users are granted everything, and the
// denied requests, given by their steps, come again and are allowed. It is false where that cannot be: where users
// have no unique name everything would be granted to those of other scenarios as well, and a request without a
// user is never allowed.
func Paired(s *scenarios.Scenario, denied []int) (*scenarios.Scenario, bool) {
	out := Bare(s)
	everything := []scenarios.Grant{{APIGroups: []string{"*"}, Resources: []string{"*"}}}
	if slices.ContainsFunc(denied, func(i int) bool { return s.Steps[i].Request.Path != "" }) {
		everything = append(everything, scenarios.Grant{NonResourceURLs: []string{"*"}})
	}
	var users []string
	var again []scenarios.Step
	for _, i := range denied {
		r := s.Steps[i].Request
		users = append(users, s.Requestors[r.By].Username())
		if r.Impersonate != nil {
			users = append(users, r.Impersonate.User)
		}
		same := func(st scenarios.Step) bool { return reflect.DeepEqual(st.Request, r) }
		if !slices.ContainsFunc(again, same) {
			q := *r
			again = append(again, scenarios.Step{Request: &q})
		}
	}
	slices.Sort(users)
	for _, user := range slices.Compact(users) {
		if !unique(user) {
			return s, false
		}
		for _, g := range everything {
			g.ID = fmt.Sprintf("%s%d", twinID, len(out.Grants))
			g.Verbs, g.Subject.User = []string{"*"}, user
			out.Grants = append(out.Grants, g)
			out.Steps = append(out.Steps, scenarios.Step{Grant: g.ID})
		}
	}
	out.Steps = append(out.Steps, again...)
	return out, true
}

// unique tells whether Bind makes a user's name unique.
func unique(user string) bool {
	probe := scenarios.Scenario{Grants: []scenarios.Grant{{Subject: scenarios.Subject{User: user}}}}
	bound, _ := probe.Bind("abc123")
	return user != "" && bound.Grants[0].Subject.User != user
}

// Unique tells whether nothing that a scenario grants reaches the users of another one.
func Unique(s *scenarios.Scenario) bool {
	bound, _ := s.Bind("abc123")
	for i, g := range bound.Grants {
		if g.Subject == s.Grants[i].Subject {
			return false
		}
	}
	return true
}
