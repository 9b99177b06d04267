package policy

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// addUnnamed adds the cases about who asks: names that everybody knows, and attributes besides the name.
func (d *caseBuilder) addUnnamed() {
	freely := Case{Reason: "shortcut-for-a-name"}
	stranger := d.newName()
	some := func(s spec) {
		for _, v := range []spec{
			ask("", "get", pods, d.newName(), ""), ask("", "list", object{Resource: "secrets"}, "kube-system", ""), ask("", "*", object{Group: "*", Resource: "*"}, "", ""),
			ask("", "impersonate", object{Resource: "users"}, "", d.newName()), askPath("", "get", "/"+d.newName()), ask("", "update", object{Group: "apps", Resource: "deployments"}, "", d.newName()),
		} {
			v.User, v.Groups = s.User, s.Groups
			freely.Asked = append(freely.Asked, v)
		}
		for _, o := range d.Busy {
			v := ask(s.User, o.Verb, o, "", d.newName())
			v.Groups = s.Groups
			freely.Asked = append(freely.Asked, v)
		}
	}
	for _, user := range d.Users {
		some(spec{User: user, Groups: []string{"system:authenticated"}})
	}
	for _, group := range d.Groups {
		some(spec{User: stranger, Groups: []string{"staff", group}})
	}
	for _, in := range append(slices.Clone(d.Namespaces), stranger) {
		for _, o := range d.Freely {
			freely.Asked = append(freely.Asked, ask(stranger, o.Verb, o, in, ""))
		}
	}
	for _, path := range d.Paths {
		freely.Asked = append(freely.Asked, askPath(stranger, "get", path), askPath(stranger, "post", path))
	}
	d.add(freely)
	d.addOwnNames()
	d.addOwnAttributes()
	d.addCommonNames()
	d.addImpersonated()
	d.addIrrelevant()
	d.addExtraKeys()
	d.addShared()
	d.addLimits()
}

// addOwnNames adds the cases about things that seem to belong to somebody only because of their name, and about identities of a
// cluster that are granted something.
func (d *caseBuilder) addOwnNames() {
	in, name, elsewhere := d.newName(), d.newName(), d.newName()
	robot := "system:serviceaccount:" + in + ":" + name
	c := Case{Reason: "own-by-name"}
	for _, user := range []string{name, "system:" + name, "system:node:" + name, robot} {
		c.Grants = append(c.Grants, rule(user, "get", pods, in))
		for _, o := range []object{{Resource: "secrets"}, {Resource: "nodes"}, {Resource: "serviceaccounts", Subresource: "token"}, {Resource: "users"}} {
			for _, verb := range []string{"get", "create", "impersonate", "impersonate:user-info"} {
				c.Asked = append(c.Asked, ask(user, verb, o, "", user), ask(user, verb, o, in, name), ask(user, verb, o, name, name))
			}
		}
		for _, verb := range []string{"impersonate", "impersonate:user-info"} {
			for _, mine := range [][3]string{{"uids", "", user + "-uid"}, {"groups", "", "staff-" + user}, {"userextras", "scopes", "view-" + user}} {
				s := ask(user, verb, object{Group: "authentication.k8s.io", Resource: mine[0], Subresource: mine[1]}, "", mine[2])
				s.UID, s.Groups, s.Extra = user+"-uid", []string{"staff-" + user}, map[string]authorizationv1.ExtraValue{"scopes": {"view-" + user}}
				c.Asked = append(c.Asked, s)
			}
		}
		for _, o := range d.OnNode { // what the Node authorizer allows a node to do to itself, and a pod to do to its node
			s := ask(user, o.Verb, o, map[bool]string{true: "kube-node-lease"}[o.Resource == "leases"], name)
			s.Groups = []string{"system:nodes", "system:serviceaccounts", "system:authenticated"}
			s.Extra = map[string]authorizationv1.ExtraValue{"authentication.kubernetes.io/node-name": {name}}
			c.Asked = append(c.Asked, s)
		}
		other := strings.ReplaceAll(user, name, elsewhere)
		c.Asked = append(c.Asked, ask(user, "get", pods, in, ""), ask(other, "get", pods, in, ""), ask(user, "get", pods, name, ""), ask(strings.TrimPrefix(user, "system:"), "get", object{Resource: "pods"}, in, "x"))
	}
	for _, group := range []string{"system:serviceaccounts:" + elsewhere, "system:bootstrappers:" + elsewhere, "system:" + elsewhere} {
		g := rule("", "get", pods, elsewhere)
		g.Subject = scenarios.Subject{Group: group}
		c.Grants = append(c.Grants, g)
		member := ask("system:serviceaccount:"+elsewhere+":"+d.newName(), "get", pods, elsewhere, "")
		c.Asked = append(c.Asked, member)
		member.Groups = []string{"system:serviceaccounts", group, "system:authenticated"}
		c.Asked = append(c.Asked, member, ask(group, "get", pods, elsewhere, ""))
	}
	d.add(c)
}

