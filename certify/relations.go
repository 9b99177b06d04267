package certify

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/scenarios"
)

// coreReasons are those of relations that belong to level core: a part of a grant that is overlooked, or not
// understood. The others are about what only looks granted.
var coreReasons = []string{"limits-a-list", "wildcard-granted", "scope-confused", "grants-merged"}

// broadKey is what the first question that ignores an attribute is found by.
type broadKey struct {
	attribute string
	expect    scenarios.Decision
}

// relations are the questions of the policy's cases.
func (b *Plan) relations() (out []Question) {
	core, over := b.prober(Core, "relation"), b.prober(NoOvergrant, "relation")
	broad := map[broadKey]string{}
	for _, c := range policy.Cases(b.Policy.Seed) {
		p := over
		if c.Broad || slices.Contains(coreReasons, c.Reason) {
			p = core
		}
		for _, s := range c.Asked {
			q := p.add(c.Reason, b.Policy.Decide(s), s)
			key := broadKey{strings.TrimPrefix(c.Reason, "ignores-"), q.Expect}
			if !c.Broad {
				key.attribute = strings.TrimSuffix(c.Reason, "-"+c.Class)
			}
			if q.Base = broad[key]; q.Base == "" && c.Broad {
				broad[key] = q.ID
			}
			out = append(out, *q)
		}
	}
	return out
}

// perReview is how many questions are made of a scenario's review, of so many as older says one is asked in v1beta1 too.
const perReview, older = 4, 5

// alike are made of every scenario's review that is allowed: the same with an attribute that only a wrong comparison
// takes for the granted one. Every attribute meets every relation, with verbs and modes of all kinds.
func (b *Plan) alike() []Question {
	p, random := b.prober(NoOvergrant, "alike"), policy.Random(b.Policy.Seed, "questions")
	type one struct {
		attribute policy.Attribute
		class     string
		pair      [2]string
	}
	var all []one
	for _, a := range policy.Attributes() {
		for _, r := range policy.Relations() {
			for _, pair := range r.Pairs {
				all = append(all, one{a, r.Class, pair})
			}
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	seen, at := map[string]bool{}, 0
	for _, v := range b.Scenario {
		if v.Expect != scenarios.Allow {
			continue
		}
		for made, tried := 0, 0; made < perReview && tried < len(all); tried++ {
			o := all[at%len(all)]
			at++
			s, ok := o.attribute.Like(v.Spec, o.pair)
			raw, err := json.Marshal(s)
			if !ok || err != nil || seen[string(raw)] || b.Policy.Decide(s) != scenarios.NoOpinion {
				continue
			}
			seen[string(raw)] = true
			made++
			reason := o.attribute.Name + "-" + o.class
			if o.class == "ignored" {
				reason = "ignores-" + o.attribute.Name
			}
			p.no(reason, s)
		}
	}
	return p.out
}
