package policy

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// rule grants one thing.
func rule(user, verb string, o object, namespace string, names ...string) scenarios.Grant {
	return scenarios.Grant{Subject: scenarios.Subject{User: user}, Verbs: []string{verb}, APIGroups: []string{o.Group}, Resources: []string{o.granted()}, Namespace: namespace, Names: names}
}

// pathRule grants one path.
func pathRule(user, verb string, paths ...string) scenarios.Grant {
	return scenarios.Grant{Subject: scenarios.Subject{User: user}, Verbs: []string{verb}, NonResourceURLs: paths}
}

func ask(user, verb string, o object, namespace, name string) spec {
	return spec{User: user, Groups: []string{"system:authenticated"}, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: verb, Group: o.Group, Version: "v1", Resource: o.Resource, Subresource: o.Subresource, Namespace: namespace, Name: name,
	}}
}

func askPath(user, verb, path string) spec {
	return spec{User: user, Groups: []string{"system:authenticated"}, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path}}
}

var pods = object{Resource: "pods"}

// implied are the cases of what does not follow: one verb, mode, resource or scope from another.
func (d *deck) implied() {
	for _, verb := range d.Verbs {
		one, rest, o, in := d.name(), d.name(), d.Resources[d.random.IntN(len(d.Resources))], d.name()
		others := slices.DeleteFunc(slices.Clone(d.Verbs), func(v string) bool { return v == verb })
		all := rule(rest, "", o, in)
		all.Verbs = others
		c := Case{Reason: "verb-implied", Grants: []scenarios.Grant{rule(one, verb, o, in), all}}
		for _, v := range d.Verbs {
			c.Asked = append(c.Asked, ask(one, v, o, in, ""), ask(one, v, o, in, d.name()))
		}
		c.Asked = append(c.Asked, ask(rest, verb, o, in, ""), ask(rest, others[0], o, in, ""))
		d.add(c)
	}
	for _, verb := range d.PathVerbs {
		user, path := d.name(), "/"+d.name()
		c := Case{Reason: "verb-implied", Grants: []scenarios.Grant{pathRule(user, verb, path)}}
		for _, v := range d.PathVerbs {
			c.Asked = append(c.Asked, askPath(user, v, path))
		}
		d.add(c)
	}
	d.modes()
	for _, o := range d.Resources {
		user, verb, in := d.name(), []string{"get", "list", "create", "impersonate", "impersonate-on:user-info:get"}[d.random.IntN(5)], d.name()
		if d.random.IntN(3) == 0 {
			in = ""
		}
		c := Case{Reason: "resource-implied", Grants: []scenarios.Grant{rule(user, verb, o, in)}}
		for _, other := range d.Resources {
			c.Asked = append(c.Asked, ask(user, verb, other, in, ""))
		}
		d.add(c)
	}
	for _, in := range []string{"", d.name(), "default", "kube-system", "kube-public"} {
		user := d.name()
		c := Case{Reason: "scope-confused", Grants: []scenarios.Grant{rule(user, "list", pods, in)}}
		for _, other := range append(slices.Clone(d.Namespaces), in, d.name()) {
			c.Asked = append(c.Asked, ask(user, "list", pods, other, ""), ask(user, "list", pods, other, d.name()))
		}
		for _, verb := range []string{"get", "list", "watch"} { // who may do something in a namespace may not therefore see it
			for _, s := range [][2]string{{in, in}, {"", in}, {in, ""}, {"", ""}} {
				c.Asked = append(c.Asked, ask(user, verb, object{Resource: "namespaces"}, s[0], s[1]))
			}
		}
		d.add(c)
	}
}

