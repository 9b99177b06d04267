package certify

import (
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/scenarios"
)

const authn = "authentication.k8s.io"

// prober collects vectors of one level.
type prober struct {
	plan  *Plan
	level CertificationLevel
	name  string // where IDs begin
	out   []Question
	count map[string]int
}

func (b *Plan) prober(level CertificationLevel, name string) *prober {
	return &prober{plan: b, level: level, name: name, count: map[string]int{}}
}

// add appends a review; a wrong decision about it is called reason.
func (p *prober) add(reason string, expect scenarios.Decision, s spec) *Question {
	p.count[reason]++
	p.out = append(p.out, Question{
		ID:    fmt.Sprintf("%s/%s/%d", p.name, reason, p.count[reason]),
		Level: p.level, Spec: s, Expect: expect, Reason: reason,
	})
	return &p.out[len(p.out)-1]
}

func (p *prober) yes(reason string, s spec) *Question { return p.add(reason, scenarios.Allow, s) }
func (p *prober) no(reason string, s spec) *Question  { return p.add(reason, scenarios.NoOpinion, s) }

// on is a review about a resource, "pods/exec" for a subresource.
func on(user, verb, group, resource, namespace, name string) spec {
	resource, sub, _ := strings.Cut(resource, "/")
	return spec{User: user, Groups: []string{"system:authenticated"}, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: verb, Group: group, Version: "v1", Resource: resource, Subresource: sub, Namespace: namespace, Name: name,
	}}
}

// at is a review about a path.
func at(user, verb, path string) spec {
	return spec{User: user, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path}}
}

// in is the review of a member of groups.
func in(s spec, groups ...string) spec {
	s.Groups = groups
	return s
}

// attributes are the probes of what a grant is about: for each attribute a review that only who overlooks it
// allows.
func (b *Plan) attributes() []Question {
	p, n := b.prober(Core, "attributes"), b.Policy.Probe
	cut := n.Object[:len(n.Object)-1]
	p.yes("truncates-names", on(n.Named, "get", "", "configmaps", n.Namespace, n.Object))
	p.no("truncates-names", on(n.Named, "get", "", "configmaps", n.Namespace, cut+"!"))
	p.no("truncates-names", on(n.Named, "get", "", "configmaps", n.Namespace, n.Object[:63]))
	p.no("ignores-name", on(n.Named, "get", "", "configmaps", n.Namespace, "another"))
	p.no("ignores-name", on(n.Named, "get", "", "configmaps", n.Namespace, ""))
	p.no("wildcard-name", on(n.Named, "get", "", "configmaps", n.Namespace, "*"))
	p.yes("wildcard-name", on(n.Literal, "impersonate:user-info", authn, "groups", "", "*"))
	p.no("wildcard-name", on(n.Literal, "impersonate:user-info", authn, "groups", "", "admins"))
	p.no("wildcard-name", on(n.Star, "impersonate:associated-node", authn, "nodes", "", "node1"))
	p.yes("does-not-allow-what-is-granted", on(n.Reader, "get", "", "pods", n.Namespace, "one"))
	p.no("ignores-namespace", on(n.Reader, "get", "", "pods", n.Other, "one"))
	p.no("ignores-namespace", on(n.Reader, "list", "", "pods", "", ""))
	p.yes("does-not-allow-what-is-granted", on(n.Wide, "get", "", "pods", n.Other, "one"))
	p.yes("does-not-allow-what-is-granted", on(n.Wide, "get", "", "pods", "", "one"))
	p.no("ignores-api-group", on(n.Reader, "list", "metrics.k8s.io", "pods", n.Namespace, ""))
	p.no("ignores-api-group", on(n.All, "get", "apps", "deployments", n.Namespace, "one"))
	p.no("ignores-resource", on(n.Reader, "list", "", "secrets", n.Namespace, ""))
	p.yes("ignores-subresource", on(n.Sub, "create", "", "pods/exec", n.Namespace, "one"))
	p.no("ignores-subresource", on(n.Sub, "create", "", "pods", n.Namespace, "one"))
	p.no("ignores-subresource", on(n.Sub, "create", "", "pods/attach", n.Namespace, "one"))
	p.no("ignores-subresource", on(n.Reader, "get", "", "pods/log", n.Namespace, "one"))
	p.no("ignores-subresource", on(n.Any, "get", "", "pods", n.Namespace, "one"))
	p.yes("wildcard-not-understood", on(n.Any, "get", "", "pods/status", n.Namespace, "one"))
	p.yes("wildcard-not-understood", on(n.All, "a-verb-of-tomorrow", n.Suite, "widgets/part", n.Namespace, "one"))
	p.yes("wildcard-not-understood", at(n.Path, "get", "/probe/sub/a/b"))
	p.yes("does-not-allow-what-is-granted", at(n.Path, "get", "/probe"))
	for _, path := range []string{"/probes", "/probe/", "/probe/other", "/", "/healthz"} {
		p.no("ignores-path", at(n.Path, "get", path))
	}
	for _, user := range []string{n.Reader + "x", n.Reader[:len(n.Reader)-1], strings.ToUpper(n.Reader), n.Reader + "@elsewhere", " " + n.Reader} {
		p.no("ignores-user", on(user, "get", "", "pods", n.Namespace, "one"))
	}
	p.no("ignores-user", in(on(n.Outsider, "get", "", "pods", n.Namespace, "one"), n.Reader))
	services := func(user string) spec { return on(user, "list", "", "services", n.Namespace, "") }
	p.yes("ignores-groups", in(services(n.Member), "system:authenticated", "developers", n.Group))
	p.no("ignores-groups", services(n.Outsider))
	p.no("ignores-groups", services(n.Group))
	p.no("ignores-groups", in(services(n.Outsider), n.Group+"x", strings.ToUpper(n.Group)))
	return p.out
}

