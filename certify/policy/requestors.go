package policy

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// addRequestors adds the cases about who asks: names that everybody knows, and attributes besides the name.
func (d *caseBuilder) addRequestors() {
	c := Case{Reason: "shortcut-for-a-name"}
	stranger := d.newName()
	addReviewsBy := func(s spec) {
		for _, v := range []spec{
			newReview("", "get", pods, d.newName(), ""),
			newReview("", "list", object{Resource: "secrets"}, "kube-system", ""),
			newReview("", "*", object{Group: "*", Resource: "*"}, "", ""),
			newReview("", "impersonate", object{Resource: "users"}, "", d.newName()),
			newPathReview("", "get", "/"+d.newName()),
			newReview("", "update", object{Group: "apps", Resource: "deployments"}, "", d.newName()),
		} {
			v.User, v.Groups = s.User, s.Groups
			c.Reviews = append(c.Reviews, v)
		}
		for _, o := range d.WellKnownRights {
			v := newReview(s.User, o.Verb, o, "", d.newName())
			v.Groups = s.Groups
			c.Reviews = append(c.Reviews, v)
		}
	}
	for _, user := range d.Users {
		addReviewsBy(spec{User: user, Groups: []string{"system:authenticated"}})
	}
	for _, group := range d.Groups {
		addReviewsBy(spec{User: stranger, Groups: []string{"staff", group}})
	}
	for _, namespace := range append(slices.Clone(d.Namespaces), stranger) {
		for _, o := range d.OpenToEverybody {
			c.Reviews = append(c.Reviews, newReview(stranger, o.Verb, o, namespace, ""))
		}
	}
	for _, path := range d.Paths {
		c.Reviews = append(c.Reviews, newPathReview(stranger, "get", path), newPathReview(stranger, "post", path))
	}
	d.add(c)
	d.addOwnNames()
	d.addOwnAttributes()
	d.addCommonNames()
	d.addImpersonated()
	d.addIrrelevant()
	d.addExtraKeys()
	d.addSharedGroups()
	d.addLimits()
}

// addOwnNames adds the cases about things that seem to belong to somebody only because of their name, and about
// identities of a cluster that are granted something.
func (d *caseBuilder) addOwnNames() {
	namespace, name, elsewhere := d.newName(), d.newName(), d.newName()
	robot := "system:serviceaccount:" + namespace + ":" + name
	c := Case{Reason: "own-by-name"}
	for _, user := range []string{name, "system:" + name, "system:node:" + name, robot} {
		c.Grants = append(c.Grants, newGrant(user, "get", pods, namespace))
		for _, o := range []object{{Resource: "secrets"}, {Resource: "nodes"}, {Resource: "serviceaccounts", Subresource: "token"}, {Resource: "users"}} {
			for _, verb := range []string{"get", "create", "impersonate", "impersonate:user-info"} {
				c.Reviews = append(c.Reviews,
					newReview(user, verb, o, "", user),
					newReview(user, verb, o, namespace, name),
					newReview(user, verb, o, name, name),
				)
			}
		}
		for _, verb := range []string{"impersonate", "impersonate:user-info"} {
			for _, target := range [][3]string{{"uids", "", user + "-uid"}, {"groups", "", "staff-" + user}, {"userextras", "scopes", "view-" + user}} {
				s := newReview(
					user,
					verb,
					object{Group: "authentication.k8s.io", Resource: target[0], Subresource: target[1]},
					"",
					target[2],
				)
				s.UID = user + "-uid"
				s.Groups = []string{"staff-" + user}
				s.Extra = map[string]authorizationv1.ExtraValue{"scopes": {"view-" + user}}
				c.Reviews = append(c.Reviews, s)
			}
		}
		for _, o := range d.OwnNodeRights { // what the Node authorizer allows a node to do to itself, and a pod to do to its node
			s := newReview(user, o.Verb, o, map[bool]string{true: "kube-node-lease"}[o.Resource == "leases"], name)
			s.Groups = []string{"system:nodes", "system:serviceaccounts", "system:authenticated"}
			s.Extra = map[string]authorizationv1.ExtraValue{"authentication.kubernetes.io/node-name": {name}}
			c.Reviews = append(c.Reviews, s)
		}
		other := strings.ReplaceAll(user, name, elsewhere)
		c.Reviews = append(c.Reviews,
			newReview(user, "get", pods, namespace, ""),
			newReview(other, "get", pods, namespace, ""),
			newReview(user, "get", pods, name, ""),
			newReview(strings.TrimPrefix(user, "system:"), "get", object{Resource: "pods"}, namespace, "x"),
		)
	}
	for _, group := range []string{"system:serviceaccounts:" + elsewhere, "system:bootstrappers:" + elsewhere, "system:" + elsewhere} {
		g := newGrant("", "get", pods, elsewhere)
		g.Subject = scenarios.Subject{Group: group}
		c.Grants = append(c.Grants, g)
		member := newReview("system:serviceaccount:"+elsewhere+":"+d.newName(), "get", pods, elsewhere, "")
		c.Reviews = append(c.Reviews, member)
		member.Groups = []string{"system:serviceaccounts", group, "system:authenticated"}
		c.Reviews = append(c.Reviews, member, newReview(group, "get", pods, elsewhere, ""))
	}
	d.add(c)
}

