package policy

import (
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// newGrant returns a grant of a verb for an object.
func newGrant(user, verb string, o object, namespace string, names ...string) scenarios.Grant {
	return scenarios.Grant{
		Subject:   scenarios.Subject{User: user},
		Verbs:     []string{verb},
		APIGroups: []string{o.Group},
		Resources: []string{scenarios.FullResource(o.Resource, o.Subresource)},
		Namespace: namespace,
		Names:     names,
	}
}

// newPathGrant returns a grant of a verb for paths.
func newPathGrant(user, verb string, paths ...string) scenarios.Grant {
	return scenarios.Grant{Subject: scenarios.Subject{User: user}, Verbs: []string{verb}, NonResourceURLs: paths}
}

// newReview returns a review that asks whether a user may do something to an object.
func newReview(user, verb string, o object, namespace, name string) spec {
	return spec{User: user, Groups: []string{"system:authenticated"}, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: verb, Group: o.Group, Version: "v1", Resource: o.Resource, Subresource: o.Subresource, Namespace: namespace, Name: name,
	}}
}

// newPathReview returns a review that asks whether a user may use a verb on a path.
func newPathReview(user, verb, path string) spec {
	return spec{
		User:                  user,
		Groups:                []string{"system:authenticated"},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path},
	}
}

var pods = object{Resource: "pods"}

// addImplied adds the cases about what does not follow: one verb, mode, resource or scope from another.
func (d *caseBuilder) addImplied() {
	for _, verb := range d.Verbs {
		verbUser := d.newName()
		otherVerbsUser := d.newName()
		o := d.Resources[d.random.IntN(len(d.Resources))]
		namespace := d.newName()
		name := d.newName()
		others := slices.DeleteFunc(slices.Clone(d.Verbs), func(v string) bool { return v == verb })
		all := newGrant(otherVerbsUser, "", o, namespace)
		all.Verbs = others
		c := Case{Reason: "verb-implied", Grants: []scenarios.Grant{newGrant(verbUser, verb, o, namespace), all}}
		for _, v := range d.Verbs {
			c.Reviews = append(c.Reviews, newReview(verbUser, v, o, namespace, ""), newReview(verbUser, v, o, namespace, name))
		}
		c.Reviews = append(c.Reviews,
			newReview(otherVerbsUser, verb, o, namespace, ""),
			newReview(otherVerbsUser, others[0], o, namespace, ""),
		)
		d.add(c)
	}
	for _, verb := range d.PathVerbs {
		user, path := d.newName(), "/"+d.newName()
		c := Case{Reason: "verb-implied", Grants: []scenarios.Grant{newPathGrant(user, verb, path)}}
		c.Reviews = seq.Map(d.PathVerbs, func(v string) spec { return newPathReview(user, v, path) })
		d.add(c)
	}
	d.addModes()
	d.addSeemingConsequences()
	d.addNarrowerGrants()
	for _, o := range d.Resources {
		user := d.newName()
		verb := []string{"get", "list", "create", "impersonate", "impersonate-on:user-info:get"}[d.random.IntN(5)]
		namespace := d.newName()
		if d.random.IntN(3) == 0 {
			namespace = ""
		}
		c := Case{Reason: "resource-implied", Grants: []scenarios.Grant{newGrant(user, verb, o, namespace)}}
		c.Reviews = seq.Map(d.Resources, func(other object) spec { return newReview(user, verb, other, namespace, "") })
		d.add(c)
	}
	for _, namespace := range []string{"", d.newName(), "default", "kube-system", "kube-public"} {
		user, namespaceReader := d.newName(), d.newName()
		c := Case{
			Reason: "scope-confused",
			Grants: []scenarios.Grant{
				newGrant(user, "list", pods, namespace),
				newGrant(namespaceReader, "get", object{Resource: "namespaces"}, namespace),
			},
		}
		for _, other := range append(slices.Clone(d.Namespaces), namespace, d.newName()) {
			c.Reviews = append(c.Reviews, newReview(user, "list", pods, other, ""), newReview(user, "list", pods, other, d.newName()))
		}
		for _, verb := range []string{"get", "list", "watch"} { // a permission in a namespace does not imply that its holder may see the namespace
			for _, s := range [][2]string{{namespace, namespace}, {"", namespace}, {namespace, ""}, {"", ""}} {
				c.Reviews = append(c.Reviews,
					newReview(user, verb, object{Resource: "namespaces"}, s[0], s[1]),
					newReview(namespaceReader, verb, object{Resource: "namespaces"}, s[0], s[1]),
				)
			}
		}
		d.add(c)
	}
}