// transcript are the probes of verbs and modes, of what is new, and of caches.
func (b *Plan) transcript() []Question {
	p := b.prober(NoOvergrant, "transcript")
	n := b.Policy.Probe
	for _, group := range []string{"", authn} {
		users := func(user, verb string) spec { return on(user, verb, group, "users", "", n.Target) }
		p.yes("does-not-allow-what-is-granted", users(n.Legacy, "impersonate"))
		p.yes("does-not-allow-what-is-granted", users(n.Constrained, "impersonate:user-info"))
		p.no("constrained-implies-legacy", users(n.Constrained, "impersonate"))
		for _, mode := range []string{"user-info", "serviceaccount", "arbitrary-node", "associated-node"} {
			p.no("legacy-implies-constrained", users(n.Legacy, "impersonate:"+mode))
			if mode != "user-info" {
				p.no("modes-mixed", users(n.Constrained, "impersonate:"+mode))
			}
		}
		for _, mode := range []string{"future-mode", "user-info-v2", "*", ""} {
			p.no("unknown-mode-allowed", users(n.Constrained, "impersonate:"+mode))
			p.no("unknown-mode-allowed", users(n.Legacy, "impersonate:"+mode))
		}
	}
	pods := func(user, verb string) spec { return on(user, verb, "", "pods", n.Namespace, "") }
	p.yes("does-not-allow-what-is-granted", pods(n.Constrained, "impersonate-on:user-info:list"))
	for _, verb := range []string{
		"impersonate-on:future-mode:list", "impersonate-on:*:list", "impersonate-on::list", "impersonate-on:user-info:*",
		"impersonate-on:user-info:", "impersonate-on:user-info", "impersonate-on:user-info:list:list", "impersonate-on", "impersonate-as:user-info:list",
	} {
		p.no("unknown-mode-allowed", pods(n.Constrained, verb))
		p.no("unknown-mode-allowed", pods(n.Reader, verb))
	}
	for _, verb := range []string{"list", "get", "watch", "delete"} {
		p.no("ordinary-verbs-affected", pods(n.Constrained, verb))
		p.no("plain-implies-action", pods(n.Reader, "impersonate-on:user-info:"+verb))
	}
	p.no("modes-mixed", pods(n.Constrained, "impersonate-on:serviceaccount:list"))
	p.opaque()
	p.new()
	return p.out
}

