package certify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/scenarios"
)

const authn = "authentication.k8s.io"

// prober makes the questions of a level, and numbers their IDs.
type prober struct {
	plan  *Plan
	level CertificationLevel
	name  string // the beginning of the IDs
	out   []Question
	count map[string]int
}

func (b *Plan) newProber(level CertificationLevel, name string) *prober {
	return &prober{plan: b, level: level, name: name, count: map[string]int{}}
}

// add appends a review. reason is the name of a wrong decision about it.
func (p *prober) add(reason string, expect scenarios.Decision, s spec) *Question {
	p.count[reason]++
	p.out = append(p.out, Question{
		ID:    fmt.Sprintf("%s/%s/%d", p.name, reason, p.count[reason]),
		Level: p.level, Spec: s, Expect: expect, Reason: reason,
	})
	return &p.out[len(p.out)-1]
}

// addAllowed appends a review that the policy allows.
func (p *prober) addAllowed(reason string, s spec) *Question {
	return p.add(reason, scenarios.Allow, s)
}

// addNotAllowed appends a review about which the policy has no opinion.
func (p *prober) addNotAllowed(reason string, s spec) *Question {
	return p.add(reason, scenarios.NoOpinion, s)
}

// newReview returns a review that asks whether a user may do something to a resource.
func newReview(user, verb, group, resource, namespace, name string) spec {
	resource, sub, _ := strings.Cut(resource, "/")
	return spec{User: user, Groups: []string{"system:authenticated"}, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: verb, Group: group, Version: "v1", Resource: resource, Subresource: sub, Namespace: namespace, Name: name,
	}}
}

// withGroups returns the review as asked by a member of groups.
func withGroups(s spec, groups ...string) spec {
	s.Groups = groups
	return s
}

// specialQuestions returns questions about extras, the rewrite of associated-node, and fields that do not exist yet.
func (b *Plan) specialQuestions() []Question {
	p, n := b.newProber(NoOvergrant, "transcript"), b.Policy.Identities
	extras := newReview(n.Reader, "get", "", "pods", n.Namespace, "extras")
	extras.Extra = map[string]authorizationv1.ExtraValue{"example.com/a": {"1", "2"}, "example.com/b": {"x"}, "scopes": {"view", "edit"}}
	p.addAllowed("extras-change-the-decision", extras)
	p.addAllowed("extras-change-the-decision", extras).Form = reversed
	swapped := extras
	swapped.Extra = map[string]authorizationv1.ExtraValue{"scopes": {"edit", "view"}, "example.com/b": {"x"}, "example.com/a": {"2", "1"}}
	p.addAllowed("extras-change-the-decision", swapped)

	keys := map[string]authorizationv1.ExtraValue{scenarios.AssociatedNodeKeysKey: {serviceaccount.NodeNameKey, serviceaccount.NodeUIDKey}}
	node := func(user, verb, group, name string) spec {
		s := newReview(user, verb, group, "nodes", "", name)
		s.Extra = keys
		return s
	}
	const rewrite = "associated-node-misread"
	p.addAllowed(rewrite, node(n.Star, "impersonate:associated-node", authn, "*"))
	p.addAllowed(rewrite, node(n.Star, "impersonate-on:associated-node:get", "", "node1"))
	bound := node(n.Star, "impersonate:associated-node", authn, "*")
	bound.Extra = map[string]authorizationv1.ExtraValue{serviceaccount.NodeNameKey: {"node1"}}
	p.addAllowed(rewrite, bound)
	p.addNotAllowed(rewrite, node(n.Reader, "impersonate:associated-node", authn, "*"))
	p.addNotAllowed(rewrite, node(n.Reader, "impersonate-on:associated-node:get", "", "node1"))
	p.addNotAllowed(rewrite, node(n.Star, "impersonate:arbitrary-node", authn, "*"))

	unasked := p.addAllowed("unknown-fields-refused", newReview(n.Reader, "get", "", "pods", n.Namespace, "tomorrow"))
	unasked.Form, unasked.ExplainsFaults = unknownFields, true
	return p.out
}

// coreReasons are the reasons of cases that belong to level core: a part of a grant is overlooked or misunderstood. The
// other cases are about what only looks granted, and belong to no-overgrant.
var coreReasons = []string{"limits-a-list", "wildcard-granted", "scope-confused", "grants-merged"}

// isCoreReason reports whether a case belongs to level core.
func isCoreReason(c policy.Case) bool { return c.Broad || slices.Contains(coreReasons, c.Reason) }