// addSeemingConsequences adds the cases about what only seems to follow from a permission for something else on the
// same object.
func (d *caseBuilder) addSeemingConsequences() {
	for i, pair := range d.SeemingConsequences {
		c, namespace, name := Case{Reason: "resource-implied"}, []string{"", d.newName()}[i%2], d.newName()
		users := [2]string{d.newName(), d.newName()}
		for side := range pair {
			for index, user := range users {
				words := strings.Fields(strings.ReplaceAll(pair[(side+index)%2], "{}", name))
				at, names := append(strings.Split(words[1], "/"), ""), words[2:]
				o := object{Group: at[0], Resource: at[1], Subresource: at[2]}
				if side == 0 {
					c.Grants = append(c.Grants, newGrant(user, words[0], o, namespace, names...))
				}
				c.Reviews = append(c.Reviews, newReview(user, words[0], o, namespace, strings.Join(append(names, name)[:1], "")))
			}
		}
		d.add(c)
	}
}

// addNarrowerGrants adds pairs of grants about the same. The narrower one takes nothing away from the wider one.
func (d *caseBuilder) addNarrowerGrants() {
	for i := range 4 {
		user, group, namespace, name := d.newName(), d.newName(), d.newName(), d.newName()
		wide, narrow := newGrant(user, "get", pods, ""), newGrant(user, "delete", pods, namespace, name)
		if i%2 == 0 {
			narrow.Names = nil
		}
		if i > 1 {
			wide.Subject = scenarios.Subject{Group: group}
		}
		c := Case{
			Reason: "grants-merged",
			Grants: []scenarios.Grant{
				wide,
				narrow,
				newPathGrant(user, "get", "/"+namespace+"/*"),
				newPathGrant(user, "post", "/"+namespace+"/x"),
			},
		}
		for _, verb := range []string{"get", "delete"} {
			for _, at := range [][2]string{{namespace, name}, {namespace, d.newName()}, {d.newName(), name}, {namespace, ""}} {
				s := newReview(user, verb, pods, at[0], at[1])
				s.Groups = append(s.Groups, group)
				c.Reviews = append(c.Reviews, s)
			}
		}
		c.Reviews = append(c.Reviews,
			newPathReview(user, "get", "/"+namespace+"/x"),
			newPathReview(user, "post", "/"+namespace+"/x"),
			newPathReview(user, "post", "/"+namespace+"/y"),
		)
		d.add(c)
	}
}

// addModes adds the cases about the verbs of impersonation: each mode with each action.
func (d *caseBuilder) addModes() {
	verbs := []string{"impersonate"}
	for _, m := range append(slices.Clone(d.Modes), "future-mode") {
		verbs = append(verbs, "impersonate:"+m)
	}
	for _, verb := range verbs[:len(verbs)-1] {
		d.addMode(verb, verbs)
	}
	d.addModePatterns(verbs)
	for _, mode := range d.Modes {
		for _, action := range d.Actions {
			d.addModeAction(mode, action)
		}
	}
}

// addMode adds the case of one verb of impersonation, which must not imply any other.
func (d *caseBuilder) addMode(verb string, verbs []string) {
	users := object{Group: "authentication.k8s.io", Resource: "users"}
	core := object{Resource: "users"}
	sa := object{Resource: "serviceaccounts"}
	user, target := d.newName(), d.newName()
	c := Case{
		Reason: "mode-implied",
		Grants: []scenarios.Grant{newGrant(user, verb, users, "", target), newGrant(user, verb, core, "", target)},
	}
	for _, v := range append(slices.Clone(verbs), "impersonate:", "impersonate:*", "*", verb+":get") {
		c.Reviews = append(c.Reviews, newReview(user, v, users, "", target), newReview(user, v, core, "", target))
	}
	c.Grants = append(c.Grants, newGrant(user, verb, sa, target, "robot"))
	c.Reviews = append(c.Reviews,
		newReview(user, verb, sa, target, "robot"),
		newReview(user, verb, users, "", "system:serviceaccount:"+target+":robot"),
		newReview(user, verb, core, "", "system:serviceaccount:"+target+":robot"),
		newReview(user, verb, users, "", "system:node:"+target),
	)
	d.add(c)
}

