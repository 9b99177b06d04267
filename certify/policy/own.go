package policy

import (
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// requestorKeys are the keys of user.extra that API servers set for tokens of pods and nodes.
func requestorKeys() []string {
	const prefix = "authentication.kubernetes.io/"
	return []string{
		prefix + "pod-name",
		prefix + "pod-uid",
		prefix + "node-name",
		prefix + "node-uid",
		prefix + "credential-id",
		prefix + "issued-credential-id",
	}
}

// addOwnAttributes adds reviews that ask about a value which is also an attribute of the user who asks: a value of
// extra, the UID, a group, or the user's own namespace. That allows nothing.
func (d *caseBuilder) addOwnAttributes() {
	c, home, account := Case{Reason: "own-by-name"}, d.newName(), d.newName()
	user := "system:serviceaccount:" + home + ":" + account
	c.Grants = []scenarios.Grant{newGrant(user, "get", pods, home)}
	asker := spec{
		User:   user,
		UID:    d.newName(),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + home, d.newName()},
		Extra:  map[string]authorizationv1.ExtraValue{},
	}
	ownValues := []string{asker.UID, asker.Groups[1], asker.Groups[2], home, account}
	for _, key := range requestorKeys() {
		value := d.newName()
		asker.Extra[key] = authorizationv1.ExtraValue{value}
		ownValues = append(ownValues, value)
	}
	for _, value := range ownValues {
		for _, s := range d.reviewsAbout(value, home) {
			s.User, s.UID, s.Groups, s.Extra = asker.User, asker.UID, asker.Groups, asker.Extra
			c.Reviews = append(c.Reviews, s)
		}
	}
	for _, key := range requestorKeys() { // the same values, as extra that the user asks to impersonate
		s := newReview(
			user,
			"impersonate",
			object{Group: "authentication.k8s.io", Resource: "userextras", Subresource: key},
			"",
			asker.Extra[key][0],
		)
		s.UID, s.Groups, s.Extra = asker.UID, asker.Groups, asker.Extra
		other := *s.DeepCopy()
		other.ResourceAttributes.Verb = "impersonate:user-info"
		c.Reviews = append(c.Reviews, s, other)
	}
	d.add(c)
}

// reviewsAbout returns reviews that ask about a value as a name, as a namespace, and as both.
func (d *caseBuilder) reviewsAbout(value, home string) []spec {
	secrets := object{Resource: "secrets"}
	nodes := object{Resource: "nodes"}
	leases := object{Group: "coordination.k8s.io", Resource: "leases"}
	return []spec{
		newReview("", "get", nodes, "", value),
		newReview("", "patch", object{Resource: "nodes", Subresource: "status"}, "", value),
		newReview("", "update", leases, "kube-node-lease", value),
		newReview("", "get", secrets, home, value),
		newReview("", "get", secrets, value, value),
		newReview("", "list", pods, value, ""),
		newReview("", "delete", pods, home, value),
		newReview("", "create", object{Resource: "serviceaccounts", Subresource: "token"}, home, value),
		newReview("", "get", object{Resource: "namespaces"}, "", value),
		newReview("", "impersonate", object{Resource: "users"}, "", value),
		newReview("", "impersonate:arbitrary-node", object{Group: "authentication.k8s.io", Resource: "nodes"}, "", value),
		newPathReview("", "get", "/"+value),
	}
}

// addCommonNames adds identities with common names: the account default of several namespaces, a group with the name of
// a user, a user with the name of a group. Each is granted something in a namespace that is made from the seed.
func (d *caseBuilder) addCommonNames() {
	c, namespace := Case{Reason: "common-names"}, d.newName()
	homes := []string{d.newName(), d.newName(), d.newName()}
	for i, account := range []string{"default", "builder", "admin"} {
		for j, home := range homes {
			user := "system:serviceaccount:" + home + ":" + account
			if j == i {
				c.Grants = append(c.Grants, newGrant(user, "get", pods, namespace, account))
			}
			s := newReview(user, "get", pods, namespace, account)
			s.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + home, "system:authenticated"}
			c.Reviews = append(c.Reviews,
				s,
				newReview(home+":"+account, "get", pods, namespace, account),
				newReview(account, "get", pods, namespace, account),
			)
		}
	}
	byGroup := newGrant("", "list", pods, namespace)
	byGroup.Subject = scenarios.Subject{Group: "system:serviceaccounts:" + homes[0]}
	c.Grants = append(c.Grants, byGroup)
	for _, home := range homes {
		s := newReview("system:serviceaccount:"+home+":default", "list", pods, namespace, "")
		bare := *s.DeepCopy()
		s.Groups = append(slices.Clone(s.Groups), "system:serviceaccounts:"+home)
		c.Reviews = append(c.Reviews, s, bare)
	}
	d.addNamesakes(&c, namespace)
	d.add(c)
}

// addNamesakes adds a user and a group with the same name and different grants.
func (d *caseBuilder) addNamesakes(c *Case, namespace string) {
	for range 3 {
		name, member := d.newName(), d.newName()
		byName := newGrant("", "watch", pods, namespace)
		byName.Subject = scenarios.Subject{Group: name}
		c.Grants = append(c.Grants, newGrant(name, "patch", pods, namespace), byName)
		for _, verb := range []string{"watch", "patch"} {
			user := newReview(name, verb, pods, namespace, "")
			both := newReview(name, verb, pods, namespace, "")
			other := newReview(member, verb, pods, namespace, "")
			both.Groups, other.Groups = append(both.Groups, name), append(other.Groups, name)
			c.Reviews = append(c.Reviews, user, other, both, newReview(member, verb, pods, namespace, ""))
		}
	}
}
