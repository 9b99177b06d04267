package certify

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/scenarios"
)

// The authorizers in this file were written before the questions of relations, from docs/certify.md and the printed
// policy alone. They are what a vendor's developer might write, each with one likely mistake. None of them may be
// granted every level.

type rule = scenarios.Grant

// vendorProduct is an authorizer in parts; each part is right until it is replaced.
type vendorProduct struct {
	subject, verb, group, resource, name, namespace, path func(g rule, s spec) bool
	before                                                func(s spec) (spec, bool) // true allows the review
}

func matchAny(list []string, s string) bool {
	return slices.Contains(list, s) || slices.Contains(list, "*")
}

func newProduct() *vendorProduct {
	return &vendorProduct{
		verb:  func(g rule, s spec) bool { return matchAny(g.Verbs, verbOf(s)) },
		group: func(g rule, s spec) bool { return matchAny(g.APIGroups, s.ResourceAttributes.Group) },
		resource: func(g rule, s spec) bool {
			a := s.ResourceAttributes
			if a.Subresource == "" {
				return matchAny(g.Resources, a.Resource)
			}
			return matchAny(g.Resources, a.Resource+"/"+a.Subresource) || slices.Contains(g.Resources, "*/"+a.Subresource)
		},
		name: func(g rule, s spec) bool {
			return len(g.Names) == 0 || slices.Contains(g.Names, s.ResourceAttributes.Name)
		},
		namespace: func(g rule, s spec) bool { return g.Namespace == "" || g.Namespace == s.ResourceAttributes.Namespace },
		path: func(g rule, s spec) bool {
			return slices.ContainsFunc(g.NonResourceURLs, func(u string) bool {
				before, star := strings.CutSuffix(u, "*")
				return u == s.NonResourceAttributes.Path ||
					star && strings.HasPrefix(s.NonResourceAttributes.Path, before)
			})
		},
	}
}

// decider returns an authorizer that looks at every grant if the subject is compared wrongly, and otherwise at those of
// the user who asks.
func (p *vendorProduct) decider(grants []rule) reference.Decider {
	of := map[scenarios.Subject][]rule{}
	for _, g := range grants {
		of[g.Subject] = append(of[g.Subject], g)
	}
	return func(s spec) scenarios.Decision {
		if p.before != nil {
			var open bool
			if s, open = p.before(*s.DeepCopy()); open {
				return scenarios.Allow
			}
		}
		grants := grants
		if p.subject == nil {
			grants = slices.Clone(of[scenarios.Subject{User: s.User}])
			for _, group := range s.Groups {
				grants = append(grants, of[scenarios.Subject{Group: group}]...)
			}
		}
		for _, g := range grants {
			if p.subject != nil && !p.subject(g, s) ||
				!p.verb(g, s) {
				continue
			}
			if s.ResourceAttributes != nil && len(g.Resources) > 0 && p.group(g, s) && p.resource(g, s) && p.name(g, s) &&
				p.namespace(g, s) ||
				s.NonResourceAttributes != nil && p.path(g, s) {
				return scenarios.Allow
			}
		}
		return scenarios.NoOpinion
	}
}

func anyString(list []string, s string, same func(granted, asked string) bool) bool {
	return slices.ContainsFunc(list, func(g string) bool { return g == "*" || same(g, s) })
}

// resourceOf returns a review as many policies write it, with everything in one string.
func resourceOf(s spec) string {
	if a := s.ResourceAttributes; a != nil {
		return a.Namespace + "/" + a.Group + "/" + a.Resource + "/" + a.Name
	}
	return s.NonResourceAttributes.Path
}

// changed makes an authorizer that changes the attributes of a resource before anything looks at them.
func changed(change func(a *authorizationv1.ResourceAttributes)) func(p *vendorProduct) {
	return func(p *vendorProduct) {
		p.before = func(s spec) (spec, bool) {
			if s.ResourceAttributes != nil {
				change(s.ResourceAttributes)
			}
			return s, false
		}
	}
}

// opens makes an authorizer that allows what meets a condition, before it asks the policy.
func opens(when func(s spec, a authorizationv1.ResourceAttributes) bool) func(p *vendorProduct) {
	return func(p *vendorProduct) {
		p.before = func(s spec) (spec, bool) {
			return s, s.ResourceAttributes != nil && when(s, *s.ResourceAttributes)
		}
	}
}