// addModePatterns adds the cases of verbs that look like patterns but are names.
func (d *caseBuilder) addModePatterns(verbs []string) {
	for _, pattern := range d.ModePatterns {
		user, namespace := d.newName(), d.newName()
		c := Case{Reason: "mode-implied", Grants: []scenarios.Grant{newGrant(user, pattern, pods, namespace)}}
		for _, v := range slices.Concat([]string{pattern}, d.PatternVerbs, verbs) {
			c.Reviews = append(c.Reviews, newReview(user, v, pods, namespace, ""))
		}
		d.add(c)
	}
}

// addModeAction adds the case of one action in one mode.
func (d *caseBuilder) addModeAction(mode, action string) {
	user, namespace, verb := d.newName(), d.newName(), "impersonate-on:"+mode+":"
	c := Case{Reason: "mode-implied", Grants: []scenarios.Grant{newGrant(user, verb+action, pods, namespace)}}
	for _, v := range d.Actions {
		c.Reviews = append(c.Reviews, newReview(user, verb+v, pods, namespace, ""))
	}
	for _, m := range append(slices.Clone(d.Modes), "future-mode", "*", "") {
		c.Reviews = append(c.Reviews, newReview(user, "impersonate-on:"+m+":"+action, pods, namespace, ""))
	}
	for _, v := range []string{
		action,
		"impersonate",
		"impersonate:" + mode,
		verb + "*",
		verb,
		"impersonate-on",
		"impersonate-on:" + mode,
		verb + action + ":" + action,
		"impersonate-as:" + mode + ":" + action,
	} {
		c.Reviews = append(c.Reviews, newReview(user, v, pods, namespace, ""))
	}
	plain := d.newName()
	c.Grants = append(c.Grants, newGrant(plain, action, pods, namespace))
	c.Reviews = append(c.Reviews, newReview(plain, action, pods, namespace, ""), newReview(plain, verb+action, pods, namespace, ""))
	impersonator := d.newName() // who may take an identity may not therefore do anything with it
	c.Grants = append(c.Grants, newGrant(impersonator, "impersonate:"+mode, pods, namespace))
	c.Reviews = append(c.Reviews,
		newReview(impersonator, "impersonate:"+mode, pods, namespace, ""),
		newReview(impersonator, verb+action, pods, namespace, ""),
	)
	d.add(c)
}

// addSubresourceVerbs adds the cases of the verbs of a subresource, none of which implies another. For any two verbs,
// somebody has the one and lacks the other.
func (d *caseBuilder) addSubresourceVerbs() {
	for _, o := range d.Resources {
		for set := range 6 {
			if o.Subresource == "" {
				break
			}
			c, g := Case{Reason: "verb-implied"}, newGrant(d.newName(), "", o, d.newName())
			g.Verbs = nil
			for i, verb := range d.Actions {
				if i>>(set/2)&1 == set%2 {
					g.Verbs = append(g.Verbs, verb)
				}
				c.Reviews = append(c.Reviews, newReview(g.Subject.User, verb, o, g.Namespace, ""))
			}
			c.Grants = []scenarios.Grant{g}
			d.add(c)
		}
	}
}

// addSeparations adds the cases of what has to be kept apart: two grants of one user, and two attributes of one review.
func (d *caseBuilder) addSeparations() {
	all := Attributes()
	attributes := all[:slices.IndexFunc(all, func(a Attribute) bool { return a.Name == "path" })]
	for _, a := range attributes {
		for _, b := range attributes {
			if !areApart(a, b) {
				continue
			}
			d.addJoined(a, b)
			hasGroups := a.Name == "groups" || b.Name == "groups"
			if a.Name < b.Name && !hasGroups {
				d.addCrossed(a, b)
			}
		}
	}
	d.addWildcards()
}

