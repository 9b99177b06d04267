package cases

import (
	"slices"
	"testing"
)

// Factors are all factors, in the order of a Choice.
func Factors() []Factor { return slices.Clone(factors[:]) }

// TestFactors says that the file names the factors in the order of the constants.
func TestFactors(t *testing.T) {
	names := map[int]string{
		wanted:    "wanted",
		requestor: "requestor",
		uid:       "uid",
		groups:    "groups",
		extra:     "extra",
		mode:      "mode",
		action:    "action",
		identity:  "identity",
		legacy:    "legacy",
		request:   "request",
		selector:  "selector",
		rights:    "rights",
		sequence:  "sequence",
		change:    "change",
		audit:     "audit",
	}
	for f, name := range names {
		if factors[f].Name != name || len(factors[f].Levels) < 2 {
			t.Errorf("factor %d is %+v, and the constant is %s", f, factors[f], name)
		}
	}
	for what, there := range map[int]func(level string) bool{
		requestor: func(level string) bool { return parts.Requestors[level].User != "" },
		wanted:    func(level string) bool { return level == "nobody" || parts.Users[level][0] != "" },
		groups:    func(level string) bool { return level == "none" || len(parts.Groups[level]) > 0 },
		extra:     func(level string) bool { return level == "none" || len(parts.Extra[level]) > 0 },
		request:   func(level string) bool { return parts.Requests[level].Verb != "" },
		selector: func(level string) bool {
			return level == "none" || parts.Selectors[level].FieldSelector+parts.Selectors[level].LabelSelector != ""
		},
	} {
		for _, level := range factors[what].Levels {
			if !there(level) {
				t.Errorf("parts.yaml says nothing of the level %s of %s", level, factors[what].Name)
			}
		}
	}
	for _, text := range corpus {
		if got := parse(text).String(); got != text {
			t.Errorf("corpus.yaml has %q, which is read as %q: make explore-coverage writes it anew", text, got)
		}
	}
	if len(names) != factorCount {
		t.Errorf("%d names of %d factors", len(names), factorCount)
	}
}