// developers are the authorizers by the parts that they get wrong.
var developers = map[string]func(p *vendorProduct){
	"users by EqualFold": func(p *vendorProduct) {
		p.subject = func(g rule, s spec) bool {
			return g.Subject.User != "" && strings.EqualFold(g.Subject.User, s.User) ||
				slices.Contains(s.Groups, g.Subject.Group)
		}
	},
	"groups by EqualFold": func(p *vendorProduct) {
		p.subject = func(g rule, s spec) bool {
			return g.Subject.User != "" && g.Subject.User == s.User ||
				g.Subject.Group != "" && slices.ContainsFunc(s.Groups, func(x string) bool { return strings.EqualFold(x, g.Subject.Group) })
		}
	},
	"groups by prefix": func(p *vendorProduct) {
		p.subject = func(g rule, s spec) bool {
			return g.Subject.User != "" && g.Subject.User == s.User ||
				g.Subject.Group != "" && slices.ContainsFunc(s.Groups, func(x string) bool { return strings.HasPrefix(x, g.Subject.Group) })
		}
	},
	"groups in a joined string": func(p *vendorProduct) {
		p.subject = func(g rule, s spec) bool {
			return g.Subject.User != "" && g.Subject.User == s.User ||
				g.Subject.Group != "" && strings.Contains(","+strings.Join(s.Groups, ",")+",", ","+g.Subject.Group+",")
		}
	},
	"last group only": func(p *vendorProduct) {
		p.subject = func(g rule, s spec) bool {
			return g.Subject.User != "" && g.Subject.User == s.User ||
				g.Subject.Group != "" && len(s.Groups) > 0 && s.Groups[len(s.Groups)-1] == g.Subject.Group
		}
	},
	"the part of a user before @": func(p *vendorProduct) {
		p.before = func(s spec) (spec, bool) { s.User, _, _ = strings.Cut(s.User, "@"); return s, false }
	},
	"users without oidc: before them": func(p *vendorProduct) {
		p.before = func(s spec) (spec, bool) { s.User = strings.TrimPrefix(s.User, "oidc:"); return s, false }
	},
	"uid instead of user": func(p *vendorProduct) {
		p.before = func(s spec) (spec, bool) { s.User = cmp.Or(s.UID, s.User); return s, false }
	},
	"groups of the extra": func(p *vendorProduct) {
		p.before = func(s spec) (spec, bool) { s.Groups = append(s.Groups, s.Extra["groups"]...); return s, false }
	},
	"service accounts get their groups": func(p *vendorProduct) {
		p.before = func(s spec) (spec, bool) {
			if parts := strings.Split(s.User, ":"); len(parts) == 4 && parts[1] == "serviceaccount" {
				s.Groups = append(s.Groups, "system:serviceaccounts:"+parts[2])
			}
			return s, false
		}
	},
	"verbs in lower case": func(p *vendorProduct) {
		p.verb = func(g rule, s spec) bool { return matchAny(g.Verbs, strings.ToLower(verbOf(s))) }
	},
	"verbs trimmed": func(p *vendorProduct) {
		p.verb = func(g rule, s spec) bool { return matchAny(g.Verbs, strings.TrimSpace(verbOf(s))) }
	},
	"verbs by regexp": func(p *vendorProduct) {
		p.verb = func(g rule, s spec) bool {
			return anyString(g.Verbs, verbOf(s), func(g, a string) bool { ok, _ := regexp.MatchString(g, a); return ok })
		}
	},
	"list from watch": func(p *vendorProduct) {
		p.verb = func(g rule, s spec) bool {
			return matchAny(g.Verbs, verbOf(s)) ||
				verbOf(s) == "list" && slices.Contains(g.Verbs, "watch")
		}
	},
	"get from list": func(p *vendorProduct) {
		p.verb = func(g rule, s spec) bool {
			return matchAny(g.Verbs, verbOf(s)) ||
				verbOf(s) == "get" && slices.Contains(g.Verbs, "list")
		}
	},
	"patch is update": func(p *vendorProduct) {
		p.verb = func(g rule, s spec) bool {
			return matchAny(g.Verbs, verbOf(s)) ||
				matchAny(g.Verbs, map[string]string{"patch": "update", "deletecollection": "delete"}[verbOf(s)])
		}
	},
	"head is get": func(p *vendorProduct) {
		p.verb = func(g rule, s spec) bool {
			return matchAny(g.Verbs, verbOf(s)) ||
				verbOf(s) == "head" && slices.Contains(g.Verbs, "get")
		}
	},
	"the last part of a verb": func(p *vendorProduct) {
		p.verb = func(g rule, s spec) bool {
			v := verbOf(s)
			return matchAny(g.Verbs, v) ||
				strings.HasPrefix(v, "impersonate-on:") && slices.ContainsFunc(g.Verbs, func(g string) bool {
					return strings.HasPrefix(g, "impersonate-on:") &&
						path.Ext(strings.ReplaceAll(g, ":", ".")) == path.Ext(strings.ReplaceAll(v, ":", "."))
				})
		}
	},
	"no apiGroup": func(p *vendorProduct) { p.group = func(rule, spec) bool { return true } },
	"apiGroup by suffix": func(p *vendorProduct) {
		p.group = func(g rule, s spec) bool {
			return anyString(g.APIGroups, s.ResourceAttributes.Group, func(g, a string) bool { return strings.HasSuffix(a, g) })
		}
	},
	"core is the default": changed(func(a *authorizationv1.ResourceAttributes) { a.Group = strings.TrimPrefix(a.Group, "core") }),
	"no subresource":      changed(func(a *authorizationv1.ResourceAttributes) { a.Subresource = "" }),
	"resources in lower case": changed(func(a *authorizationv1.ResourceAttributes) {
		a.Resource, a.Subresource = strings.ToLower(a.Resource), strings.ToLower(a.Subresource)
	}),
	"pods/* is all of pods": func(p *vendorProduct) {
		right := p.resource
		p.resource = func(g rule, s spec) bool {
			return right(g, s) || slices.Contains(g.Resources, s.ResourceAttributes.Resource+"/*")
		}
	},
	"singular resources": func(p *vendorProduct) {
		right := p.resource
		p.resource = func(g rule, s spec) bool {
			if right(g, s) {
				return true
			}
			s = *s.DeepCopy()
			s.ResourceAttributes.Resource += "s"
			return right(g, s)
		}
	},
	"names by path.Match": func(p *vendorProduct) {
		p.name = func(g rule, s spec) bool {
			return len(g.Names) == 0 || slices.ContainsFunc(g.Names, func(n string) bool {
				ok, _ := path.Match(n, s.ResourceAttributes.Name)
				return ok || n == s.ResourceAttributes.Name
			})
		}
	},
	"names by prefix": func(p *vendorProduct) {
		p.name = func(g rule, s spec) bool {
			return len(g.Names) == 0 ||
				slices.ContainsFunc(g.Names, func(n string) bool { return strings.HasPrefix(s.ResourceAttributes.Name, n) })
		}
	},
	"no name asks for none": func(p *vendorProduct) {
		right := p.name
		p.name = func(g rule, s spec) bool { return s.ResourceAttributes.Name == "" || right(g, s) }
	},
	"names of one label": changed(func(a *authorizationv1.ResourceAttributes) { a.Name, _, _ = strings.Cut(a.Name, ".") }),
	"namespaces by prefix": func(p *vendorProduct) {
		p.namespace = func(g rule, s spec) bool { return strings.HasPrefix(s.ResourceAttributes.Namespace, g.Namespace) }
	},
	"no namespace is default": changed(func(a *authorizationv1.ResourceAttributes) { a.Namespace = cmp.Or(a.Namespace, "default") }),
	"cluster scope from a namespace": func(p *vendorProduct) {
		right := p.namespace
		p.namespace = func(g rule, s spec) bool { return right(g, s) || s.ResourceAttributes.Namespace == "" }
	},
	"kube-system is exempt": opens(func(_ spec, a authorizationv1.ResourceAttributes) bool { return a.Namespace == "kube-system" }),
	"controllers are exempt": opens(func(s spec, _ authorizationv1.ResourceAttributes) bool {
		return s.User == "system:kube-controller-manager" || s.User == "system:kube-scheduler"
	}),
	"nodes are exempt": opens(func(s spec, _ authorizationv1.ResourceAttributes) bool {
		return slices.Contains(s.Groups, "system:nodes")
	}),
	"reviews of oneself": opens(func(_ spec, a authorizationv1.ResourceAttributes) bool {
		return strings.HasPrefix(a.Resource, "selfsubject")
	}),
	"impersonation of oneself": opens(func(s spec, a authorizationv1.ResourceAttributes) bool {
		return strings.HasPrefix(a.Verb, "impersonate") && a.Name == s.User
	}),
	"own namespace of a service account": opens(func(s spec, a authorizationv1.ResourceAttributes) bool {
		return a.Namespace != "" && a.Verb == "get" && strings.HasPrefix(s.User, "system:serviceaccount:"+a.Namespace+":")
	}),
	"health for everybody": func(p *vendorProduct) {
		p.before = func(s spec) (spec, bool) {
			return s, s.NonResourceAttributes != nil &&
				slices.Contains([]string{"/healthz", "/livez", "/readyz"}, s.NonResourceAttributes.Path)
		}
	},
	"no resource is allowed": func(p *vendorProduct) { p.before = func(s spec) (spec, bool) { return s, s.ResourceAttributes == nil } },
	"paths cleaned": func(p *vendorProduct) {
		p.before = func(s spec) (spec, bool) {
			if s.NonResourceAttributes != nil {
				s.NonResourceAttributes.Path = path.Clean(s.NonResourceAttributes.Path)
			}
			return s, false
		}
	},
	"paths without the query": func(p *vendorProduct) {
		p.before = func(s spec) (spec, bool) {
			if a := s.NonResourceAttributes; a != nil {
				a.Path, _, _ = strings.Cut(a.Path, "?")
			}
			return s, false
		}
	},
	"everything in one string": func(p *vendorProduct) {
		p.namespace = func(g rule, s spec) bool {
			if g.Namespace == "" {
				return true
			}
			names := g.Names
			if len(names) == 0 {
				names = []string{s.ResourceAttributes.Name}
			}
			for _, group := range g.APIGroups {
				for _, r := range g.Resources {
					for _, n := range names {
						r, _, _ := strings.Cut(r, "/")
						if fmt.Sprintf("%s/%s/%s/%s", g.Namespace, group, r, n) == resourceOf(s) {
							return true
						}
					}
				}
			}
			return slices.Contains(g.APIGroups, "*") ||
				slices.ContainsFunc(g.Resources, func(r string) bool { return strings.HasPrefix(r, "*") })
		}
		p.name = func(rule, spec) bool { return true }
		p.resource = func(rule, spec) bool { return true }
	},
}