// addImpersonated adds the cases about what somebody may impersonate: an object of one API group and subresource, in
// one namespace, whose name says nothing about the one who asks.
func (d *caseBuilder) addImpersonated() {
	const authentication = "authentication.k8s.io"
	c := Case{Reason: "impersonates-something-else"}
	for _, o := range []object{
		{Resource: "users"},
		{Resource: "groups"},
		{Resource: "serviceaccounts"},
		{Group: authentication, Resource: "users"},
		{Group: authentication, Resource: "uids"},
		{Group: authentication, Resource: "userextras", Subresource: "scopes"},
	} {
		user, name, group, namespace := d.newName(), d.newName(), d.newName(), ""
		if o.Resource == "serviceaccounts" {
			namespace = d.newName()
		}
		member := newGrant("", "impersonate", o, namespace, name)
		member.Subject = scenarios.Subject{Group: group}
		c.Grants = append(c.Grants,
			newGrant(user, "impersonate", o, namespace, name),
			newGrant(name, "impersonate", o, namespace, name),
			member,
		)
		for _, other := range []string{"", authentication, "apps", "authorization.k8s.io"} {
			c.Reviews = append(c.Reviews,
				newReview(user, "impersonate", object{Group: other, Resource: o.Resource, Subresource: o.Subresource}, namespace, name),
			)
		}
		for _, other := range []string{"", "status", "scopes", "token"} {
			c.Reviews = append(c.Reviews,
				newReview(user, "impersonate", object{Group: o.Group, Resource: o.Resource, Subresource: other}, namespace, name),
			)
		}
		c.Reviews = append(c.Reviews,
			newReview(user, "impersonate", o, d.newName(), name),
			newReview(user, "impersonate", o, "", name),
			newReview(user, "impersonate", o, namespace, ""),
		)
		c.Reviews = append(c.Reviews, d.reviewsByRequestors(newReview("", "impersonate", o, namespace, name), user, name, group)...)
	}
	d.add(c)
}

