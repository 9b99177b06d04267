package policy

import (
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// pairsOfEach is how many pairs there are for each attribute and each holder of a grant.
const pairsOfEach = 6

// holder says to whom a grant is given: a user, a group, or both.
type holder struct{ user, group bool }

// listHolders returns every kind of holder.
func listHolders() []holder { return []holder{{user: true}, {group: true}, {user: true, group: true}} }

// canMatter reports whether the attribute can make a difference for a grant with such a holder.
func (h holder) canMatter(a Attribute) bool {
	switch a.Name {
	case "user":
		return !h.group
	case "groups":
		return !h.user
	}
	return true
}

// addPairs adds pairs of reviews that differ in one attribute only, and in the decision. An authorizer that shares or
// swaps the answers of reviews which it answers at the same time gives one of the pair the wrong answer.
func (d *caseBuilder) addPairs() {
	for _, a := range Attributes() {
		if a.Name == "path-below" || a.isNamesOnly {
			continue
		}
		for _, h := range listHolders() {
			if !h.canMatter(a) {
				continue
			}
			d.addPairsOf(a, h)
			if slices.Contains([]string{"user", "groups", "verb"}, a.Name) { // requests for paths have it as well
				onPath := a
				onPath.isOnPath = true
				d.addPairsOf(onPath, h)
			}
		}
	}
}

// addPairsOf adds the pairs of one attribute and one holder.
func (d *caseBuilder) addPairsOf(a Attribute, h holder) {
	c := Case{Reason: "ignores-" + a.Name, Class: "ignored", Broad: true, Paired: true}
	s, team := d.drawSetting(Attribute{Name: a.Name}), d.newName()
	for range pairsOfEach {
		granted := s.newPairReview(d, a, team)
		c.Grants = append(c.Grants, h.grants(granted, team)...)
		other := *granted.DeepCopy()
		d.changeAttribute(a, &other, team)
		if d.random.IntN(2) == 0 {
			granted, other = other, granted
		}
		c.Reviews = append(c.Reviews, granted, other)
	}
	d.add(c)
}

// newPairReview returns a review by a member of a team, about something with a name of its own.
func (s setting) newPairReview(d *caseBuilder, a Attribute, team string) spec {
	groups := []string{"system:authenticated", team}
	if a.isOnPath {
		return spec{
			User:                  s.user,
			Groups:                groups,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: s.verbs[0], Path: "/" + d.newName()},
		}
	}
	object := s.object
	if a.Name == "subresource" {
		object.Resource, object.Subresource = subresourceParent, d.newName()
	}
	out := newReview(s.user, s.verbs[0], object, s.namespace, d.newName())
	out.Groups = groups
	return out
}

// grants returns the grants by which a review of a holder is allowed.
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

// grantOf returns a grant to the user of a review that covers exactly what the review asks.
func grantOf(s spec) scenarios.Grant {
	if n := s.NonResourceAttributes; n != nil {
		return newPathGrant(s.User, n.Verb, n.Path)
	}
	r := s.ResourceAttributes
	return newGrant(s.User, r.Verb, object{Group: r.Group, Resource: r.Resource, Subresource: r.Subresource}, r.Namespace, r.Name)
}

// changeAttribute gives an attribute of a review another value, which nobody is granted.
func (d *caseBuilder) changeAttribute(a Attribute, s *spec, team string) {
	other := d.newNameFor(a)
	switch a.Name {
	case "groups":
		s.Groups = slices.DeleteFunc(slices.Clone(s.Groups), func(g string) bool { return g == team })
	case "verb":
		granted, _ := a.value(*s)
		others := slices.DeleteFunc(slices.Clone(d.Actions), func(v string) bool { return v == granted })
		other = others[d.random.IntN(len(others))]
	}
	a.setInReview(s, other)
}