// remembering are authorizers with a cache whose key leaves something out.
var remembering = map[string]func(s spec) string{
	"cache without groups": func(s spec) string { return fmt.Sprint(s.User, verbOf(s), resourceOf(s), s.ResourceAttributes) },
	"cache by Sprintf":     func(s spec) string { return fmt.Sprint(s.User, s.Groups) + "/" + verbOf(s) + "/" + resourceOf(s) },
	"cache in lower case": func(s spec) string {
		return strings.ToLower(fmt.Sprint(s.User, s.Groups, s.ResourceAttributes, s.NonResourceAttributes))
	},
	"cache of users and verb": func(s spec) string { return s.User + verbOf(s) },
}

// indexes are authorizers that load the policy into a map whose key leaves something out, so that the last grant wins.
var indexes = map[string]func(g rule) string{
	"map by user and namespace": func(g rule) string { return fmt.Sprintf("%s/%s", g.Subject, g.Namespace) },
	"map by user and resource":  func(g rule) string { return fmt.Sprintf("%s/%s/%s", g.Subject, g.APIGroups, g.Resources) },
	"map in lower case":         func(g rule) string { return strings.ToLower(fmt.Sprint(g)) },
}

// written returns all of these authorizers.
func written(grants []rule) map[string]reference.Decider {
	out := map[string]reference.Decider{}
	for name, change := range developers {
		p := newProduct()
		change(p)
		out[name] = p.decider(grants)
	}
	for name, key := range remembering {
		known, right := map[string]scenarios.Decision{}, newProduct().decider(grants)
		out[name] = func(s spec) scenarios.Decision {
			k := key(s)
			if _, ok := known[k]; !ok {
				known[k] = right(s)
			}
			return known[k]
		}
	}
	for name, key := range indexes {
		last := map[string]rule{}
		for _, g := range grants {
			last[key(g)] = g
		}
		var some []rule
		for _, g := range last {
			some = append(some, g)
		}
		out[name] = newProduct().decider(some)
	}
	return out
}

// TestDevelopersAreRejected asks all of them, in the order of a run.
func TestDevelopersAreRejected(t *testing.T) {
	t.Parallel()
	b := plan(t, 1)
	if wrong := firstWrong(b, newProduct().decider(b.Policy.Grants)); wrong != nil {
		t.Fatalf("without a mistake: %s", wrong)
	}
	all := written(b.Policy.Grants)
	if len(all) < 40 {
		t.Errorf("there are %d", len(all))
	}
	for _, name := range sample.OneIn(3, slices.Sorted(maps.Keys(all))) {
		if firstWrong(b, all[name]) == nil {
			t.Errorf("%s: every level is granted", name)
		}
	}
}
