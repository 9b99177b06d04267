package scenarios

import (
	"cmp"
	"encoding/json"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// ReviewOfBody returns the access review that is the body of a request, in the form in which authorizers get it: for any
// version if it names none, and with the requirements of its selectors (ResourceAttributesFrom of
// k8s.io/kubernetes/pkg/registry/authorization/util). A review that names no user is about the user who sends the
// request. ok is false if the body is not an access review.
func ReviewOfBody(body []byte) (spec authorizationv1.SubjectAccessReviewSpec, ok bool) {
	var r authorizationv1.SubjectAccessReview
	if json.Unmarshal(body, &r) != nil || !strings.HasSuffix(r.Kind, "SubjectAccessReview") {
		return spec, false
	}
	a := r.Spec.ResourceAttributes
	if a == nil {
		return r.Spec, r.Spec.NonResourceAttributes != nil
	}
	a.Version = cmp.Or(a.Version, "*")
	if s := a.FieldSelector; s != nil && s.RawSelector != "" {
		a.FieldSelector = nil
		if f, err := fields.ParseSelector(s.RawSelector); err == nil {
			a.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: FieldRequirements(f.Requirements())}
		}
	}
	if s := a.LabelSelector; s != nil && s.RawSelector != "" {
		a.LabelSelector = nil
		if l, err := labels.Parse(s.RawSelector); err == nil {
			parsed, _ := l.Requirements()
			a.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: LabelRequirements(parsed)}
		}
	}
	return r.Spec, true
}

// FieldRequirements returns the requirements of a field selector in the form of access reviews.
func FieldRequirements(in []fields.Requirement) (out []metav1.FieldSelectorRequirement) {
	for _, r := range in {
		op := metav1.FieldSelectorOpIn
		if r.Operator == selection.NotEquals {
			op = metav1.FieldSelectorOpNotIn
		}
		out = append(out, metav1.FieldSelectorRequirement{Key: r.Field, Operator: op, Values: []string{r.Value}})
	}
	return out
}

// LabelRequirements returns the requirements of a label selector in the form of access reviews. It leaves out
// comparisons of numbers, as the server does.
func LabelRequirements(in []labels.Requirement) (out []metav1.LabelSelectorRequirement) {
	ops := map[selection.Operator]metav1.LabelSelectorOperator{
		selection.Equals:       metav1.LabelSelectorOpIn,
		selection.DoubleEquals: metav1.LabelSelectorOpIn,
		selection.In:           metav1.LabelSelectorOpIn,
		selection.NotEquals:    metav1.LabelSelectorOpNotIn,
		selection.NotIn:        metav1.LabelSelectorOpNotIn,
		selection.Exists:       metav1.LabelSelectorOpExists,
		selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
	}
	for _, r := range in {
		if op, known := ops[r.Operator()]; known {
			out = append(out, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: op, Values: r.ValuesUnsorted()})
		}
	}
	return out
}