// reviewsByRequestors returns a review by each of several users, with each of several UIDs and groups.
func (d *caseBuilder) reviewsByRequestors(s spec, user, name, group string) (out []spec) {
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
	namespace, user, group, path := d.newName(), d.newName(), d.newName(), "/"+d.newName()
	member := newGrant("", "list", pods, namespace)
	member.Subject = scenarios.Subject{Group: group}
	c.Grants = []scenarios.Grant{newGrant(user, "get", pods, namespace), member, newPathGrant(user, "get", path)}
	add := func(s spec) { c.Reviews = append(c.Reviews, s) }
	for _, who := range []string{user, d.newName()} {
		for _, uid := range []string{"", user, group, fmt.Sprintf("5e1f-%s", who), "0"} {
			s := newReview(who, "get", pods, namespace, d.newName())
			s.UID = uid
			add(s)
			p := newPathReview(who, "get", path)
			p.UID = uid
			add(p)
		}
		for _, version := range []string{"", "v1", "v1beta1", "v2", "*", "V1", "v1alpha1"} {
			s := newReview(who, "get", pods, namespace, d.newName())
			s.ResourceAttributes.Version = version
			add(s)
		}
		for _, groups := range [][]string{
			nil,
			{user},
			{group},
			{"x", group, "y"},
			{group, group},
			{group + "," + user},
			{strings.Join([]string{"x", group}, ",")},
		} {
			s := newReview(who, "list", pods, namespace, d.newName())
			s.Groups = groups
			add(s)
			s.ResourceAttributes = newReview(who, "get", pods, namespace, d.newName()).ResourceAttributes
			add(s)
		}
	}
	add(newReview(group, "list", pods, namespace, ""))
	for _, value := range []string{path, "/api/v1/namespaces/" + namespace + "/pods", "/api/v1/pods", namespace, "pods"} {
		add(newPathReview(user, "get", value))
	}
	add(newReview(user, "get", object{Resource: strings.Trim(path, "/")}, "", ""))
	likePath := newReview(user, "get", object{Resource: path}, "", "")
	likePath.ResourceAttributes.Version = "" // in a cache, it differs only by its kind
	add(likePath)
	add(newReview(user, "get", object{Resource: strings.Trim(path, "/")}, namespace, path))
	d.add(c)
}

// addExtraKeys adds the cases about keys of user.extra, none of which may matter. It also adds cases about the list of
// groups, whose ends must not be confused with characters of a group's name.
func (d *caseBuilder) addExtraKeys() {
	namespace, user, group := d.newName(), d.newName(), d.newName()
	member := newGrant("", "list", pods, namespace)
	member.Subject = scenarios.Subject{Group: group}
	c := Case{Reason: "decided-by-something-else", Grants: []scenarios.Grant{newGrant(user, "get", pods, namespace), member}}
	for _, key := range d.ExtraKeys {
		for _, values := range []authorizationv1.ExtraValue{{user, "x"}, {group}, {"admin"}, {"*"}, {""}, {}} {
			name := d.newName() // the name is the same for all three, because a session does not decide
			for _, s := range []spec{
				newReview(user, "get", pods, namespace, name),
				newReview(user, "list", pods, namespace, ""),
				newReview(d.newName(), "get", pods, namespace, name),
			} {
				s.Extra = map[string]authorizationv1.ExtraValue{key: values}
				c.Reviews = append(c.Reviews, s)
			}
		}
	}
	d.add(c)
	joined := Case{Reason: "attributes-joined"}
	for i, separator := range append([]string{""}, d.Separators...) {
		s := newReview(user, "list", pods, namespace, d.newName())
		one, two := s, s
		one.Groups, two.Groups = []string{"x", group}, []string{"x" + separator + group}
		if i%2 == 0 {
			one, two = two, one
		}
		joined.Reviews = append(joined.Reviews, one, two)
	}
	d.add(joined)
}

// addSharedGroups adds grants to the groups that every cluster has, in namespaces that nobody else uses. Only these
// grants show an authorizer that adds or drops such a group.
func (d *caseBuilder) addSharedGroups() {
	all := []string{"system:authenticated", "system:serviceaccounts", "system:nodes", "system:unauthenticated"}
	c := Case{Reason: "groups-changed"}
	users := []string{
		d.newName(),
		"system:serviceaccount:" + d.newName() + ":" + d.newName(),
		"system:node:" + d.newName(),
		"system:anonymous",
	}
	for _, group := range all {
		g := newGrant("", "get", pods, d.newName())
		g.Subject = scenarios.Subject{Group: group}
		c.Grants = append(c.Grants, g)
		for _, user := range users {
			s := newReview(user, "get", pods, g.Namespace, "")
			otherGroups := slices.DeleteFunc(slices.Clone(all), func(other string) bool { return other == group })
			for _, groups := range [][]string{nil, {"staff"}, {group}, {"staff", group}, otherGroups} {
				s.Groups = groups
				c.Reviews = append(c.Reviews, s)
			}
		}
	}
	d.add(c)
}

