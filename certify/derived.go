package certify

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/scenarios"
)

// derived are made of every scenario's review that is allowed: the same by somebody else, directly behind it. What the
// policy allows all the same is left out.
func (b *Plan) derived() []Question {
	p := b.prober(NoOvergrant, "derived")
	stranger := scenarios.Suffix(b.Policy.Seed, "certify", "stranger")
	for _, v := range b.Scenario {
		other := v.Spec
		other.User, other.UID, other.Groups = stranger, stranger, []string{"system:authenticated"}
		if v.Expect == scenarios.Allow && b.Policy.Decide(other) == scenarios.NoOpinion {
			p.yes("does-not-allow-what-is-granted", v.Spec).Base = v.ID
			p.no("leaks-between-users", other)
		}
	}
	return p.out
}

// repeated are the reviews of the scenarios, and some of the others, again in v1beta1, and some with fields that nobody
// knows yet.
func (b *Plan) repeated(others []Question) []Question {
	var out []Question
	again := func(v Question, form Form, reason string) {
		out = append(out, Question{
			ID: string(form) + "/" + v.ID, Level: NoOvergrant, Form: form, Spec: v.Spec,
			Expect: v.Expect, Reason: reason, Blame: reason, Base: v.ID,
		})
	}
	random, times := policy.Random(b.Policy.Seed, "questions"), map[string]int{}
	for _, v := range others {
		// Each reason twice, and some of the others under every seed.
		key := v.Reason + string(v.Expect)
		if times[key]++; times[key] <= 2 || random.IntN(older) == 0 {
			again(v, v1beta1, "versions-differ")
		}
	}
	for i, v := range b.Scenario {
		again(v, v1beta1, "versions-differ")
		if i%10 == 0 {
			again(v, unknownFields, "unknown-fields-refused")
		}
	}
	return out
}

// incomplete are reviews that no API server sends, and nobody may allow: with neither a resource nor a path, or both.
func (b *Plan) incomplete() []Question {
	p, n := b.prober(NoOvergrant, "incomplete"), b.Policy.Probe
	for _, user := range []string{n.Reader, n.Wide, n.Outsider, "system:admin"} {
		both := on(user, "get", "", "pods", n.Namespace, "one")
		both.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/probe"}
		empty, nowhere := on(user, "", "", "", "", ""), spec{User: user, NonResourceAttributes: &authorizationv1.NonResourceAttributes{}}
		empty.ResourceAttributes.Version = ""
		for _, s := range []spec{both, {User: user}, {User: user, Groups: []string{"system:authenticated"}}, empty, nowhere} {
			for _, form := range []Form{"", v1beta1} {
				p.add("allows-without-attributes", "", s).Form = form
			}
		}
	}
	return p.out
}

// robust are large reviews, and requests that must be refused: each of these is followed by a good one.
func (b *Plan) robust() []Question {
	p, n := b.prober(Robust, "robust"), b.Policy.Probe
	good := on(n.Reader, "get", "", "pods", n.Namespace, "one")
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
		text(good, `"spec":`, `"speck":`), text(good, `"user":"`+n.Reader+`"`, `"user":{"name":1}`),
		text(good)[:40], []byte(strings.Repeat("[", 100_000)),
	}
	for i, body := range append(bodies, text(good)) {
		v := p.add("bad-request-accepted", "", spec{})
		if v.Form, v.Body = literal, body; i == len(bodies) {
			v.Method = "GET"
		}
		p.yes("dies-of-a-bad-request", good).Blame = "dies-of-a-bad-request"
	}
	nobody := p.add("allows-nobody", "", in(good, "system:authenticated", n.Group))
	nobody.Spec.User = ""
	large := func(expect scenarios.Decision, s spec) { p.add("large-reviews", expect, s).Blame = "large-reviews" }
	groups := make([]string, 2000)
	for i := range groups {
		groups[i] = fmt.Sprintf("%s-%d-%s", "team", i, strings.Repeat("g", 40))
	}
	services := on(n.Member, "list", "", "services", n.Namespace, "")
	large(scenarios.NoOpinion, in(services, groups...))
	large(scenarios.Allow, in(services, append(slices.Clone(groups), n.Group)...))
	extra := good
	extra.Extra = map[string]authorizationv1.ExtraValue{"example.com/large": {strings.Repeat("e", 256<<10)}}
	large(scenarios.Allow, extra)
	large(scenarios.NoOpinion, on(n.Reader, "get", "", "pods", n.Other, strings.Repeat("n", 64<<10)))
	return p.out
}
