package cases

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// Shrink makes a scenario smaller while differs stays true of it: steps, grants, headers, selectors, requestors'
// groups and extra are left out, one after the other, until nothing can be left out any more or differs was called
// limit times. Expectations are removed; differs has to know what is expected. The scenario itself is not changed.
func Shrink(s *scenarios.Scenario, limit int, differs func(*scenarios.Scenario) bool) *scenarios.Scenario {
	return Smallest(WithoutExpectations(s), limit, reduce, differs)
}

// Smallest makes something smaller while differs is true of it, until it is true of nothing smaller or was called limit
// times.
func Smallest[T any](best T, limit int, smaller func(T) []T, differs func(T) bool) T {
	for changed := true; changed; {
		changed = false
		list := smaller(best)
		for i := 0; i < len(list); {
			if limit--; limit < 0 {
				return best
			}
			if !differs(list[i]) {
				i++
				continue
			}
			best, changed = list[i], true
			list = smaller(best) // what follows has moved up to i
		}
	}
	return best
}

// WithoutExpectations returns a copy of a scenario without expectations that shares nothing with it.
func WithoutExpectations(s *scenarios.Scenario) *scenarios.Scenario {
	out := s.Clone()
	for i := range out.Steps {
		out.Steps[i].Expect = nil
	}
	return out
}

// reduce returns the scenarios with one thing less in them that still keep to the rules of scenarios.
func reduce(s *scenarios.Scenario) (out []*scenarios.Scenario) {
	raw, err := json.Marshal(s)
	var tree map[string]any
	if err != nil || json.Unmarshal(raw, &tree) != nil {
		return nil // A scenario can always be encoded.
	}
	for _, fewer := range removeOne(tree, false) {
		c := &scenarios.Scenario{ID: s.ID, Suffix: s.Suffix}
		if raw, err = json.Marshal(fewer); err != nil || json.Unmarshal(raw, c) != nil {
			continue
		}
		c.Steps = slices.DeleteFunc(c.Steps, func(st scenarios.Step) bool {
			id := st.Grant + st.Revoke // one of them
			return id != "" && !slices.ContainsFunc(c.Grants, func(g scenarios.Grant) bool { return g.ID == id })
		})
		if prune(c); isValid(c) {
			out = append(out, c)
		}
	}
	return append(out, simplifyRequests(s)...)
}

// simplifyRequests returns the scenarios in which one request is the plainest that there is.
func simplifyRequests(s *scenarios.Scenario) (out []*scenarios.Scenario) {
	for i, st := range s.Steps {
		q := st.Request
		if q == nil {
			continue
		}
		if q.Path == "/version" && q.Verb == "get" {
			continue
		}
		c := WithoutExpectations(s)
		c.Steps[i].Request = &scenarios.Request{By: q.By, Impersonate: q.Impersonate, Verb: "get", Path: "/version"}
		out = append(out, c)
	}
	return out
}

// optional are the fields that can be left out as a whole, and those whose entries can.
var optional = []string{
	"grants",
	"impersonate",
	"uid",
	"groups",
	"extra",
	"fieldSelector",
	"labelSelector",
	"subresource",
	"namespace",
	"resourceNames",
}

// removeOne returns the values with one thing less in them, what holds most of them first: an entry of a list that has
// others, a field that is optional, or any field of a mapping whose fields all are.
func removeOne(value any, allOptional bool) []any {
	switch v := value.(type) {
	case []any:
		return removeFromList(v)
	case map[string]any:
		return removeFromMapping(v, allOptional)
	}
	return nil
}

func removeFromList(list []any) (out []any) {
	if len(list) > 1 {
		for i := range list {
			out = append(out, slices.Delete(slices.Clone(list), i, i+1))
		}
	}
	for i, item := range list {
		for _, smaller := range removeOne(item, false) {
			c := slices.Clone(list)
			c[i] = smaller
			out = append(out, c)
		}
	}
	return out
}

func removeFromMapping(mapping map[string]any, allOptional bool) (out []any) {
	keys := slices.Sorted(maps.Keys(mapping))
	for _, key := range keys {
		if allOptional || slices.Contains(optional, key) {
			c := maps.Clone(mapping)
			delete(c, key)
			out = append(out, c)
		}
	}
	for _, key := range slices.Backward(keys) { // steps before grants
		for _, smaller := range removeOne(mapping[key], key == "extra") {
			c := maps.Clone(mapping)
			c[key] = smaller
			out = append(out, c)
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
			if isEmpty(st.Request.Impersonate) {
				st.Request.Impersonate = nil
			}
		}
	}
	maps.DeleteFunc(s.Requestors, func(alias string, _ scenarios.Requestor) bool { return !used[alias] })
	isNamed := func(id string) bool {
		return slices.ContainsFunc(s.Steps, func(st scenarios.Step) bool { return st.Grant == id || st.Revoke == id })
	}
	for i := range s.Grants {
		if !isNamed(s.Grants[i].ID) {
			s.Grants[i].ID = ""
		}
	}
	if len(s.Grants) == 0 {
		s.Grants = nil
	}
}

// isEmpty reports whether headers of impersonation say nothing.
func isEmpty(imp *scenarios.Impersonate) bool {
	if imp == nil {
		return true
	}
	saysNothing := imp.User == "" && imp.UID == "" && imp.Groups == nil && imp.Extra == nil
	return saysNothing
}

// isValid reports whether a scenario keeps to the rules about steps and grants.
func isValid(s *scenarios.Scenario) bool {
	requests := 0
	for i, st := range s.Steps {
		switch r := st.Request; {
		case st.Wait > 0:
		case r == nil:
			id := st.Grant + st.Revoke // one of them
			isThere := slices.ContainsFunc(s.Grants, func(g scenarios.Grant) bool { return g.ID == id })
			if !isThere || s.GrantedAt(id, i) != (st.Revoke != "") {
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
