package model

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/oracle/cases"
)

// shrinkLimit is the largest number of cases that are tried to find the smallest one.
const shrinkLimit = 100_000

// shrink makes a case smaller as long as it still disagrees, even if for another reason.
func (o Exploration) shrink(subject Subject, t *generatedCase, reason string) *Smaller {
	best := cases.Smallest(t.clone(), shrinkLimit, (*generatedCase).smaller, func(smaller *generatedCase) bool {
		smallerResult := o.try(subject, smaller)
		if smallerResult != "" {
			reason = smallerResult
		}
		return smallerResult != ""
	})
	return &Smaller{Reason: reason, Vector: best.vector(reason)}
}

// try asks an authorizer about a case, and returns why the two phases do not decide it as one phase does. The reason is
// empty if the case cannot be asked.
func (o Exploration) try(subject Subject, t *generatedCase) string {
	loaded, err := subject(t.words(), t.mode)
	if err != nil {
		return ""
	}
	r, status, err := o.ask(loaded, []*generatedCase{t})
	if err != nil {
		return ""
	}
	return o.compare(t, status, r.Evaluations, 0)
}

// smaller returns cases with less in them.
func (t *generatedCase) smaller() (out []*generatedCase) {
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
	for _, which := range []func(*facts) *vectors.Object{
		func(f *facts) *vectors.Object { return &f.object },
		func(f *facts) *vectors.Object { return &f.old },
	} {
		o := *which(t.facts)
		for _, path := range [][]string{{"metadata", "labels"}, {"metadata", "finalizers"}, {"spec", "replicas"}, {"spec", "class"}, {"spec"}} {
			less(hasField(o, path...), func(f *facts) {
				smaller := runtime.DeepCopyJSON(o)
				unstructured.RemoveNestedField(smaller, path...)
				*which(f) = smaller
			})
		}
	}
	return out
}
