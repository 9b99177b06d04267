package model

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/scenarios"
)

// shrink makes a case smaller as long as it disagrees in whatever way.
func (r *runner) shrink(t *triple, reason string) (*triple, string) {
	best := t.clone()
	for range 1000 {
		found := false
		for _, s := range best.smaller() {
			if again := r.try(s); again != "" {
				best, reason, found = s, again, true
				break
			}
		}
		if !found {
			break
		}
	}
	return best, reason
}

// try judges one case alone.
func (r *runner) try(t *triple) string {
	loaded, err := r.subject(t.words(), t.mode)
	if err != nil {
		return "" // another problem than the one that is made small
	}
	status, err := throughJSON(loaded.Review, *t.facts.spec())
	if err != nil {
		return ""
	}
	return judge(t, loaded, status)
}

func (t *triple) clone() *triple {
	f := *t.facts
	return &triple{policies: slices.Clone(t.policies), mode: t.mode, facts: &f}
}

// smaller are cases with less in them.
func (t *triple) smaller() (out []*triple) {
	for i := range t.policies {
		if len(t.policies) > 1 {
			c := t.clone()
			c.policies = slices.Delete(c.policies, i, i+1)
			out = append(out, c)
		}
	}
	for i, p := range t.policies {
		for _, e := range p.expression.smaller() {
			c := t.clone()
			c.policies[i].expression = e
			out = append(out, c)
		}
	}
	less := func(ok bool, change func(*facts)) {
		if ok {
			c := t.clone()
			change(c.facts)
			out = append(out, c)
		}
	}
	less(len(t.facts.groups) > 0, func(f *facts) { f.groups = nil })
	less(t.facts.hasTeam, func(f *facts) { f.hasTeam = false })
	less(t.facts.name != "", func(f *facts) { f.name = "" })
	for _, which := range []func(*facts) **thing{func(f *facts) **thing { return &f.object }, func(f *facts) **thing { return &f.old }} {
		o := *which(t.facts)
		change := func(ok bool, change func(*thing)) {
			less(o != nil && ok, func(f *facts) {
				smaller := *o
				change(&smaller)
				*which(f) = &smaller
			})
		}
		if o != nil {
			change(o.labels != nil, func(o *thing) { o.labels = nil })
			change(o.finalizers != nil, func(o *thing) { o.finalizers = nil })
			change(o.replicas != nil, func(o *thing) { o.replicas = nil })
			change(o.class != nil, func(o *thing) { o.class = nil })
			change(!o.noSpec && o.class == nil && o.replicas == nil, func(o *thing) { o.noSpec = true })
		}
	}
	return out
}

// vector is the case as a vector file, with what is right.
func (t *triple) vector(reason string) string {
	v := vectors.Vector{
		Description: "Two phases amount to what one phase amounts to.",
		Source:      scenarios.Source{Document: "KEP-5681", Section: "Technical Requirements"},
		Level:       vectors.Must,
		Webhook: &vectors.Webhook{Policies: t.words(), FailureMode: t.mode, Steps: []vectors.Step{
			{Authorize: &vectors.AuthorizeStep{Spec: *t.facts.spec(), Want: vectors.AuthorizeWant{OneOf: t.firstPhase()}}},
			{Evaluate: &vectors.EvaluateStep{Data: *t.facts.data(), Want: vectors.EvaluateWant{OneOf: []vectors.Decision{t.decide(true)}}}},
		}},
	}
	raw, err := yaml.Marshal(v)
	if err != nil {
		return "# the case cannot be written: " + err.Error() + "\n"
	}
	return "# " + strings.Join(strings.Fields(reason), " ") + "\n" + string(raw)
}
