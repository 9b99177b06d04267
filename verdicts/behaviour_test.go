package verdicts

import (
	"slices"
	"strings"
	"testing"
)

// TestBehaviour checks that Behaviour hides the names and IDs of one run, and shows everything else.
func TestBehaviour(t *testing.T) {
	run := func(suffix string) *Evidence {
		e := newEvidence()
		e.Names = map[string]string{"alice": "alice-" + suffix, "bob": "bob-" + suffix}
		for i := range e.Steps[0].Reviews {
			spec := &e.Steps[0].Reviews[i].Spec
			spec.User = strings.ReplaceAll(spec.User, "abc123", suffix)
			spec.ResourceAttributes.Name = strings.ReplaceAll(spec.ResourceAttributes.Name, "abc123", suffix)
		}
		e.Steps[0].Audit = []byte(strings.ReplaceAll(string(e.Steps[0].Audit), "abc123", suffix))
		return e
	}
	a, b := Behaviour(run("aaaaaa")), Behaviour(run("bbbbbb"))
	if !slices.Equal(a, b) {
		t.Errorf("two runs differ:\n%s\n\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	other := run("bbbbbb")
	other.Steps[0].Reviews[1].Spec.ResourceAttributes.Namespace = "elsewhere"
	if slices.Equal(a, Behaviour(other)) {
		t.Error("a review in another namespace is not seen")
	}
	for _, want := range []string{"answer 200", `review: "alice"`, `audit: constraint "impersonate:user-info"`, "metric: apiserver_impersonation_attempts_total"} {
		if !slices.ContainsFunc(a, func(l string) bool { return strings.Contains(l, want) }) {
			t.Errorf("no line has %q:\n%s", want, strings.Join(a, "\n"))
		}
	}
}
