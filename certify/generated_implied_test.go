package certify

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// generated is an authorizer that decides wrongly in a way that belongs to a class.
type generated struct {
	class, name string
	wrong       func(right reference.Decider) reference.Decider
}

// cached makes an authorizer that remembers decisions under a key that leaves something out.
func cached(key func(review) any) func(reference.Decider) reference.Decider {
	return func(right reference.Decider) reference.Decider {
		var known sync.Map
		return func(r review) scenarios.Decision {
			raw, err := json.Marshal(key(r))
			if err != nil {
				return right(r)
			}
			d, _ := known.LoadOrStore(string(raw), right(r))
			return d.(scenarios.Decision)
		}
	}
}

// implies returns authorizers that take one thing for another, or one user for another. Their words are those of
// Kubernetes, and not taken from relations.yaml.
func implies() (out []generated) {
	add := func(class, name string, wrong func(reference.Decider) reference.Decider) {
		out = append(out, generated{class, name, wrong})
	}
	opens := func(class, name string, when func(s spec) bool) {
		add(class, name, func(right reference.Decider) reference.Decider {
			return func(s spec) scenarios.Decision {
				if when(s) {
					return scenarios.Allow
				}
				return right(s)
			}
		})
	}
	of := func(change func(a *authorizationv1.ResourceAttributes)) func(review) (review, bool) {
		return func(r review) (review, bool) { return without(r, change), r.ResourceAttributes != nil }
	}
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "bind", "escalate", "use", "approve", "sign"}
	modes := []string{"user-info", "serviceaccount", "arbitrary-node", "associated-node"}
	for _, granted := range verbs {
		for _, asked := range verbs {
			if granted != asked {
				add("verb-implied", granted+" implies "+asked, also(func(r review) (review, bool) { return withVerb(r, granted), verbOf(r) == asked }))
			}
			if i, j := slices.Index(verbs, granted), slices.Index(verbs, asked); granted != asked && i < 8 && j < 8 {
				for _, mode := range modes {
					on := "impersonate-on:" + mode + ":"
					add("mode-implied", on+granted+" implies "+asked, also(func(r review) (review, bool) { return withVerb(r, on+granted), verbOf(r) == on+asked }))
				}
			}
		}
	}
	for _, one := range modes {
		for _, other := range append(slices.Clone(modes), "") {
			if one == other {
				continue
			}
			mode := func(m string) string { return strings.TrimSuffix("impersonate:"+m, ":") }
			add("mode-implied", one+" implies "+other, also(func(r review) (review, bool) { return withVerb(r, mode(one)), verbOf(r) == mode(other) }))
			add("mode-implied", other+" implies "+one, also(func(r review) (review, bool) { return withVerb(r, mode(other)), verbOf(r) == mode(one) }))
			add("mode-implied", one+" acts as "+other, also(func(r review) (review, bool) {
				action, ok := strings.CutPrefix(verbOf(r), "impersonate-on:"+other+":")
				return withVerb(r, "impersonate-on:"+one+":"+action), ok
			}))
		}
		add("mode-implied", one+" is plain", also(func(r review) (review, bool) { return withVerb(r, "impersonate-on:"+one+":"+verbOf(r)), true }))
		add("mode-implied", "plain is "+one, also(func(r review) (review, bool) {
			action, ok := strings.CutPrefix(verbOf(r), "impersonate-on:"+one+":")
			return withVerb(r, action), ok
		}))
	}
	objects := []string{"/pods", "/secrets", "/services", "/pods/log", "/pods/exec", "/pods/status", "/services/status", "apps/deployments", "apps/replicasets", "apps/deployments/scale", "extensions/deployments", "/users", "authentication.k8s.io/users"}
	for _, granted := range objects {
		for _, asked := range objects {
			if granted == asked {
				continue
			}
			parts := append(strings.Split(granted, "/"), "")
			add("resource-implied", granted+" implies "+asked, also(func(r review) (review, bool) {
				a := r.ResourceAttributes
				fits := a != nil && strings.TrimSuffix(a.Group+"/"+a.Resource+"/"+a.Subresource, "/") == asked
				return without(r, func(b *authorizationv1.ResourceAttributes) {
					b.Group, b.Resource, b.Subresource = parts[0], parts[1], parts[2]
				}), fits
			}))
		}
	}
	add("resource-implied", "subresources", also(of(func(a *authorizationv1.ResourceAttributes) { a.Subresource = "" })))
	add("scope-confused", "from anywhere", also(func(r review) (review, bool) {
		a := r.ResourceAttributes
		return without(r, func(b *authorizationv1.ResourceAttributes) { b.Namespace = "default" }), a != nil && a.Namespace == ""
	}))
	for _, in := range []string{"default", "kube-system"} {
		add("scope-confused", "from "+in, also(of(func(a *authorizationv1.ResourceAttributes) { a.Namespace = in })))
		opens("shortcut-for-a-name", "namespace "+in, func(s spec) bool { return s.ResourceAttributes != nil && s.ResourceAttributes.Namespace == in })
	}
	for _, user := range []string{"system:admin", "kubernetes-admin", "system:kube-controller-manager", "system:kube-scheduler", "system:apiserver", "system:anonymous", "admin"} {
		opens("shortcut-for-a-name", "user "+user, func(s spec) bool { return s.User == user })
	}
	for _, group := range []string{"system:nodes", "system:serviceaccounts:kube-system", "system:unauthenticated", "kubeadm:cluster-admins", "cluster-admins"} {
		opens("shortcut-for-a-name", "group "+group, func(s spec) bool { return slices.Contains(s.Groups, group) })
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/version", "/api", "/apis", "/metrics", "/openapi/v2", "/"} {
		opens("shortcut-for-a-name", "path "+path, func(s spec) bool { return s.NonResourceAttributes != nil && s.NonResourceAttributes.Path == path })
	}
	opens("shortcut-for-a-name", "system: users", func(s spec) bool { return strings.HasPrefix(s.User, "system:kube") })
	opens("shortcut-for-a-name", "reviews of oneself", func(s spec) bool {
		return s.ResourceAttributes != nil && strings.HasPrefix(s.ResourceAttributes.Resource, "selfsubject")
	})
	opens("own-by-name", "of who asks", func(s spec) bool { return s.ResourceAttributes != nil && s.ResourceAttributes.Name == s.User })
	for name, values := range map[string]func(s spec) []string{
		"its uid":    func(s spec) []string { return []string{s.UID} },
		"its node":   func(s spec) []string { return s.Extra["authentication.kubernetes.io/node-name"] },
		"its pod":    func(s spec) []string { return s.Extra["authentication.kubernetes.io/pod-name"] },
		"its token":  func(s spec) []string { return s.Extra["authentication.kubernetes.io/credential-id"] },
		"its groups": func(s spec) []string { return s.Groups },
	} {
		opens("own-by-name", name+" as a name", func(s spec) bool {
			return s.ResourceAttributes != nil && s.ResourceAttributes.Name != "" && slices.Contains(values(s), s.ResourceAttributes.Name)
		})
		opens("own-by-name", name+" as a namespace", func(s spec) bool {
			return s.ResourceAttributes != nil && s.ResourceAttributes.Namespace != "" && slices.Contains(values(s), s.ResourceAttributes.Namespace)
		})
	}
	opens("own-by-name", "a secret of its namespace", func(s spec) bool {
		parts := strings.Split(s.User, ":")
		return len(parts) == 4 && s.ResourceAttributes != nil && s.ResourceAttributes.Resource == "secrets" && s.ResourceAttributes.Namespace == parts[2]
	})
	add("common-names", "default of any namespace", func(right reference.Decider) reference.Decider {
		var known sync.Map
		return func(s spec) scenarios.Decision {
			d := right(s)
			parts := strings.Split(s.User, ":")
			if len(parts) != 4 || parts[3] != "default" {
				return d
			}
			if d == scenarios.Allow {
				known.Store(verbOf(s), true)
			}
			if _, ok := known.Load(verbOf(s)); ok && resourceIs(s, "pods") && s.ResourceAttributes.Name == "default" {
				return scenarios.Allow
			}
			return d
		}
	})
	add("common-names", "a user is in the group of its name", also(func(r review) (review, bool) {
		r = *r.DeepCopy()
		r.Groups = append(r.Groups, r.User)
		return r, true
	}))
	add("common-names", "a member is the user of the group's name", func(right reference.Decider) reference.Decider {
		return func(s spec) scenarios.Decision {
			for _, g := range s.Groups {
				other := s
				if other.User = g; right(other) == scenarios.Allow {
					return scenarios.Allow
				}
			}
			return right(s)
		}
	})
	for name, change := range map[string]func(r *review){
		"in API group authentication.k8s.io": func(r *review) { r.ResourceAttributes.Group = "authentication.k8s.io" },
		"in no API group":                    func(r *review) { r.ResourceAttributes.Group = "" },
		"without subresource":                func(r *review) { r.ResourceAttributes.Subresource = "" },
		"by uid":                             func(r *review) { r.User = r.UID },
		"by uid as a group":                  func(r *review) { r.Groups = append(slices.Clone(r.Groups), r.UID) },
		"by name": func(r *review) {
			if r.UID == r.ResourceAttributes.Name {
				r.User = r.UID
			}
		},
	} {
		add("impersonates-something-else", name, also(func(r review) (review, bool) {
			if r.ResourceAttributes == nil || r.ResourceAttributes.Verb != "impersonate" {
				return r, false
			}
			r = *r.DeepCopy()
			change(&r)
			return r, true
		}))
	}
	return append(out, forgetful()...)
}

