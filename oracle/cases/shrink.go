package cases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/scenarios"
)

// Shrink makes a scenario smaller while holds stays true of it: steps, grants, headers, selectors, requestors'
// groups and extra are left out, one after the other, until nothing can be left out any more or holds was asked
// limit times. Expectations are removed; holds has to know what is expected. The scenario itself is not changed.
func Shrink(s *scenarios.Scenario, limit int, holds func(*scenarios.Scenario) bool) *scenarios.Scenario {
	return Smallest(Bare(s), limit, reductions, holds)
}

// Smallest makes something smaller while holds is true of it, until it is of nothing smaller, or was asked limit times.
func Smallest[T any](best T, limit int, smaller func(T) []T, holds func(T) bool) T {
	for changed := true; changed; {
		changed = false
		list := smaller(best)
		for i := 0; i < len(list); {
			if limit--; limit < 0 {
				return best
			}
			if !holds(list[i]) {
				i++
				continue
			}
			best, changed = list[i], true
			list = smaller(best) // what follows has moved up to i
		}
	}
	return best
}

// Bare is a copy of a scenario without expectations that shares nothing with it.
func Bare(s *scenarios.Scenario) *scenarios.Scenario {
	out := s.Clone()
	for i := range out.Steps {
		out.Steps[i].Expect = nil
	}
	return out
}

// reductions are the scenarios with one thing less in them for which the rules still hold.
func reductions(s *scenarios.Scenario) (out []*scenarios.Scenario) {
	raw, err := json.Marshal(s)
	var tree map[string]any
	if err != nil || json.Unmarshal(raw, &tree) != nil {
		return nil // of a scenario it cannot be
	}
	for _, fewer := range less(tree, false) {
		c := &scenarios.Scenario{ID: s.ID, Suffix: s.Suffix}
		if raw, err = json.Marshal(fewer); err != nil || json.Unmarshal(raw, c) != nil {
			continue
		}
		c.Steps = slices.DeleteFunc(c.Steps, func(st scenarios.Step) bool {
			id := st.Grant + st.Revoke // one of them
			return id != "" && !slices.ContainsFunc(c.Grants, func(g scenarios.Grant) bool { return g.ID == id })
		})
		if prune(c); valid(c) {
			out = append(out, c)
		}
	}
	for i, st := range s.Steps {
		if q := st.Request; q != nil && (q.Path != "/version" || q.Verb != "get") {
			c := Bare(s)
			c.Steps[i].Request = &scenarios.Request{By: q.By, Impersonate: q.Impersonate, Verb: "get", Path: "/version"} // the plainest
			out = append(out, c)
		}
	}
	return out
}

// optional are the fields that can be left out as a whole, and those whose entries can.
var optional = []string{"grants", "impersonate", "uid", "groups", "extra", "fieldSelector", "labelSelector", "subresource", "namespace", "resourceNames"}

// less are the values with one thing less in them, what holds most of them first: an entry of a list that has others, a
// field that is optional, or any field of a mapping whose fields all are.
func less(value any, all bool) (out []any) {
	switch v := value.(type) {
	case []any:
		for i := range v {
			if len(v) > 1 {
				out = append(out, slices.Delete(slices.Clone(v), i, i+1))
			}
		}
		for i, item := range v {
			for _, smaller := range less(item, false) {
				c := slices.Clone(v)
				c[i] = smaller
				out = append(out, c)
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if all || slices.Contains(optional, key) {
				c := maps.Clone(v)
				delete(c, key)
				out = append(out, c)
			}
		}
		for _, key := range slices.Backward(slices.Sorted(maps.Keys(v))) { // steps before grants
			for _, smaller := range less(v[key], key == "extra") {
				c := maps.Clone(v)
				c[key] = smaller
				out = append(out, c)
			}
		}
	}
	return out
}

// prune leaves out what nothing refers to any more.
func prune(s *scenarios.Scenario) {
	used := map[string]bool{}
	for _, st := range s.Steps {
		if st.Request != nil {
			used[st.Request.By] = true
			if imp := st.Request.Impersonate; imp != nil && imp.User == "" && imp.UID == "" && imp.Groups == nil && imp.Extra == nil {
				st.Request.Impersonate = nil
			}
		}
	}
	maps.DeleteFunc(s.Requestors, func(alias string, _ scenarios.Requestor) bool { return !used[alias] })
	named := func(id string) bool {
		return slices.ContainsFunc(s.Steps, func(st scenarios.Step) bool { return st.Grant == id || st.Revoke == id })
	}
	for i := range s.Grants {
		if !named(s.Grants[i].ID) {
			s.Grants[i].ID = ""
		}
	}
	if len(s.Grants) == 0 {
		s.Grants = nil
	}
}

// valid tells whether the rules about steps and grants still hold.
func valid(s *scenarios.Scenario) bool {
	requests := 0
	for i, st := range s.Steps {
		switch r := st.Request; {
		case st.Wait > 0:
		case r == nil:
			id := st.Grant + st.Revoke // one of them
			there := slices.ContainsFunc(s.Grants, func(g scenarios.Grant) bool { return g.ID == id })
			if !there || s.GrantedAt(id, i) != (st.Revoke != "") {
				return false
			}
		case r.Subresource == "" && r.Verb == "create" && r.Name != "":
			return false
		default:
			requests++
		}
	}
	return requests > 0
}

// Print renders a scenario as a file that loads as the same, without what is derived. Comments go on top, a line each.
func Print(s *scenarios.Scenario, comments ...string) ([]byte, error) {
	raw, err := YAML(s.Lean(), comments...)
	if err != nil {
		return nil, fmt.Errorf("printing scenario %s: %w", s.ID, err)
	}
	return raw, nil
}

// YAML renders a value as a file, by way of JSON: it keeps the order of fields, and tells empty lists from none.
func YAML(value any, comments ...string) ([]byte, error) {
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(raw.Bytes(), &tree); err != nil {
		return nil, err
	}
	plain(&tree)
	var out bytes.Buffer
	for _, c := range comments {
		out.WriteString("# " + c + "\n")
	}
	lines := yaml.NewEncoder(&out)
	lines.SetIndent(2)
	err := lines.Encode(&tree)
	return out.Bytes(), err
}

func plain(n *yaml.Node) {
	n.Style = 0
	for _, item := range n.Content {
		plain(item)
	}
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
	for _, user := range sets.List(sets.New(users...)) {
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
