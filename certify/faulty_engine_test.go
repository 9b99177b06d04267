package certify

import (
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

type review = spec

// engine evaluates a policy part by part, so that a faulty authorizer can be wrong in one part. Unchanged, it decides
// as policy.Decide does.
type engine struct {
	user, verb, group, name, namespace, path func(granted, asked string) bool
	member                                   func(group string, of []string) bool
	resource                                 func(granted, resource, subresource string) bool
}

func equal(granted, asked string) bool { return granted == asked }

func star(granted, asked string) bool { return granted == "*" || granted == asked }

func newEngine() *engine {
	return &engine{
		user: equal, verb: star, group: star, name: equal,
		namespace: func(granted, asked string) bool { return granted == "" || granted == asked },
		path: func(granted, asked string) bool {
			prefix, open := strings.CutSuffix(granted, "*")
			return granted == asked ||
				open && strings.HasPrefix(asked, prefix)
		},
		member: func(group string, of []string) bool { return slices.Contains(of, group) },
		resource: func(granted, resource, subresource string) bool {
			if subresource == "" {
				return granted == "*" || granted == resource
			}
			return granted == "*" || granted == resource+"/"+subresource || granted == "*/"+subresource
		},
	}
}

// covers does the same as Grant.Covers with the engine's parts.
func (e *engine) covers(g *scenarios.Grant, r review) bool {
	return e.isSubject(g, r) && e.coversRequest(g, r)
}

// isSubject reports whether a grant is for the user who asks.
func (e *engine) isSubject(g *scenarios.Grant, r review) bool {
	isOther := g.Subject.User != "" && !e.user(g.Subject.User, r.User)
	isOutside := g.Subject.Group != "" && !e.member(g.Subject.Group, r.Groups)
	return !isOther && !isOutside
}

// coversRequest reports whether a grant is for what is asked, whoever the grant is for.
func (e *engine) coversRequest(g *scenarios.Grant, r review) bool {
	anyOf := func(list []string, asked string, fits func(granted, asked string) bool) bool {
		return slices.ContainsFunc(list, func(s string) bool { return fits(s, asked) })
	}
	if a := r.NonResourceAttributes; a != nil {
		return anyOf(g.Verbs, a.Verb, e.verb) && anyOf(g.NonResourceURLs, a.Path, e.path)
	}
	a := r.ResourceAttributes
	return a != nil && e.namespace(g.Namespace, a.Namespace) &&
		anyOf(g.Verbs, a.Verb, e.verb) && anyOf(g.APIGroups, a.Group, e.group) &&
		slices.ContainsFunc(g.Resources, func(s string) bool { return e.resource(s, a.Resource, a.Subresource) }) &&
		(len(g.Names) == 0 || anyOf(g.Names, a.Name, e.name))
}

// decider returns an authorizer that uses the engine. It looks at every grant, because a faulty authorizer may find a
// grant where the policy's index would not look.
func (e *engine) decider(p *policy.Policy) reference.Decider {
	return func(r review) scenarios.Decision {
		for i := range p.Grants {
			if e.covers(&p.Grants[i], r) {
				return scenarios.Allow
			}
		}
		return scenarios.NoOpinion
	}
}

// deciderBySubject does the same as decider, but finds the grants of each user only once.
func (e *engine) deciderBySubject(p *policy.Policy) reference.Decider {
	var known sync.Map
	return func(r review) scenarios.Decision {
		who := r.User + "\x00" + strings.Join(r.Groups, "\x00")
		own, isKnown := known.Load(who)
		if !isKnown {
			var found []*scenarios.Grant
			for i := range p.Grants {
				if e.isSubject(&p.Grants[i], r) {
					found = append(found, &p.Grants[i])
				}
			}
			own, _ = known.LoadOrStore(who, found)
		}
		for _, g := range own.([]*scenarios.Grant) {
			if e.coversRequest(g, r) {
				return scenarios.Allow
			}
		}
		return scenarios.NoOpinion
	}
}

// without returns the review without some attributes of its resource.
func without(r review, change func(*authorizationv1.ResourceAttributes)) review {
	if a := r.ResourceAttributes; a != nil {
		b := *a
		change(&b)
		r.ResourceAttributes = &b
	}
	return r
}