// addImpersonated adds the cases about what somebody may impersonate: an object of one API group and subresource, in
// one namespace, whose name says nothing about the one who asks.
func (d *caseBuilder) addImpersonated() {
	const authentication = "authentication.k8s.io"
	c := Case{Reason: "impersonates-something-else"}
	for _, o := range []object{
		{Resource: "users"}, {Resource: "groups"}, {Resource: "serviceaccounts"},
		{Group: authentication, Resource: "users"}, {Group: authentication, Resource: "uids"}, {Group: authentication, Resource: "userextras", Subresource: "scopes"},
	} {
		user, name, group, in := d.newName(), d.newName(), d.newName(), ""
		if o.Resource == "serviceaccounts" {
			in = d.newName()
		}
		member := rule("", "impersonate", o, in, name)
		member.Subject = scenarios.Subject{Group: group}
		c.Grants = append(c.Grants, rule(user, "impersonate", o, in, name), rule(name, "impersonate", o, in, name), member)
		for _, other := range []string{"", authentication, "apps", "authorization.k8s.io"} {
			c.Asked = append(c.Asked, ask(user, "impersonate", object{Group: other, Resource: o.Resource, Subresource: o.Subresource}, in, name))
		}
		for _, other := range []string{"", "status", "scopes", "token"} {
			c.Asked = append(c.Asked, ask(user, "impersonate", object{Group: o.Group, Resource: o.Resource, Subresource: other}, in, name))
		}
		c.Asked = append(c.Asked, ask(user, "impersonate", o, d.newName(), name), ask(user, "impersonate", o, "", name), ask(user, "impersonate", o, in, ""))
		c.Asked = append(c.Asked, d.reviewsByAskers(ask("", "impersonate", o, in, name), user, name, group)...)
	}
	d.add(c)
}

// reviewsByAskers returns a review by each of several users, with each of several UIDs and groups.
func (d *caseBuilder) reviewsByAskers(s spec, user, name, group string) (out []spec) {
	for _, uid := range []string{user, name, group} {
		for _, groups := range [][]string{{"staff"}, {group}} {
			for _, who := range []string{user, name, d.newName()} {
				asker := *s.DeepCopy()
				asker.User, asker.UID, asker.Groups = who, uid, groups
				out = append(out, asker)
			}
		}
	}
	return out
}

// addIrrelevant adds the cases about what must not matter: UID, extra, the version of the API, and the kind of name.
func (d *caseBuilder) addIrrelevant() {
	c := Case{Reason: "decided-by-something-else"}
	in, user, group, path := d.newName(), d.newName(), d.newName(), "/"+d.newName()
	member := rule("", "list", pods, in)
	member.Subject = scenarios.Subject{Group: group}
	c.Grants = []scenarios.Grant{rule(user, "get", pods, in), member, pathRule(user, "get", path)}
	add := func(s spec) { c.Asked = append(c.Asked, s) }
	for _, who := range []string{user, d.newName()} {
		for _, uid := range []string{"", user, group, fmt.Sprintf("5e1f-%s", who), "0"} {
			s := ask(who, "get", pods, in, d.newName())
			s.UID = uid
			add(s)
			p := askPath(who, "get", path)
			p.UID = uid
			add(p)
		}
		for _, version := range []string{"", "v1", "v1beta1", "v2", "*", "V1", "v1alpha1"} {
			s := ask(who, "get", pods, in, d.newName())
			s.ResourceAttributes.Version = version
			add(s)
		}
		for _, groups := range [][]string{nil, {user}, {group}, {"x", group, "y"}, {group, group}, {group + "," + user}, {strings.Join([]string{"x", group}, ",")}} {
			s := ask(who, "list", pods, in, d.newName())
			s.Groups = groups
			add(s)
			s.ResourceAttributes = ask(who, "get", pods, in, d.newName()).ResourceAttributes
			add(s)
		}
	}
	add(ask(group, "list", pods, in, ""))
	for _, like := range []string{path, "/api/v1/namespaces/" + in + "/pods", "/api/v1/pods", in, "pods"} {
		add(askPath(user, "get", like))
	}
	add(ask(user, "get", object{Resource: strings.Trim(path, "/")}, "", ""))
	named := ask(user, "get", object{Resource: path}, "", "")
	named.ResourceAttributes.Version = "" // in a cache, it differs only by its kind
	add(named)
	add(ask(user, "get", object{Resource: strings.Trim(path, "/")}, in, path))
	d.add(c)
}