// relationQuestions returns the questions of all cases of the policy, which are ways to take one thing for another.
func (b *Plan) relationQuestions() (out []Question) {
	core, over := b.newProber(Core, "relation"), b.newProber(NoOvergrant, "relation")
	broad := map[[2]string]string{} // the first question that shows that an attribute is ignored, by the attribute and what is expected
	for _, c := range policy.Cases(b.Policy.Seed) {
		p := over
		if isCoreReason(c) {
			p = core
		}
		for _, s := range c.Reviews {
			q := p.add(c.Reason, b.Policy.Decide(s), s)
			q.ExplainsFaults = q.Expect == scenarios.Allow && c.Reason == "selectors-change-the-decision"
			q.Paired = c.Paired
			key := [2]string{attributeOf(c), string(q.Expect)}
			if q.Base = broad[key]; q.Base == "" && c.Broad {
				broad[key] = q.ID
			}
			out = append(out, *q)
		}
	}
	return out
}

// attributeOf returns the attribute that a case is about, or its reason if it is about none.
func attributeOf(c policy.Case) string {
	if c.Broad {
		return strings.TrimPrefix(c.Reason, "ignores-")
	}
	return strings.TrimSuffix(strings.TrimPrefix(c.Reason, "ignores-"), "-"+c.Class)
}

// lookalikesPerReview is how many questions are made from a scenario's review. v1beta1Step is the step by which
// questions are also asked in v1beta1: one in so many.
const lookalikesPerReview, v1beta1Step = 4, 5

// lookalike is an attribute with a pair of strings that only a wrong comparison takes for the same.
type lookalike struct {
	attribute policy.Attribute
	class     string
	pair      [2]string
}

// reason returns the name of a wrong decision.
func (l lookalike) reason() string {
	if l.class == "ignored" {
		return "ignores-" + l.attribute.Name
	}
	return l.attribute.Name + "-" + l.class
}

// lookalikes returns all attributes with all pairs.
func lookalikes() (all []lookalike) {
	for _, a := range policy.Attributes() {
		for _, r := range policy.Relations() {
			for _, pair := range r.Pairs {
				all = append(all, lookalike{a, r.Class, pair})
			}
		}
	}
	return all
}

// lookalikeQuestions returns questions that are made from every scenario's review that is allowed. One attribute is
// replaced by a value that only a wrong comparison takes for the granted one. Every attribute meets every relation,
// with verbs and modes of all kinds.
func (b *Plan) lookalikeQuestions() []Question {
	p, random, all := b.newProber(NoOvergrant, "alike"), policy.Random(b.Policy.Seed, "questions"), lookalikes()
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	seen, at := map[string]bool{}, 0
	for _, v := range b.Scenario {
		if v.Expect != scenarios.Allow {
			continue
		}
		for madeCount, triedCount := 0, 0; madeCount < lookalikesPerReview && triedCount < len(all); triedCount++ {
			l := all[at%len(all)]
			at++
			if s, ok := b.makeLookalike(v.Spec, l, seen); ok {
				madeCount++
				p.addNotAllowed(l.reason(), s)
			}
		}
	}
	return p.out
}

// makeLookalike returns a review that only a wrong comparison takes for the original. It returns false if there is
// none, if the review was made before, or if the policy allows it.
func (b *Plan) makeLookalike(original spec, l lookalike, seen map[string]bool) (s spec, ok bool) {
	if s, ok = l.attribute.MakeLookalike(original, l.pair); !ok {
		return s, false
	}
	raw, err := json.Marshal(s)
	isUnusable := err != nil || seen[string(raw)]
	if isUnusable || b.Policy.Decide(s) != scenarios.NoOpinion {
		return s, false
	}
	seen[string(raw)] = true
	return s, true
}

// derivedQuestions returns questions that are made from every scenario's review that is allowed: the same review by
// somebody else, directly after it. It leaves out what the policy allows that user as well.
func (b *Plan) derivedQuestions() []Question {
	p := b.newProber(NoOvergrant, "derived")
	stranger := scenarios.Suffix(b.Policy.Seed, "certify", "stranger")
	for _, v := range b.Scenario {
		other := v.Spec
		other.User, other.UID, other.Groups = stranger, stranger, []string{"system:authenticated"}
		if v.Expect == scenarios.Allow && b.Policy.Decide(other) == scenarios.NoOpinion {
			p.addAllowed("does-not-allow-what-is-granted", v.Spec).Base = v.ID
			p.addNotAllowed("leaks-between-users", other)
		}
	}
	return p.out
}