// forgetful returns caches whose key lacks one attribute, and caches that take other attributes for the user.
func forgetful() (out []generated) {
	type attributes = authorizationv1.ResourceAttributes
	lacks := func(change func(a *attributes)) func(r *review) { return func(r *review) { *r = without(*r, change) } }
	for name, forget := range map[string]func(r *review){
		"user":                    func(r *review) { r.User = "" },
		"groups":                  func(r *review) { r.Groups = nil },
		"verb":                    func(r *review) { *r = withVerb(*r, "") },
		"all but the first group": func(r *review) { r.Groups = r.Groups[:min(1, len(r.Groups))] },
		"api-group":               lacks(func(a *attributes) { a.Group = "" }),
		"resource":                lacks(func(a *attributes) { a.Resource = "" }),
		"subresource":             lacks(func(a *attributes) { a.Subresource = "" }),
		"name":                    lacks(func(a *attributes) { a.Name = "" }),
		"namespace":               lacks(func(a *attributes) { a.Namespace = "" }),
		"capitals":                lacks(func(a *attributes) { a.Name = strings.ToLower(a.Name) }),
		"path": func(r *review) {
			if r.NonResourceAttributes != nil {
				r.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: r.NonResourceAttributes.Verb}
			}
		},
		"where one ends": lacks(func(a *attributes) {
			a.Name, a.Namespace, a.Resource = fmt.Sprint(a.Namespace, "/", a.Resource, "/", a.Name), "", ""
		}),
	} {
		out = append(out, generated{"cached-without", name, cached(func(r review) any {
			forget(&r)
			r.Extra, r.UID = nil, ""
			return r
		})})
	}
	for name, who := range map[string]func(r *review){
		"uid":             func(r *review) { r.User = r.UID },
		"first group":     func(r *review) { r.User = append(r.Groups, "")[0] },
		"extra":           func(r *review) { r.User = append(r.Extra["username"], "")[0] },
		"groups of extra": func(r *review) { r.Groups = r.Extra["groups"] },
		"user as group":   func(r *review) { r.Groups = []string{r.User} },
	} {
		out = append(out, generated{"decided-by-something-else", name, also(func(r review) (review, bool) { who(&r); return r, true })})
	}
	return out
}
