package vectors

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Want is the result of a request. A field that is left out is not judged. An empty list means that there must be none.
type Want struct {
	// Starts is false if an API server with this configuration must not start.
	Starts *bool `json:"starts,omitempty" yaml:"starts,omitempty"`
	// Authorized is the chain's decision before admission.
	Authorized Decision `json:"authorized,omitempty" yaml:"authorized,omitempty"`
	// Asked are the authorizers that were asked for it.
	Asked []string `json:"asked,omitempty" yaml:"asked,omitempty"`
	// Proceeds reports whether the request passes the authorization filter.
	Proceeds *bool `json:"proceeds,omitempty" yaml:"proceeds,omitempty"`
	// ConditionsChain is what a SubjectAccessReview of the same request shows. Each set is written as "name
	// conditions", "name allowed" or "name denied".
	ConditionsChain []string `json:"conditionsChain,omitempty" yaml:"conditionsChain,omitempty"`
	// AskedLater are the authorizers that are asked for a decision during admission.
	AskedLater []string `json:"askedLater,omitempty" yaml:"askedLater,omitempty"`
	// EvaluatedBy are the authorizers that are called to evaluate their conditions, in order. Conditions that the
	// server evaluates itself are not in it.
	EvaluatedBy []string `json:"evaluatedBy,omitempty" yaml:"evaluatedBy,omitempty"`
	// Decision is the concrete one after the conditions are evaluated.
	Decision Decision `json:"decision,omitempty" yaml:"decision,omitempty"`
	// Decisions has the decision for each of several objects.
	Decisions []Decision `json:"decisions,omitempty" yaml:"decisions,omitempty"`
	// Reason has the words that the reason of the decision contains. Only the reasons of authorizers, and the IDs and
	// descriptions of conditions, can be such words.
	Reason []string `json:"reason,omitempty" yaml:"reason,omitempty"`
	// Error reports whether an error comes with the decision.
	Error *bool `json:"error,omitempty" yaml:"error,omitempty"`
	// Admitted reports whether the request, with every check, is admitted.
	Admitted *bool `json:"admitted,omitempty" yaml:"admitted,omitempty"`
}

// Reading says when the authorizers behind a conditional allow are asked.
type Reading string

// The readings ("Computing a concrete decision from a conditional authorization chain"). Lazy asks these authorizers
// during admission, if at all. Eager asks all of them before admission.
const (
	Lazy  Reading = "lazy"
	Eager Reading = "eager"
)

// WantIn returns the wanted result in a reading. The field Eager has only the differences.
func (s *APIServer) WantIn(r Reading) Want {
	if r == Lazy || s.Eager == nil {
		return s.Want
	}
	return s.Want.But(*s.Eager)
}

// forEachField calls do with each pair of fields of two results, and the name of the field.
func (w *Want) forEachField(other *Want, do func(name string, mine, others reflect.Value)) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Want]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		do(name, reflect.ValueOf(w).Elem().FieldByIndex(f.Index), reflect.ValueOf(other).Elem().FieldByIndex(f.Index))
	}
}

// But returns a result with the fields that another one states.
func (w Want) But(other Want) Want {
	w.forEachField(&other, func(_ string, mine, others reflect.Value) {
		if !others.IsZero() {
			mine.Set(others)
		}
	})
	return w
}

// Stated returns how many fields a result states that another one knows.
func (w *Want) Stated(got *Want) (n int) {
	w.forEachField(got, func(_ string, a, b reflect.Value) {
		if !a.IsZero() && !b.IsZero() {
			n++
		}
	})
	return n
}

// Unknown returns the fields that a result states, and another one does not know.
func (w *Want) Unknown(got *Want) (out []string) {
	w.forEachField(got, func(name string, a, b reflect.Value) {
		if !a.IsZero() && b.IsZero() {
			out = append(out, name)
		}
	})
	return out
}

// Differences returns in which fields a result is not as wanted. What w leaves out, or got does not know, is not judged.
func (w *Want) Differences(got *Want) (out []string) {
	w.forEachField(got, func(name string, a, b reflect.Value) {
		if !a.IsZero() && !b.IsZero() && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			out = append(out, fmt.Sprintf("%s: want %v, got %v", name, reflect.Indirect(a), reflect.Indirect(b)))
		}
	})
	return out
}

// ResultJSON is a result in JSON. An empty list in it is a known list without elements. A field that is left out is
// unknown.
type ResultJSON struct{ Want }

// MarshalJSON implements json.Marshaler.
func (a ResultJSON) MarshalJSON() ([]byte, error) {
	fields := map[string]any{}
	a.forEachField(&a.Want, func(name string, mine, _ reflect.Value) {
		if !mine.IsZero() {
			fields[name] = mine.Interface()
		}
	})
	return json.Marshal(fields)
}
