package vectors

import (
	"fmt"
	"slices"
)

// Differences says in what a result is not what is wanted, a line for each field.
// What w leaves out, and what got does not know, is not judged.
func (w *Want) Differences(got *Want) (out []string) {
	note := func(field string, want, got any) {
		out = append(out, fmt.Sprintf("%s: want %v, got %v", field, want, got))
	}
	words := func(field string, want, got Decision) {
		if want != "" && got != "" && want != got {
			note(field, want, got)
		}
	}
	flags := func(field string, want, got *bool) {
		if want != nil && got != nil && *want != *got {
			note(field, *want, *got)
		}
	}
	lists := func(field string, want, got []string) {
		if want != nil && got != nil && !slices.Equal(want, got) {
			note(field, want, got)
		}
	}
	flags("starts", w.Starts, got.Starts)
	words("authorized", w.Authorized, got.Authorized)
	lists("asked", w.Asked, got.Asked)
	flags("proceeds", w.Proceeds, got.Proceeds)
	lists("conditionsChain", w.ConditionsChain, got.ConditionsChain)
	lists("askedLater", w.AskedLater, got.AskedLater)
	lists("evaluatedBy", w.EvaluatedBy, got.EvaluatedBy)
	words("decision", w.Decision, got.Decision)
	if w.Decisions != nil && got.Decisions != nil && !slices.Equal(w.Decisions, got.Decisions) {
		note("decisions", w.Decisions, got.Decisions)
	}
	flags("error", w.Error, got.Error)
	flags("admitted", w.Admitted, got.Admitted)
	return out
}
