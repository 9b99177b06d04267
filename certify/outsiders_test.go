package certify

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/scenarios"
)

// faultyDecider makes a wrong decider from the right one and the policy.
type faultyDecider func(right reference.Decider, grants []rule) reference.Decider

// outsiders have quirks of products. They were written by somebody who knew the questions and looked for what the
// questions left out: limits on lists, refusals by a name, sessions, selectors, hashes, characters. Each of them was
// certified at every level once.
var outsiders = map[string]faultyDecider{
	"a selector's name is the name": readsResource(bySelector("metadata.name", func(a *attributes) *string { return &a.Name })),
	"a selector's namespace is the namespace": readsResource(
		bySelector("metadata.namespace", func(a *attributes) *string { return &a.Namespace }),
	),
	"no watch with a selector": refuses(func(s spec) bool {
		a := s.ResourceAttributes
		return a != nil &&
			strings.Contains(a.Verb, "watch") &&
			(a.FieldSelector != nil || a.LabelSelector != nil)
	}),
	"no selector with two values": refuses(func(s spec) bool {
		a := s.ResourceAttributes
		return a != nil && a.LabelSelector != nil &&
			slices.ContainsFunc(a.LabelSelector.Requirements, func(r metav1.LabelSelectorRequirement) bool { return len(r.Values) > 1 })
	}),
	"refuses controllers": refuses(func(s spec) bool { return strings.HasPrefix(s.User, "system:kube-") }),
	"refuses service accounts of kube": refuses(
		func(s spec) bool { return strings.HasPrefix(s.User, "system:serviceaccount:kube-system:") },
	),
	"refuses bootstrappers": refuses(func(s spec) bool { return slices.Contains(s.Groups, "system:bootstrappers") }),
	"refuses metrics": refuses(
		func(s spec) bool { return s.NonResourceAttributes != nil && s.NonResourceAttributes.Path == "/metrics" },
	),
	"refuses custom resources": refuses(func(s spec) bool { return resourceIs(s, "customresourcedefinitions") }),
	"refuses webhooks":         refuses(func(s spec) bool { return resourceIs(s, "validatingwebhookconfigurations") }),
	"refuses to impersonate an administrator": refuses(func(s spec) bool {
		return strings.HasPrefix(verbOf(s), "impersonate") && s.ResourceAttributes != nil && s.ResourceAttributes.Name == "cluster-admin"
	}),
	"10 parts of a path": refuses(func(s spec) bool {
		return s.NonResourceAttributes != nil && strings.Count(s.NonResourceAttributes.Path, "/") > 10
	}),
	"the first 64 paths":      loads(func(g *rule) { g.NonResourceURLs = g.NonResourceURLs[:min(len(g.NonResourceURLs), 64)] }),
	"the first 64 API groups": loads(func(g *rule) { g.APIGroups = g.APIGroups[:min(len(g.APIGroups), 64)] }),
	"64 grants of a group":    most(64, func(g rule) string { return g.Subject.Group }),
	"64 path grants of a user": most(
		64,
		func(g rule) string { return g.Subject.User[:len(g.Subject.User)*min(1, len(g.NonResourceURLs))] },
	),
	"100 namespaces of a user": most(100, func(g rule) string {
		return (g.Subject.User + " in")[:(len(g.Subject.User)+3)*min(1, len(g.Namespace))]
	}),
	"a cache by the session": caches(func(s spec) string {
		if len(s.Extra["sub"]) == 0 {
			return s.User + fmt.Sprint(s.Groups)
		}
		return s.Extra["sub"][0]
	}),
	"a cache by djb2": caches(func(s spec) string {
		h := uint32(5381)
		for _, c := range []byte(s.User) {
			h = 33*h + uint32(c)
		}
		return fmt.Sprint(h, s.Groups)
	}),
	"a cache by CRC-32": caches(func(s spec) string { return fmt.Sprint(crc32.ChecksumIEEE([]byte(s.User)), s.Groups) }),
	"a cache by FNV-1a": caches(func(s spec) string {
		h := fnv.New32a()
		_, _ = h.Write([]byte(s.User))
		return fmt.Sprint(h.Sum32(), s.Groups)
	}),
	"updates finalizers": readsResource(func(a *attributes) {
		if a.Subresource == "finalizers" && a.Verb == "update" {
			a.Subresource = ""
		}
	}),
	"the narrowest grant alone": func(right reference.Decider, grants []rule) reference.Decider {
		p := newProduct()
		narrow := p.decider(slices.DeleteFunc(slices.Clone(grants), func(g rule) bool { return g.Namespace == "" }))
		p.verb = func(rule, spec) bool { return true }
		about := p.decider(slices.DeleteFunc(slices.Clone(grants), func(g rule) bool { return g.Namespace == "" }))
		return func(s spec) scenarios.Decision {
			if about(s) == scenarios.Allow {
				return narrow(s)
			}
			return right(s)
		}
	},
	"signers of a domain": func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			d, domain := right(s), s.DeepCopy()
			if before, _, ok := strings.Cut(nameOf(s), "/"); ok && d != scenarios.Allow && resourceIs(s, "signers") {
				domain.ResourceAttributes.Name = before + "/*"
				return right(*domain)
			}
			return d
		}
	},
	"a read is a read": cachesSome(func(s spec) string { return s.User + nameOf(s) }, func(s spec) bool {
		return nameOf(s) != "" && slices.Contains([]string{"get", "list", "watch"}, verbOf(s))
	}),
	"UTF-8 of three bytes": readsText(func(r rune) rune { return map[bool]rune{true: '?', false: r}[r > 0xffff] }),
	"UCS-2":                readsText(func(r rune) rune { return r & 0xffff }),
	"no control characters": readsText(func(r rune) rune {
		if r < ' ' && !strings.ContainsRune("\x00\t\r\n", r) {
			return -1
		}
		return r
	}),
	"verbs end with a *": func(_ reference.Decider, grants []rule) reference.Decider {
		p := newProduct()
		right := p.verb
		p.verb = func(g rule, s spec) bool {
			return right(g, s) || slices.ContainsFunc(g.Verbs, func(v string) bool {
				before, star := strings.CutSuffix(v, "*")
				return star && strings.HasPrefix(v, "impersonate-on:") && strings.HasPrefix(verbOf(s), before)
			})
		}
		return p.decider(grants)
	},
}