// manyValues is how many there are of something that somebody may have limited to a few. Groups are fewer, because
// engines have limits of their own (level robust has 2,000 groups).
const manyValues, manyGroups = 130, 65

// addLimits adds users of many groups and grants, and grants with many values.
func (d *caseBuilder) addLimits() {
	c := Case{Reason: "limits-a-list"}
	namespace, busy, wide, group := d.newName(), d.newName(), d.newName(), d.newName()
	var names, verbs []string
	for range manyValues {
		names, verbs = append(names, d.newName()), append(verbs, "use-"+d.newName())
		c.Grants = append(c.Grants, newGrant(busy, "get", pods, namespace, names[len(names)-1]))
	}
	byName := newGrant(wide, "get", pods, namespace, names...)
	byVerb := newGrant(wide, "get", pods, namespace)
	byResource := newGrant(wide, "list", pods, namespace)
	team := newGrant("", "list", pods, namespace)
	byVerb.Verbs, byResource.Resources, team.Subject = verbs, names, scenarios.Subject{Group: group}
	c.Grants = append(c.Grants, byName, byVerb, byResource, team)
	largeGroup, byGroup, byPath := d.newName(), newGrant(wide, "watch", pods, namespace), newPathGrant(wide, "get")
	byGroup.APIGroups = names
	for _, name := range names {
		memberGrant := newGrant("", "get", pods, namespace, name)
		memberGrant.Subject = scenarios.Subject{Group: largeGroup}
		byPath.NonResourceURLs = append(byPath.NonResourceURLs, "/"+name)
		c.Grants = append(c.Grants, memberGrant, newGrant(busy, "watch", pods, name), newPathGrant(busy, "get", "/"+name))
	}
	deep := "/" + d.newName() + strings.Repeat("/x", 30)
	c.Grants = append(c.Grants, byGroup, byPath, newPathGrant(busy, "get", deep))
	c.Reviews = append(c.Reviews, newPathReview(busy, "get", deep))
	for _, i := range []int{0, 7, 8, 9, 10, 15, 16, 19, 20, 31, 32, 49, 50, 63, 64, 99, 100, 127, 128, manyValues - 1} {
		c.Reviews = append(c.Reviews,
			newReview(busy, "get", pods, namespace, names[i]),
			newReview(wide, "get", pods, namespace, names[i]),
			newReview(
				wide,
				verbs[i],
				pods,
				namespace,
				"",
			),
			newReview(wide, "list", object{Resource: names[i]}, namespace, ""),
			newReview(wide, "watch", object{Group: names[i], Resource: "pods"}, namespace, ""),
			newReview(
				busy,
				"watch",
				pods,
				names[i],
				"",
			),
			newPathReview(busy, "get", "/"+names[i]),
			newPathReview(wide, "get", "/"+names[i]),
		)
		member := newReview(d.newName(), "get", pods, namespace, names[i])
		member.Groups = append(member.Groups, largeGroup)
		c.Reviews = append(c.Reviews, member)
	}
	for _, n := range []int{5, 9, 11, 17, 21, 26, 33, 51, manyGroups} {
		for at := range 3 {
			s := newReview(d.newName(), "list", pods, namespace, "")
			s.Groups = slices.Clone(names[:n-1])
			c.Reviews = append(c.Reviews, s)
			s.Groups = slices.Insert(slices.Clone(s.Groups), at*(n-1)/2, group)
			c.Reviews = append(c.Reviews, s)
		}
		s := newReview(busy, "get", pods, namespace, names[0])
		s.Groups, s.Extra = names[:n], map[string]authorizationv1.ExtraValue{"example.com/all": names[:n]}
		for _, key := range names[:n] {
			s.Extra["example.com/"+key] = authorizationv1.ExtraValue{"x"}
		}
		c.Reviews = append(c.Reviews, s)
	}
	d.add(c)
}