// addExtraKeys adds the cases about keys of user.extra, none of which may matter. It also adds cases about the list of groups,
// whose ends must not be confused with characters of a group's name.
func (d *caseBuilder) addExtraKeys() {
	in, user, group := d.newName(), d.newName(), d.newName()
	member := rule("", "list", pods, in)
	member.Subject = scenarios.Subject{Group: group}
	c := Case{Reason: "decided-by-something-else", Grants: []scenarios.Grant{rule(user, "get", pods, in), member}}
	for _, key := range d.Extra {
		for _, values := range []authorizationv1.ExtraValue{{user, "x"}, {group}, {"admin"}, {"*"}, {""}, {}} {
			name := d.newName() // the name is the same for all three, because a session does not decide
			for _, s := range []spec{ask(user, "get", pods, in, name), ask(user, "list", pods, in, ""), ask(d.newName(), "get", pods, in, name)} {
				s.Extra = map[string]authorizationv1.ExtraValue{key: values}
				c.Asked = append(c.Asked, s)
			}
		}
	}
	d.add(c)
	joined := Case{Reason: "attributes-joined"}
	for i, separator := range append([]string{""}, d.Separators...) {
		s := ask(user, "list", pods, in, d.newName())
		one, two := s, s
		one.Groups, two.Groups = []string{"x", group}, []string{"x" + separator + group}
		if i%2 == 0 {
			one, two = two, one
		}
		joined.Asked = append(joined.Asked, one, two)
	}
	d.add(joined)
}

// addShared adds grants to the groups that every cluster has, in namespaces that nobody else uses. Only these grants
// show an authorizer that adds or drops such a group.
func (d *caseBuilder) addShared() {
	all := []string{"system:authenticated", "system:serviceaccounts", "system:nodes", "system:unauthenticated"}
	c := Case{Reason: "groups-changed"}
	users := []string{d.newName(), "system:serviceaccount:" + d.newName() + ":" + d.newName(), "system:node:" + d.newName(), "system:anonymous"}
	for _, group := range all {
		g := rule("", "get", pods, d.newName())
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

// most is how many there are of something that somebody may have limited to a few. Groups are fewer, because engines
// have limits of their own (level robust has 2,000 groups).
const most, mostGroups = 130, 65

// addLimits adds users of many groups and grants, and grants with many values.
func (d *caseBuilder) addLimits() {
	c := Case{Reason: "limits-a-list"}
	in, busy, wide, group := d.newName(), d.newName(), d.newName(), d.newName()
	var names, verbs []string
	for range most {
		names, verbs = append(names, d.newName()), append(verbs, "use-"+d.newName())
		c.Grants = append(c.Grants, rule(busy, "get", pods, in, names[len(names)-1]))
	}
	byName, byVerb, byResource, team := rule(wide, "get", pods, in, names...), rule(wide, "get", pods, in), rule(wide, "list", pods, in), rule("", "list", pods, in)
	byVerb.Verbs, byResource.Resources, team.Subject = verbs, names, scenarios.Subject{Group: group}
	c.Grants = append(c.Grants, byName, byVerb, byResource, team)
	crowd, byGroup, byPath := d.newName(), rule(wide, "watch", pods, in), pathRule(wide, "get")
	byGroup.APIGroups = names
	for _, name := range names {
		of := rule("", "get", pods, in, name)
		of.Subject = scenarios.Subject{Group: crowd}
		byPath.NonResourceURLs = append(byPath.NonResourceURLs, "/"+name)
		c.Grants = append(c.Grants, of, rule(busy, "watch", pods, name), pathRule(busy, "get", "/"+name))
	}
	deep := "/" + d.newName() + strings.Repeat("/x", 30)
	c.Grants = append(c.Grants, byGroup, byPath, pathRule(busy, "get", deep))
	c.Asked = append(c.Asked, askPath(busy, "get", deep))
	for _, i := range []int{0, 7, 8, 9, 10, 15, 16, 19, 20, 31, 32, 49, 50, 63, 64, 99, 100, 127, 128, most - 1} {
		c.Asked = append(c.Asked, ask(busy, "get", pods, in, names[i]), ask(wide, "get", pods, in, names[i]),
			ask(wide, verbs[i], pods, in, ""), ask(wide, "list", object{Resource: names[i]}, in, ""), ask(wide, "watch", object{Group: names[i], Resource: "pods"}, in, ""),
			ask(busy, "watch", pods, names[i], ""), askPath(busy, "get", "/"+names[i]), askPath(wide, "get", "/"+names[i]))
		member := ask(d.newName(), "get", pods, in, names[i])
		member.Groups = append(member.Groups, crowd)
		c.Asked = append(c.Asked, member)
	}
	for _, n := range []int{5, 9, 11, 17, 21, 26, 33, 51, mostGroups} {
		for at := range 3 {
			s := ask(d.newName(), "list", pods, in, "")
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
