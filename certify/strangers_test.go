package certify

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// strangers were written by somebody who had seen only docs/certify.md and the printed policy. More than a hundred
// other authorizers of that author were found; these answered every question correctly at first.
var strangers = map[string]faultyDecider{
	"users by what is behind a prefix of Kubernetes": alsoBy(func(p *vendorProduct) {
		short := func(s string) string {
			return strings.TrimPrefix(strings.TrimPrefix(s, "system:node:"), "system:serviceaccount:")
		}
		p.subject = func(g rule, s spec) bool { return g.Subject.User != "" && short(g.Subject.User) == short(s.User) }
	}),
	"a grant to * is one to everybody": alsoBy(func(p *vendorProduct) {
		p.subject = func(g rule, _ spec) bool { return g.Subject.User == "*" }
	}),
	"nodes by their host name": alsoBy(func(p *vendorProduct) {
		host := func(s string) string { before, _, _ := strings.Cut(s, "."); return before }
		p.name = func(g rule, s spec) bool {
			same := func(granted string) bool { return host(granted) == host(nameOf(s)) }
			return len(g.Names) == 0 ||
				resourceIs(s, "nodes") && slices.ContainsFunc(g.Names, same)
		}
	}),
	"names that are numbers": alsoBy(func(p *vendorProduct) {
		p.name = func(g rule, s spec) bool {
			n, err := strconv.Atoi(nameOf(s))
			return err == nil &&
				slices.ContainsFunc(g.Names, func(granted string) bool { m, err := strconv.Atoi(granted); return err == nil && m == n })
		}
	}),
	"a mode allows all actions": alsoBy(func(p *vendorProduct) {
		p.verb = func(g rule, s spec) bool {
			mode, on := strings.CutPrefix(verbOf(s), "impersonate-on:")
			mode, _, _ = strings.Cut(mode, ":")
			return on && slices.Contains(g.Verbs, "impersonate:"+mode)
		}
	}),
	"what a subresource ends with": alsoBy(func(p *vendorProduct) {
		p.resource = func(g rule, s spec) bool {
			return slices.ContainsFunc(g.Resources, func(r string) bool {
				end, wild := strings.CutPrefix(r, "*")
				return wild && end != "" && strings.HasSuffix("/"+s.ResourceAttributes.Subresource, end)
			})
		}
	}),
	"kubectl's short names": alsoAs(func(s *spec) bool {
		a := s.ResourceAttributes
		if a == nil ||
			a.Resource != "cm" && a.Resource != "po" && a.Resource != "deploy" {
			return false
		}
		a.Resource = map[string]string{"cm": "configmaps", "po": "pods", "deploy": "deployments"}[a.Resource]
		return true
	}),
	"a namespace is within itself": readsResource(func(a *attributes) {
		if a.Resource == "namespaces" {
			a.Namespace = cmp.Or(a.Namespace, a.Name)
		}
	}),
	"leases of nodes": allows(func(s spec) bool {
		return resourceIs(s, "leases") && s.ResourceAttributes.Namespace == "kube-node-lease" && slices.Contains(s.Groups, "system:nodes")
	}),
	"the node of a pod": allows(func(s spec) bool {
		return resourceIs(s, "nodes") && slices.Contains(s.Extra["authentication.kubernetes.io/node-name"], nameOf(s))
	}),
	"associated-node is a node": reads(func(s *spec) {
		if node := s.Extra["authentication.kubernetes.io/node-name"]; verbOf(*s) == "impersonate:associated-node" && len(node) > 0 {
			s.ResourceAttributes.Name = node[0]
		}
	}),
	"selects one's own": allows(func(s spec) bool {
		a := s.ResourceAttributes
		return a != nil && a.FieldSelector != nil && slices.ContainsFunc(a.FieldSelector.Requirements, func(r metav1.FieldSelectorRequirement) bool { return slices.Contains(r.Values, s.User) })
	}),
	"selects one's team's": allows(func(s spec) bool {
		a := s.ResourceAttributes
		return a != nil && a.LabelSelector != nil &&
			slices.ContainsFunc(a.LabelSelector.Requirements, func(r metav1.LabelSelectorRequirement) bool {
				return slices.ContainsFunc(s.Groups, func(group string) bool { return slices.Contains(r.Values, group) })
			})
	}),
	"paths without what cannot be read": alsoAs(func(s *spec) bool {
		if s.NonResourceAttributes == nil {
			return false
		}
		n := *s.NonResourceAttributes
		n.Path = strings.ReplaceAll(n.Path, "\ufffd", "")
		s.NonResourceAttributes = &n
		return true
	}),
	"a cache in which a path is a resource": cachesBy(func(s spec) any {
		if n := s.NonResourceAttributes; n != nil {
			s.ResourceAttributes, s.NonResourceAttributes = &attributes{Verb: n.Verb, Resource: n.Path}, nil
		}
		return s
	}),
	"a cache with -- between": cachesBy(joinedBy("--")),
	"a cache with :: between": cachesBy(joinedBy("::")),
	"a cache with = between":  cachesBy(joinedBy("=")),
}

// alsoBy makes an authorizer that allows what the right one allows, and also what a product with changed parts allows.
func alsoBy(change func(p *vendorProduct)) faultyDecider {
	return func(right reference.Decider, grants []rule) reference.Decider {
		p := newProduct()
		change(p)
		other := p.decider(grants)
		return func(s spec) scenarios.Decision {
			if right(s) == scenarios.Allow {
				return scenarios.Allow
			}
			return other(s)
		}
	}
}

func allows(when func(s spec) bool) faultyDecider {
	return func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			if when(s) {
				return scenarios.Allow
			}
			return right(s)
		}
	}
}

// joinedBy makes a key that joins everything that is asked about in one string.
func joinedBy(separator string) func(s spec) any {
	return func(s spec) any {
		words := append([]string{s.User}, s.Groups...)
		if a := s.ResourceAttributes; a != nil {
			words = append(words, a.Namespace, a.Verb, a.Group, a.Resource, a.Subresource, a.Name)
		} else if n := s.NonResourceAttributes; n != nil {
			words = append(words, "path", n.Verb, n.Path)
		}
		return strings.Join(words, separator)
	}
}