// isResource reports whether the attribute is the resource or the subresource.
func (a Attribute) isResource() bool { return strings.HasSuffix(a.Name, "resource") }

// isSubject reports whether the attribute is about who asks.
func (a Attribute) isSubject() bool { return a.Name == "user" || a.Name == "groups" }

// areApart reports whether a grant can have one attribute without the other.
func areApart(a, b Attribute) bool {
	areSubjects := a.isSubject() && b.isSubject()
	areResources := a.isResource() && b.isResource()
	return a.Name != b.Name && !areSubjects && !areResources
}

// addCrossed adds two grants that differ in two attributes, and one grant with two values of each of them.
func (d *caseBuilder) addCrossed(a, b Attribute) {
	c := Case{Reason: "grants-merged"}
	s := d.drawSetting(Attribute{})
	names := [4]string{d.newName(), d.newName(), d.newName(), d.newName()}
	for side := range 2 {
		g := s.newGrant(0, a, b)
		a.addToGrant(&g, names[side])
		b.addToGrant(&g, names[2+side])
		c.Grants = append(c.Grants, g)
	}
	if !a.isSingle && !b.isSingle {
		s.user, s.namespace = d.newName(), d.newName()
		g := s.newGrant(0, a, b)
		for side := range 2 {
			a.addToGrant(&g, names[side])
			b.addToGrant(&g, names[2+side])
		}
		c.Grants = append(c.Grants, g)
	}
	for _, user := range slices.Compact([]string{c.Grants[0].Subject.User, s.user}) {
		for i := range 4 {
			r := s.newReview(a, 0, "")
			r.User = user
			if user != s.user {
				r.ResourceAttributes.Namespace = c.Grants[0].Namespace
			}
			r.ResourceAttributes.Resource = s.Resource
			a.setInReview(&r, names[i%2])
			b.setInReview(&r, names[2+i/2])
			if strings.HasPrefix(a.Name+b.Name, "subresource") || b.Name == "subresource" {
				r.ResourceAttributes.Resource = subresourceParent
			}
			c.Reviews = append(c.Reviews, r)
		}
	}
	d.add(c)
}

// addJoined adds reviews that have the same key as a granted one if an authorizer joins two attributes, for any
// separator.
func (d *caseBuilder) addJoined(a, b Attribute) {
	c := Case{Reason: "attributes-joined"}
	parts, s, name := []string{""}, d.drawSetting(Attribute{}), d.newName()
	for _, sep := range separatorsBetween(a, b, d.Separators) {
		parts = append(parts, sep, d.newName()[:3])
	}
	value := name + strings.Join(parts, "")
	g, forward := s.newGrant(0, a, b), b.canGrant("{}", value)
	first, second := d.newName(), value
	if !forward {
		first, second = value, d.newName()
	}
	if !a.canGrant("{}", first) || !b.canGrant("{}", second) {
		return
	}
	a.addToGrant(&g, first)
	b.addToGrant(&g, second)
	c.Grants = []scenarios.Grant{g}
	put := func(x, y string) {
		if a.canAskFor(x) && b.canAskFor(y) {
			c.Reviews = append(c.Reviews, s.newReviewOfBoth(a, b, x, y))
		}
	}
	put(first, second)
	for i := 1; i < len(parts); i += 2 {
		left, right := name+strings.Join(parts[:i], ""), strings.Join(parts[i+1:], "")
		for _, sep := range []string{parts[i], ""} {
			x, y := left, right+sep+second
			if forward {
				x, y = first+sep+left, strings.TrimPrefix(value, left+sep)
			}
			put(x, y)
		}
	}
	put(second, first)
	d.add(c)
}

// separatorsBetween returns the separators that neither of two attributes uses itself.
func separatorsBetween(a, b Attribute, all []string) []string {
	inNamespace := a.isResource() && b.Name == "namespace"
	if b.isResource() || inNamespace {
		return seq.Filter(all, func(sep string) bool { return sep != "/" })
	}
	return all
}

