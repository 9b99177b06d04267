package policy

import (
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// shared are grants to groups that every cluster has, in namespaces that none has: who adds such a group by himself, or
// takes it away, is found by nothing else.
func (d *deck) shared() {
	all := []string{"system:authenticated", "system:serviceaccounts", "system:nodes", "system:unauthenticated"}
	c := Case{Reason: "groups-changed"}
	users := []string{d.name(), "system:serviceaccount:" + d.name() + ":" + d.name(), "system:node:" + d.name(), "system:anonymous"}
	for _, group := range all {
		g := rule("", "get", pods, d.name())
		g.Subject = scenarios.Subject{Group: group}
		c.Grants = append(c.Grants, g)
		for _, user := range users {
			s := ask(user, "get", pods, g.Namespace, "")
			for _, groups := range [][]string{nil, {"staff"}, {group}, {"staff", group}, slices.DeleteFunc(slices.Clone(all), func(other string) bool { return other == group })} {
				s.Groups = groups
				c.Asked = append(c.Asked, s)
			}
		}
	}
	d.add(c)
}

// most is how many there are of what somebody may have thought to be few. Groups are fewer: engines have limits of
// their own (level robust has 2,000).
const most, mostGroups = 130, 65

// many are users of many groups and grants, and grants with many values.
func (d *deck) many() {
	c := Case{Reason: "limits-a-list"}
	in, busy, wide, group := d.name(), d.name(), d.name(), d.name()
	var names, verbs []string
	for range most {
		names, verbs = append(names, d.name()), append(verbs, "use-"+d.name())
		c.Grants = append(c.Grants, rule(busy, "get", pods, in, names[len(names)-1]))
	}
	byName, byVerb, byResource, team := rule(wide, "get", pods, in, names...), rule(wide, "get", pods, in), rule(wide, "list", pods, in), rule("", "list", pods, in)
	byVerb.Verbs, byResource.Resources, team.Subject = verbs, names, scenarios.Subject{Group: group}
	c.Grants = append(c.Grants, byName, byVerb, byResource, team)
	for _, i := range []int{0, 7, 8, 9, 10, 15, 16, 19, 20, 31, 32, 49, 50, 63, 64, 99, 100, 127, 128, most - 1} {
		c.Asked = append(c.Asked, ask(busy, "get", pods, in, names[i]), ask(wide, "get", pods, in, names[i]),
			ask(wide, verbs[i], pods, in, ""), ask(wide, "list", object{Resource: names[i]}, in, ""))
	}
	for _, n := range []int{5, 9, 11, 17, 21, 26, 33, 51, mostGroups} {
		for at := range 3 {
			s := ask(d.name(), "list", pods, in, "")
			s.Groups = slices.Clone(names[:n-1])
			c.Asked = append(c.Asked, s)
			s.Groups = slices.Insert(slices.Clone(s.Groups), at*(n-1)/2, group)
			c.Asked = append(c.Asked, s)
		}
		s := ask(busy, "get", pods, in, names[0])
		s.Groups, s.Extra = names[:n], map[string]authorizationv1.ExtraValue{"example.com/all": names[:n]}
		for _, key := range names[:n] {
			s.Extra["example.com/"+key] = authorizationv1.ExtraValue{"x"}
		}
		c.Asked = append(c.Asked, s)
	}
	d.add(c)
}
