package policy

import (
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// pairsOfEach is how many pairs there are for each attribute and holder of a grant.
const pairsOfEach = 6

// holder says whom a grant is given: a user, a group, or both.
type holder struct{ user, group bool }

// listHolders returns every way in which a grant can be held.
func listHolders() []holder { return []holder{{user: true}, {group: true}, {user: true, group: true}} }

// decides reports whether the attribute makes a difference where the grant has such a holder.
func (h holder) decides(a Attribute) bool {
	switch a.Name {
	case "user":
		return !h.group
	case "groups":
		return !h.user
	}
	return true
}

// addPairs adds pairs of reviews that differ in one attribute alone, and in the decision: an authorizer that shares
// answers between reviews that are under way at the same time, or swaps them, gives itself away by one of them.
func (d *deck) addPairs() {
	for _, a := range Attributes() {
		if a.Name == "path-below" || a.named {
			continue
		}
		for _, h := range listHolders() {
			if !h.decides(a) {
				continue
			}
			d.addPairsOf(a, h)
			if isOfBoth := a.Name == "user" || a.Name == "groups" || a.Name == "verb"; isOfBoth {
				onPath := a
				onPath.onPath = true
				d.addPairsOf(onPath, h)
			}
		}
	}
}

// addPairsOf adds the pairs of one attribute and holder.
func (d *deck) addPairsOf(a Attribute, h holder) {
	c := Case{Reason: "ignores-" + a.Name, Class: "ignored", Broad: true, Paired: true}
	s, team := d.setting(Attribute{Name: a.Name}), d.name()
	for range pairsOfEach {
		granted := s.askPair(d, a, team)
		c.Grants = append(c.Grants, h.grants(granted, team)...)
		other := *granted.DeepCopy()
		d.change(a, &other, team)
		if d.random.IntN(2) == 0 {
			granted, other = other, granted
		}
		c.Asked = append(c.Asked, granted, other)
	}
	d.add(c)
}

// askPair returns a review of a member of a team with a name of its own for what is asked about.
func (s setting) askPair(d *deck, a Attribute, team string) spec {
	groups := []string{"system:authenticated", team}
	if a.onPath {
		return spec{User: s.user, Groups: groups, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: s.verbs[0], Path: "/" + d.name()}}
	}
	object := s.object
	if a.Name == "subresource" {
		object.Resource, object.Subresource = withSub, d.name()
	}
	out := ask(s.user, s.verbs[0], object, s.namespace, d.name())
	out.Groups = groups
	return out
}

// grants returns what a holder needs for a review to be allowed.
func (h holder) grants(s spec, team string) (out []scenarios.Grant) {
	g := grantOf(s)
	if h.user {
		out = append(out, g)
	}
	if h.group {
		g.Subject = scenarios.Subject{Group: team}
		out = append(out, g)
	}
	return out
}

// grantOf returns a grant to the user of a review of just what it asks.
func grantOf(s spec) scenarios.Grant {
	if n := s.NonResourceAttributes; n != nil {
		return pathRule(s.User, n.Verb, n.Path)
	}
	r := s.ResourceAttributes
	return rule(s.User, r.Verb, object{Group: r.Group, Resource: r.Resource, Subresource: r.Subresource}, r.Namespace, r.Name)
}

// change gives an attribute of a review another value, which nobody is granted.
func (d *deck) change(a Attribute, s *spec, team string) {
	other := d.nameFor(a)
	switch a.Name {
	case "groups":
		s.Groups = slices.DeleteFunc(slices.Clone(s.Groups), func(g string) bool { return g == team })
	case "verb":
		granted, _ := a.value(*s)
		others := slices.DeleteFunc(slices.Clone(d.Actions), func(v string) bool { return v == granted })
		other = others[d.random.IntN(len(others))]
	}
	a.ask(s, other)
}