// opaque are the verbs of KEP-3617.
func (p *prober) opaque() {
	n, verbs := p.plan.Policy.Probe, policy.Verbs3617
	pods := func(user, verb string) spec { return on(user, verb, "", "pods", n.Namespace, "") }
	for i, verb := range verbs {
		p.no("opaque-verb-implied", pods(n.Reader, verb))
		granted, others := n.Granular, n.Opaque
		if i == 1 {
			granted, others = others, granted
		}
		p.yes("does-not-allow-what-is-granted", pods(granted, verb))
		p.no("opaque-verb-implied", pods(others, verb))
	}
	for _, verb := range []string{"list:labels", "list:granular", "granular:label(example.org)", "granular:label()"} {
		p.no("opaque-verb-implied", pods(n.Granular, verb))
	}
	p.no("opaque-verb-implied", pods(n.Opaque, "list"))
}

// new are selectors, extras, the rewrite of associated-node, and caches.
func (p *prober) new() {
	n := p.plan.Policy.Probe
	label := &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web"}}}}
	field := &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "metadata.name", Operator: metav1.FieldSelectorOpIn, Values: []string{"one"}}}}
	selected := func(s spec, both bool) spec {
		if s.ResourceAttributes.FieldSelector = field; both {
			s.ResourceAttributes.LabelSelector = label
		}
		return s
	}
	const selectors = "selectors-change-the-decision"
	p.yes(selectors, selected(on(n.Reader, "list", "", "pods", n.Namespace, ""), true)).Blame = selectors
	p.yes(selectors, selected(on(n.Reader, "list", "", "pods", n.Namespace, "one"), false)).Blame = selectors
	p.no(selectors, selected(on(n.Wide, "list", "", "pods", n.Namespace, "one"), false))
	p.no(selectors, selected(on(n.Outsider, "list", "", "pods", n.Namespace, "one"), true))

	extras := on(n.Reader, "get", "", "pods", n.Namespace, "extras")
	extras.Extra = map[string]authorizationv1.ExtraValue{"example.com/a": {"1", "2"}, "example.com/b": {"x"}, "scopes": {"view", "edit"}}
	p.yes("extras-change-the-decision", extras)
	p.yes("extras-change-the-decision", extras).Form = reversed
	swapped := extras
	swapped.Extra = map[string]authorizationv1.ExtraValue{"scopes": {"edit", "view"}, "example.com/b": {"x"}, "example.com/a": {"2", "1"}}
	p.yes("extras-change-the-decision", swapped)

	keys := map[string]authorizationv1.ExtraValue{"authentication.kubernetes.io/associated-node-keys": {"authentication.kubernetes.io/node-name", "authentication.kubernetes.io/node-uid"}}
	node := func(user, verb, group, name string) spec {
		s := on(user, verb, group, "nodes", "", name)
		s.Extra = keys
		return s
	}
	const rewrite = "associated-node-misread"
	p.yes(rewrite, node(n.Star, "impersonate:associated-node", authn, "*"))
	p.yes(rewrite, node(n.Star, "impersonate-on:associated-node:get", "", "node1"))
	p.no(rewrite, node(n.Reader, "impersonate:associated-node", authn, "*"))
	p.no(rewrite, node(n.Reader, "impersonate-on:associated-node:get", "", "node1"))
	p.no(rewrite, node(n.Star, "impersonate:arbitrary-node", authn, "*"))

	// Of each pair the first is allowed and may be remembered.
	const small, named = "cache-key-too-small", "remembered"
	p.yes(small, in(on(n.Member, "list", "", "services", n.Namespace, named), n.Group))
	p.no(small, in(on(n.Member, "list", "", "services", n.Namespace, named)))
	p.yes(small, on(n.Reader, "get", "", "pods", n.Namespace, named))
	p.no(small, on(n.Reader, "get", "", "pods", n.Other, named))
	p.yes(small, on(n.Reader, "watch", "", "pods", n.Namespace, named))
	p.no(small, on(n.Reader, "delete", "", "pods", n.Namespace, named))
	unasked := p.yes("unknown-fields-refused", on(n.Reader, "get", "", "pods", n.Namespace, "tomorrow"))
	unasked.Form, unasked.Blame = unknownFields, "unknown-fields-refused"
}