// modes are the verbs of impersonation: each mode with each action.
func (d *deck) modes() {
	users := object{Group: "authentication.k8s.io", Resource: "users"}
	verbs := []string{"impersonate"}
	for _, m := range append(slices.Clone(d.Modes), "future-mode") {
		verbs = append(verbs, "impersonate:"+m)
	}
	for _, verb := range verbs[:len(verbs)-1] {
		user, target := d.name(), d.name()
		c := Case{Reason: "mode-implied", Grants: []scenarios.Grant{rule(user, verb, users, "", target), rule(user, verb, object{Resource: "users"}, "", target)}}
		for _, v := range append(slices.Clone(verbs), "impersonate:", "impersonate:*", "*", verb+":get") {
			c.Asked = append(c.Asked, ask(user, v, users, "", target), ask(user, v, object{Resource: "users"}, "", target))
		}
		sa := object{Resource: "serviceaccounts"}
		c.Grants = append(c.Grants, rule(user, verb, sa, target, "robot"))
		c.Asked = append(c.Asked, ask(user, verb, sa, target, "robot"), ask(user, verb, users, "", "system:serviceaccount:"+target+":robot"),
			ask(user, verb, object{Resource: "users"}, "", "system:serviceaccount:"+target+":robot"), ask(user, verb, users, "", "system:node:"+target))
		d.add(c)
	}
	for _, mode := range d.Modes {
		for _, action := range d.Actions {
			user, in, verb := d.name(), d.name(), "impersonate-on:"+mode+":"
			c := Case{Reason: "mode-implied", Grants: []scenarios.Grant{rule(user, verb+action, pods, in)}}
			for _, v := range d.Actions {
				c.Asked = append(c.Asked, ask(user, verb+v, pods, in, ""))
			}
			for _, m := range append(slices.Clone(d.Modes), "future-mode", "*", "") {
				c.Asked = append(c.Asked, ask(user, "impersonate-on:"+m+":"+action, pods, in, ""))
			}
			for _, v := range []string{action, "impersonate", "impersonate:" + mode, verb + "*", verb, "impersonate-on", "impersonate-on:" + mode, verb + action + ":" + action, "impersonate-as:" + mode + ":" + action} {
				c.Asked = append(c.Asked, ask(user, v, pods, in, ""))
			}
			plain := d.name()
			c.Grants = append(c.Grants, rule(plain, action, pods, in))
			c.Asked = append(c.Asked, ask(plain, action, pods, in, ""), ask(plain, verb+action, pods, in, ""))
			d.add(c)
		}
	}
}

// apart are the cases of what has to be kept apart: two grants of one user, and two attributes of one review.
func (d *deck) apart() {
	all := Attributes()
	compared := all[:slices.IndexFunc(all, func(a Attribute) bool { return a.Name == "path" })]
	for _, a := range compared {
		for _, b := range compared {
			if a.Name == b.Name || a.Name+b.Name == "usergroups" || a.Name+b.Name == "groupsuser" || strings.HasSuffix(a.Name, "resource") && strings.HasSuffix(b.Name, "resource") {
				continue
			}
			d.joined(a, b)
			if a.Name < b.Name && a.Name != "groups" && b.Name != "groups" {
				d.crossed(a, b)
			}
		}
	}
	d.wildcards()
}

// crossed are two grants that differ in two attributes, and one grant with two values of each.
func (d *deck) crossed(a, b Attribute) {
	c := Case{Reason: "grants-merged"}
	s := d.setting(Attribute{})
	names := [4]string{d.name(), d.name(), d.name(), d.name()}
	for side := range 2 {
		g := s.grant(0, a, b)
		a.grant(&g, names[side])
		b.grant(&g, names[2+side])
		c.Grants = append(c.Grants, g)
	}
	if !a.single && !b.single {
		s.user, s.namespace = d.name(), d.name()
		g := s.grant(0, a, b)
		for side := range 2 {
			a.grant(&g, names[side])
			b.grant(&g, names[2+side])
		}
		c.Grants = append(c.Grants, g)
	}
	for _, user := range slices.Compact([]string{c.Grants[0].Subject.User, s.user}) {
		for i := range 4 {
			r := s.ask(a, 0, "")
			r.User = user
			if user != s.user {
				r.ResourceAttributes.Namespace = c.Grants[0].Namespace
			}
			r.ResourceAttributes.Resource = s.Resource
			a.ask(&r, names[i%2])
			b.ask(&r, names[2+i/2])
			if strings.HasPrefix(a.Name+b.Name, "subresource") || b.Name == "subresource" {
				r.ResourceAttributes.Resource = withSub
			}
			c.Asked = append(c.Asked, r)
		}
	}
	d.add(c)
}