type attributes = authorizationv1.ResourceAttributes

func nameOf(s spec) string {
	if s.ResourceAttributes == nil {
		return ""
	}
	return s.ResourceAttributes.Name
}

func resourceIs(s spec, name string) bool {
	return s.ResourceAttributes != nil && s.ResourceAttributes.Resource == name
}

// bySelector fills an empty attribute with the value that a field selector has for a key.
func bySelector(key string, of func(a *attributes) *string) func(a *attributes) {
	return func(a *attributes) {
		if field := of(a); *field == "" && a.FieldSelector != nil {
			for _, r := range a.FieldSelector.Requirements {
				if r.Key == key && len(r.Values) > 0 {
					*field = r.Values[0]
				}
			}
		}
	}
}

// reads makes an authorizer that decides about another review than the one that was asked.
func reads(change func(s *spec)) faultyDecider {
	return func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			other := s.DeepCopy()
			change(other)
			return right(*other)
		}
	}
}

func readsResource(change func(a *attributes)) faultyDecider {
	return reads(func(s *spec) {
		if s.ResourceAttributes != nil {
			change(s.ResourceAttributes)
		}
	})
}

func readsText(each func(rune) rune) faultyDecider {
	return reads(func(s *spec) { s.User = strings.Map(each, s.User) })
}

// refuses makes an authorizer that has no opinion about some reviews.
func refuses(when func(s spec) bool) faultyDecider {
	return func(right reference.Decider, _ []rule) reference.Decider {
		return func(s spec) scenarios.Decision {
			if when(s) {
				return scenarios.NoOpinion
			}
			return right(s)
		}
	}
}

// loads makes an authorizer that has another policy than the one it was given.
func loads(change func(g *rule)) faultyDecider {
	return func(_ reference.Decider, grants []rule) reference.Decider {
		kept := slices.Clone(grants)
		for i := range kept {
			change(&kept[i])
		}
		return newProduct().decider(kept)
	}
}

// most makes an authorizer that has at most n grants of each kind. It has all grants of no kind.
func most(n int, kind func(g rule) string) faultyDecider {
	return func(_ reference.Decider, grants []rule) reference.Decider {
		of := map[string]int{}
		return newProduct().decider(slices.DeleteFunc(slices.Clone(grants), func(g rule) bool {
			k := kind(g)
			of[k]++
			return k != "" && of[k] > n
		}))
	}
}

// caches makes an authorizer that remembers decisions by who asks and by everything that is asked about.
func caches(who func(s spec) string) faultyDecider {
	return cachesSome(who, func(spec) bool { return true })
}