// versionQuestions returns the scenarios' reviews and some others again in v1beta1, and some with fields that nobody
// knows yet.
func (b *Plan) versionQuestions(others []Question) []Question {
	var out []Question
	addRepetition := func(v Question, form Form, reason string) {
		out = append(out, Question{
			ID: string(form) + "/" + v.ID, Level: NoOvergrant, Form: form, Spec: v.Spec,
			Expect: v.Expect, Reason: reason, ExplainsFaults: true, Base: v.ID,
		})
	}
	random, times := policy.Random(b.Policy.Seed, "questions"), map[string]int{}
	for _, v := range others {
		// Each reason comes twice, and some of the other questions come with every seed.
		key := v.Reason + string(v.Expect)
		if times[key]++; times[key] <= 2 || random.IntN(v1beta1Step) == 0 {
			addRepetition(v, v1beta1, "versions-differ")
			out[len(out)-1].Paired = v.Paired
		}
	}
	for i, v := range b.Scenario {
		addRepetition(v, v1beta1, "versions-differ")
		if i%10 == 0 {
			addRepetition(v, unknownFields, "unknown-fields-refused")
		}
	}
	return out
}

// incompleteQuestions returns reviews that no API server sends and that must not be allowed: with neither a resource
// nor a path, or with both.
func (b *Plan) incompleteQuestions() []Question {
	p, n := b.newProber(NoOvergrant, "incomplete"), b.Policy.Identities
	for _, user := range []string{n.Reader, n.Wide, n.Outsider, "system:admin"} {
		both := newReview(user, "get", "", "pods", n.Namespace, "one")
		both.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/probe"}
		empty := newReview(user, "", "", "", "", "")
		nowhere := spec{User: user, NonResourceAttributes: &authorizationv1.NonResourceAttributes{}}
		empty.ResourceAttributes.Version = ""
		for _, s := range []spec{both, {User: user}, {User: user, Groups: []string{"system:authenticated"}}, empty, nowhere} {
			for _, form := range []Form{"", v1beta1} {
				p.add("allows-without-attributes", "", s).Form = form
			}
		}
	}
	return p.out
}

// addBadRequests adds requests that must be refused. Each is followed by a good review with the given decision.
func (p *prober) addBadRequests(good spec, expect scenarios.Decision) {
	text := func(s spec, change ...string) []byte {
		body, _ := Question{Spec: s}.body()
		for i := 0; i+1 < len(change); i += 2 {
			body = bytes.Replace(body, []byte(change[i]), []byte(change[i+1]), 1)
		}
		return body
	}
	bodies := [][]byte{
		{}, []byte("{"), []byte("[]"), []byte("null"), []byte("{}"), []byte(`"review"`), []byte("\x00\xff\xfe"), []byte("<review/>"),
		text(good, `"kind":"SubjectAccessReview"`, `"kind":"SelfSubjectAccessReview"`),
		text(good, `"kind":"SubjectAccessReview"`, `"kind":"TokenReview"`),
		text(good, `authorization.k8s.io/v1`, `authorization.k8s.io/v9`),
		text(good, `"spec":`, `"speck":`), text(good, `"user":"`+good.User+`"`, `"user":{"name":1}`),
		text(good)[:40], []byte(strings.Repeat("[", 100_000)),
	}
	for i, body := range append(bodies, text(good)) {
		v := p.add("bad-request-accepted", "", spec{})
		if v.Form, v.Body = literal, body; i == len(bodies) {
			v.Method = "GET"
		}
		p.add("dies-of-a-bad-request", expect, good).ExplainsFaults = true
	}
}

// robustQuestions returns questions about large reviews, and requests that must be refused, each of which is followed
// by a good review.
func (b *Plan) robustQuestions() []Question {
	p, n := b.newProber(Robust, "robust"), b.Policy.Identities
	good := newReview(n.Reader, "get", "", "pods", n.Namespace, "one")
	p.addBadRequests(good, scenarios.Allow)
	nobody := p.add("allows-nobody", "", withGroups(good, "system:authenticated", n.Group))
	nobody.Spec.User = ""
	large := func(expect scenarios.Decision, s spec) { p.add("large-reviews", expect, s).ExplainsFaults = true }
	groups := make([]string, 2000)
	for i := range groups {
		groups[i] = fmt.Sprintf("%s-%d-%s", "team", i, strings.Repeat("g", 40))
	}
	services := newReview(n.Member, "list", "", "services", n.Namespace, "")
	large(scenarios.NoOpinion, withGroups(services, groups...))
	large(scenarios.Allow, withGroups(services, append(slices.Clone(groups), n.Group)...))
	extra := good
	extra.Extra = map[string]authorizationv1.ExtraValue{"example.com/large": {strings.Repeat("e", 256<<10)}}
	large(scenarios.Allow, extra)
	large(scenarios.NoOpinion, newReview(n.Reader, "get", "", "pods", n.Other, strings.Repeat("n", 64<<10)))
	extra = newReview(n.Reader, "get", "", "pods", n.Other, "one") // nearly as much as the header of a request may contain
	extra.Extra = map[string]authorizationv1.ExtraValue{"example.com/large": {strings.Repeat("e", 900<<10)}}
	large(scenarios.NoOpinion, extra)
	return p.out
}