// newReviewOfBoth returns a review with the values of two attributes.
func (s setting) newReviewOfBoth(a, b Attribute, x, y string) spec {
	r := s.newReview(a, 0, "")
	r.ResourceAttributes.Resource = s.Resource
	if strings.HasSuffix(a.Name+b.Name, "subresource") || a.Name == "subresource" {
		r.ResourceAttributes.Resource = subresourceParent
	}
	a.setInReview(&r, x)
	b.setInReview(&r, y)
	return r
}

// addWildcards adds the cases of a * that stands alone in a grant: what it covers, and what it does not.
func (d *caseBuilder) addWildcards() {
	namespace, path, knownName := d.newName(), "/"+d.newName(), d.newName()
	for _, g := range []scenarios.Grant{
		newGrant("", "*", pods, namespace),
		newGrant("", "get", object{Group: "*", Resource: knownName}, namespace),
		newGrant("", "get", object{Resource: "*"}, namespace),
		newGrant("", "get", object{Resource: "*/status"}, namespace),
		newGrant("", "get", object{Resource: "*/x"}, namespace),
		newGrant("", "get", object{Resource: "*/*"}, namespace),
		newGrant("", "get", object{Resource: "a/status"}, namespace),
		newGrant("", "*", object{Group: "*", Resource: "*"}, namespace),
		newGrant("", "get", object{Resource: "pods"}, namespace, "*"),
		newGrant("", "get", object{Resource: "pods/*"}, namespace),
		newGrant("", "*", object{Group: knownName + ".example.com", Resource: "*"}, ""),
		newPathGrant("", "get", path, path+"/sub/*"),
		newPathGrant("", "get", path+"*"),
		newPathGrant("", "get", path+"x*"),
		newPathGrant("", "*", path),
		newPathGrant("", "get", "*"),
		newPathGrant("", "get", "/*"),
		newPathGrant("", "*", "*"),
	} {
		g.Subject.User = d.newName()
		d.addWildcard(g, namespace, path, knownName)
	}
	d.addUserNamedStar(knownName)
}

// addWildcard asks about everything that a grant with a * may seem to cover.
func (d *caseBuilder) addWildcard(g scenarios.Grant, namespace, path, knownName string) {
	c, user := Case{Reason: "wildcard-granted", Grants: []scenarios.Grant{g}}, g.Subject.User
	for _, verb := range d.WildcardVerbs {
		for _, o := range d.WildcardObjects {
			o.Resource = Form(o.Resource, knownName)
			for _, group := range []string{"", knownName + ".example.com", "*"} {
				o.Group = group
				c.Reviews = append(c.Reviews, newReview(user, verb, o, namespace, ""))
			}
		}
		for _, p := range []string{path, path + "/", path + "x", path + "/sub", path + "/sub/", path + "/sub/a/b", "/" + knownName, "/", "*"} {
			c.Reviews = append(c.Reviews, newPathReview(user, verb, p))
		}
	}
	for _, name := range []string{"*", knownName, ""} {
		c.Reviews = append(c.Reviews,
			newReview(user, "get", pods, namespace, name),
			newReview(user, "get", pods, "", name),
			newReview(user, "get", pods, knownName, name),
		)
	}
	d.add(c)
}

// addUserNamedStar adds grants to somebody who is named *.
func (d *caseBuilder) addUserNamedStar(knownName string) {
	c := Case{Reason: "wildcard-granted"}
	for _, everybody := range []scenarios.Subject{{User: "*"}, {Group: "*"}} { // in a grant, too, that is an ordinary name
		g := newGrant("", "get", pods, d.newName())
		g.Subject = everybody
		c.Grants = append(c.Grants, g)
		for _, names := range [][]string{{knownName, "staff"}, {"*", "staff"}, {knownName, "*"}} {
			s := newReview(names[0], "get", pods, g.Namespace, "")
			s.Groups = names[1:]
			c.Reviews = append(c.Reviews, s)
		}
	}
	d.add(c)
}