// joined are reviews that have the key of a granted one if two attributes are joined in it, whatever stands between
// them.
func (d *deck) joined(a, b Attribute) {
	c := Case{Reason: "attributes-joined"}
	parts, s, name := []string{""}, d.setting(Attribute{}), d.name()
	separators := slices.DeleteFunc(slices.Clone(d.Separators), func(sep string) bool {
		return sep == "/" && (strings.HasSuffix(b.Name, "resource") || strings.HasSuffix(a.Name, "resource") && b.Name == "namespace")
	})
	for _, sep := range separators {
		parts = append(parts, sep, d.name()[:3])
	}
	value := name + strings.Join(parts, "")
	g, forward := s.grant(0, a, b), b.grantable("{}", value)
	first, second := d.name(), value
	if !forward {
		first, second = value, d.name()
	}
	if !a.grantable("{}", first) || !b.grantable("{}", second) {
		return
	}
	a.grant(&g, first)
	b.grant(&g, second)
	c.Grants = []scenarios.Grant{g}
	put := func(x, y string) {
		r := s.ask(a, 0, "")
		r.ResourceAttributes.Resource = s.Resource
		if strings.HasSuffix(a.Name+b.Name, "subresource") || a.Name == "subresource" {
			r.ResourceAttributes.Resource = withSub
		}
		a.ask(&r, x)
		b.ask(&r, y)
		if a.askable(x) && b.askable(y) {
			c.Asked = append(c.Asked, r)
		}
	}
	put(first, second)
	for i := 1; i < len(parts); i += 2 {
		left, sep, right := name+strings.Join(parts[:i], ""), parts[i], strings.Join(parts[i+1:], "")
		for _, sep := range []string{sep, ""} {
			if forward {
				put(first+sep+left, strings.TrimPrefix(value, left+sep))
			} else {
				put(left, right+sep+second)
			}
		}
	}
	put(second, first)
	d.add(c)
}

// wildcards are what * covers where it stands alone in a grant, and what it does not.
func (d *deck) wildcards() {
	in, path, known := d.name(), "/"+d.name(), d.name()
	for _, g := range []scenarios.Grant{
		rule("", "*", pods, in), rule("", "get", object{Group: "*", Resource: known}, in), rule("", "get", object{Resource: "*"}, in), rule("", "get", object{Resource: "*/status"}, in),
		rule("", "get", object{Resource: "*/x"}, in), rule("", "get", object{Resource: "a/status"}, in),
		rule("", "*", object{Group: "*", Resource: "*"}, in), rule("", "get", object{Resource: "pods"}, in, "*"), rule("", "get", object{Resource: "pods/*"}, in),
		rule("", "*", object{Group: known + ".example.com", Resource: "*"}, ""),
		pathRule("", "get", path, path+"/sub/*"), pathRule("", "get", path+"*"), pathRule("", "get", path+"x*"), pathRule("", "*", path), pathRule("", "get", "*"), pathRule("", "get", "/*"), pathRule("", "*", "*"),
	} {
		user := d.name()
		g.Subject.User = user
		c := Case{Reason: "wildcard-granted", Grants: []scenarios.Grant{g}}
		for _, verb := range []string{"get", "delete", "a-verb-of-tomorrow", "*", "impersonate", "impersonate-on:user-info:get"} {
			for _, o := range []object{pods, {Resource: known}, {Resource: "status"}, {Resource: "pods", Subresource: "status"}, {Resource: "pods", Subresource: "log"}, {Resource: "pods", Subresource: "attach"}, {Resource: "pods", Subresource: "tatus"}, {Resource: "pods", Subresource: "x"}, {Resource: "a", Subresource: "status"}, {Resource: "pods", Subresource: "*"}, {Resource: "*"}} {
				for _, group := range []string{"", known + ".example.com", "*"} {
					o.Group = group
					c.Asked = append(c.Asked, ask(user, verb, o, in, ""))
				}
			}
			for _, p := range []string{path, path + "/", path + "x", path + "/sub", path + "/sub/", path + "/sub/a/b", "/" + known, "/", "*"} {
				c.Asked = append(c.Asked, askPath(user, verb, p))
			}
		}
		for _, name := range []string{"*", known, ""} {
			c.Asked = append(c.Asked, ask(user, "get", pods, in, name), ask(user, "get", pods, "", name), ask(user, "get", pods, known, name))
		}
		d.add(c)
	}
}