func cachesSome(who func(s spec) string, when func(s spec) bool) faultyDecider {
	cached := cachesBy(func(s spec) any { return []any{who(s), s.ResourceAttributes, s.NonResourceAttributes} })
	return func(right reference.Decider, grants []rule) reference.Decider {
		remembers := cached(right, grants)
		return func(s spec) scenarios.Decision {
			if when(s) {
				return remembers(s)
			}
			return right(s)
		}
	}
}

// cachesBy makes an authorizer that remembers decisions by a key.
func cachesBy(of func(s spec) any) faultyDecider {
	return func(right reference.Decider, _ []rule) reference.Decider {
		known := map[string]scenarios.Decision{}
		return func(s spec) scenarios.Decision {
			key, _ := json.Marshal(of(s))
			d, ok := known[string(key)]
			if !ok {
				d = right(s)
				known[string(key)] = d
			}
			return d
		}
	}
}

// forOne returns mistakes that concern a single verb or a single resource.
func forOne() map[string]faultyDecider {
	out := map[string]faultyDecider{}
	add := func(of string, when func(s spec) bool) {
		loose := func(part func(p *vendorProduct) *func(g rule, s spec) bool, as func(s spec) bool) faultyDecider {
			return func(_ reference.Decider, grants []rule) reference.Decider {
				p := newProduct()
				right := *part(p)
				*part(p) = func(g rule, s spec) bool {
					return s.ResourceAttributes != nil && when(s) && as(s) ||
						right(g, s)
				}
				return p.decider(grants)
			}
		}
		always := func(spec) bool { return true }
		name, namespace := func(p *vendorProduct) *func(g rule, s spec) bool { return &p.name }, func(p *vendorProduct) *func(g rule, s spec) bool { return &p.namespace }
		out[of+": names do not count"], out[of+": namespaces do not count"] = loose(name, always), loose(namespace, always)
		out[of+": an empty name is any"] = loose(name, func(s spec) bool { return s.ResourceAttributes.Name == "" })
		out[of+": an empty namespace is any"] = loose(namespace, func(s spec) bool { return s.ResourceAttributes.Namespace == "" })
		out[of+": API groups do not count"] = loose(func(p *vendorProduct) *func(g rule, s spec) bool { return &p.group }, always)
		out[of+": a subresource is its resource"] = func(right reference.Decider, grants []rule) reference.Decider {
			return alsoAs(func(s *spec) bool {
				fits := s.ResourceAttributes != nil && s.ResourceAttributes.Subresource != "" && when(*s)
				if fits {
					s.ResourceAttributes.Subresource = ""
				}
				return fits
			})(right, grants)
		}
		out[of+": groups are lost"] = reads(func(s *spec) {
			if when(*s) {
				s.Groups = nil
			}
		})
		out[of+": a cache without groups"] = cachesSome(func(s spec) string { return s.User }, when)
		out[of+": no namespace is default"] = readsResource(func(a *attributes) {
			if when(spec{ResourceAttributes: a}) {
				a.Namespace = cmp.Or(a.Namespace, "default")
			}
		})
	}
	for _, verb := range []string{"deletecollection", "approve", "escalate", "sign", "impersonate:associated-node", "impersonate:arbitrary-node",
		"impersonate:serviceaccount", "impersonate-on:serviceaccount:get", "impersonate-on:associated-node:get", "impersonate-on:user-info:delete"} {
		add(verb, func(s spec) bool { return verbOf(s) == verb })
	}
	for _, resource := range []string{"secrets", "services", "configmaps", "namespaces", "replicasets", "clusterroles", "uids", "leases", "signers", "statefulsets"} {
		add(resource, func(s spec) bool { return resourceIs(s, resource) })
	}
	return out
}

// TestOutsidersAreRejected asks all of them, in the order of a run.
func TestOutsidersAreRejected(t *testing.T) {
	t.Parallel()
	seeds := []int64{1}
	if sample.IsEverything() {
		seeds = []int64{1, 2, 3}
	}
	single := forOne()
	for _, seed := range seeds {
		b := plan(t, seed)
		try := func(name string, mistaken faultyDecider) {
			if firstWrong(b, mistaken(b.Policy.Decide, b.Policy.Grants)) == nil {
				t.Errorf("seed %d: %s: every level is granted", seed, name)
			}
		}
		for _, name := range sample.OneIn(3, slices.Sorted(maps.Keys(outsiders))) {
			try(name, outsiders[name])
		}
		for _, name := range sample.OneIn(3, slices.Sorted(maps.Keys(strangers))) {
			try(name, strangers[name])
		}
		for _, name := range sample.OneIn(17, slices.Sorted(maps.Keys(single))) {
			try(name, single[name])
		}
	}
}
