package vectors

import (
	"fmt"
	"reflect"
	"strings"
)

// Reading is when the authorizers behind a conditional allow are asked.
type Reading string

// The readings ("Computing a concrete decision from a conditional authorization chain"): Lazy asks them during
// admission, if at all; Eager asks all before.
const (
	Lazy  Reading = "lazy"
	Eager Reading = "eager"
)

// Wanted is what a reading says of the request: Eager states only what differs.
func (s *APIServer) Wanted(r Reading) Want {
	w := s.Want
	if r == Lazy || s.Eager == nil {
		return w
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Want]()) {
		if e := reflect.ValueOf(s.Eager).Elem().FieldByIndex(f.Index); !e.IsZero() {
			reflect.ValueOf(&w).Elem().FieldByIndex(f.Index).Set(e)
		}
	}
	return w
}

// Differences says how a result differs from what is wanted, a line for each field. What w leaves out, and what
// got does not know, is not judged.
func (w *Want) Differences(got *Want) (out []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Want]()) {
		a, b := reflect.ValueOf(w).Elem().FieldByIndex(f.Index), reflect.ValueOf(got).Elem().FieldByIndex(f.Index)
		if !a.IsZero() && !b.IsZero() && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			out = append(out, fmt.Sprintf("%s: want %v, got %v", name, reflect.Indirect(a), reflect.Indirect(b)))
		}
	}
	return out
}