// unnamed are the cases of who asks: names that everybody knows, and what is beside the name.
func (d *deck) unnamed() {
	freely := Case{Reason: "shortcut-for-a-name"}
	stranger := d.name()
	some := func(s spec) {
		for _, v := range []spec{
			ask("", "get", pods, d.name(), ""), ask("", "list", object{Resource: "secrets"}, "kube-system", ""), ask("", "*", object{Group: "*", Resource: "*"}, "", ""),
			ask("", "impersonate", object{Resource: "users"}, "", d.name()), askPath("", "get", "/"+d.name()), ask("", "update", object{Group: "apps", Resource: "deployments"}, "", d.name()),
		} {
			v.User, v.Groups = s.User, s.Groups
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
	d.own()
	d.beside()
	d.shared()
	d.many()
}

// own is what belongs to somebody by its name only, and identities of a cluster that are granted something.
func (d *deck) own() {
	in, name, elsewhere := d.name(), d.name(), d.name()
	robot := "system:serviceaccount:" + in + ":" + name
	c := Case{Reason: "own-by-name"}
	for _, user := range []string{name, "system:" + name, "system:node:" + name, robot} {
		c.Grants = append(c.Grants, rule(user, "get", pods, in))
		for _, o := range []object{{Resource: "secrets"}, {Resource: "nodes"}, {Resource: "serviceaccounts", Subresource: "token"}, {Resource: "users"}} {
			for _, verb := range []string{"get", "create", "impersonate", "impersonate:user-info"} {
				c.Asked = append(c.Asked, ask(user, verb, o, "", user), ask(user, verb, o, in, name), ask(user, verb, o, name, name))
			}
		}
		other := strings.ReplaceAll(user, name, elsewhere)
		c.Asked = append(c.Asked, ask(user, "get", pods, in, ""), ask(other, "get", pods, in, ""), ask(user, "get", pods, name, ""), ask(strings.TrimPrefix(user, "system:"), "get", object{Resource: "pods"}, in, "x"))
	}
	for _, group := range []string{"system:serviceaccounts:" + elsewhere, "system:bootstrappers:" + elsewhere, "system:" + elsewhere} {
		g := rule("", "get", pods, elsewhere)
		g.Subject = scenarios.Subject{Group: group}
		c.Grants = append(c.Grants, g)
		member := ask("system:serviceaccount:"+elsewhere+":"+d.name(), "get", pods, elsewhere, "")
		c.Asked = append(c.Asked, member)
		member.Groups = []string{"system:serviceaccounts", group, "system:authenticated"}
		c.Asked = append(c.Asked, member, ask(group, "get", pods, elsewhere, ""))
	}
	d.add(c)
}

// beside is what must not matter: uid, extra and the version of the API, and the kind of name.
func (d *deck) beside() {
	c := Case{Reason: "decided-by-something-else"}
	in, user, group, path := d.name(), d.name(), d.name(), "/"+d.name()
	member := rule("", "list", pods, in)
	member.Subject = scenarios.Subject{Group: group}
	c.Grants = []scenarios.Grant{rule(user, "get", pods, in), member, pathRule(user, "get", path)}
	add := func(s spec) { c.Asked = append(c.Asked, s) }
	for _, who := range []string{user, d.name()} {
		for _, uid := range []string{"", user, group, fmt.Sprintf("5e1f-%s", who), "0"} {
			s := ask(who, "get", pods, in, d.name())
			s.UID = uid
			add(s)
			p := askPath(who, "get", path)
			p.UID = uid
			add(p)
		}
		for _, key := range []string{"user", "username", "name", "sub", "email", "groups", "scopes", "authentication.kubernetes.io/credential-id", "example.com/team"} {
			for _, value := range []string{user, group, "admin", "*", ""} {
				s := ask(who, "get", pods, in, d.name())
				s.Extra = map[string]authorizationv1.ExtraValue{key: {value, "x"}}
				add(s)
				s.ResourceAttributes = ask(who, "list", pods, in, "").ResourceAttributes
				add(s)
			}
		}
		for _, version := range []string{"", "v1", "v1beta1", "v2", "*", "V1", "v1alpha1"} {
			s := ask(who, "get", pods, in, d.name())
			s.ResourceAttributes.Version = version
			add(s)
		}
		for _, groups := range [][]string{nil, {user}, {group}, {"x", group, "y"}, {group, group}, {group + "," + user}, {strings.Join([]string{"x", group}, ",")}} {
			s := ask(who, "list", pods, in, d.name())
			s.Groups = groups
			add(s)
			s.ResourceAttributes = ask(who, "get", pods, in, d.name()).ResourceAttributes
			add(s)
		}
	}
	add(ask(group, "list", pods, in, ""))
	for _, like := range []string{path, "/api/v1/namespaces/" + in + "/pods", "/api/v1/pods", in, "pods"} {
		add(askPath(user, "get", like))
	}
	add(ask(user, "get", object{Resource: strings.Trim(path, "/")}, "", ""))
	add(ask(user, "get", object{Resource: strings.Trim(path, "/")}, in, path))
	d.add(c)
}
