package reports

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// TestGroupBeyondTarget has a group in which nothing can be executed, together with another one.
func TestGroupBeyondTarget(t *testing.T) {
	passed := Group{Name: "a", Cases: []Result{{Case: "x", Verdict: verdicts.Passed}}}
	for name, c := range map[string]struct {
		group Group
		want  verdicts.Verdict
	}{
		"extended":           {Group{Name: "b", Cases: []Result{NotSupported("y", scenarios.Extended, "no hook")}}, verdicts.Passed},
		"core":               {Group{Name: "b", Cases: []Result{NotSupported("y", scenarios.Core, "no hook")}}, verdicts.Invalid},
		"on a control plane": {Group{Name: "b", Cell: &verdicts.Cell{}, Cases: []Result{NotSupported("y", scenarios.Extended, "no hook")}}, verdicts.Invalid},
		"no cases":           {Group{Name: "b"}, verdicts.Invalid},
		"skipped":            {Group{Name: "b", Cases: []Result{{Case: "y", Level: scenarios.Extended, Verdict: verdicts.Skipped}}}, verdicts.Invalid},
	} {
		r := &Report{Groups: []Group{passed, c.group}}
		r.Conclude()
		if r.Outcome.Result != c.want {
			t.Errorf("%s: %s, %q", name, r.Outcome.Result, strings.Join(r.Outcome.Reasons, "\n"))
		}
	}
}
