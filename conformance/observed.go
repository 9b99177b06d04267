package conformance

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// describeSteps says what a server did, a line for each request, in the names of the scenario. nameOf returns the name
// of a step, empty for one without.
func describeSteps(e *verdicts.Evidence, nameOf func(step int) string) (lines []string) {
	for i := range e.Steps {
		o := &e.Steps[i]
		for n, line := range describeObservation(o) {
			if name := nameOf(o.Step); n == 0 && name != "" {
				line = name + ": " + line
			}
			lines = append(lines, plainNames(e.Names, line))
		}
	}
	return lines
}

// describeObservation returns a line for a step, and for each request of a client one more.
func describeObservation(o *verdicts.Observation) []string {
	if o.Client == nil {
		return []string{describeRequest(o) + ": " + describeAnswer(o)}
	}
	lines := []string{fmt.Sprintf("%s: %s: exit code %d", o.Request.Requestor, o.Client.Command, o.Client.ExitCode)}
	for i := range o.Requests {
		lines = append(lines, describeRequest(&o.Requests[i])+": "+describeAnswer(&o.Requests[i]))
	}
	return lines
}

// describeRequest says who requested what, for example "deputy as bob: GET /api/v1/pods".
func describeRequest(o *verdicts.Observation) string {
	user := o.Request.Requestor
	if users := o.Request.Headers["Impersonate-User"]; len(users) > 0 {
		user += " as " + strings.Join(users, ", ")
	}
	uri := o.Request.URL
	if u, err := url.Parse(uri); err == nil {
		uri = u.RequestURI()
	}
	return user + ": " + o.Request.Method + " " + uri
}

// describeAnswer returns the class of an answer, its code, and the resulting user or the refusal.
func describeAnswer(o *verdicts.Observation) string {
	event := verdicts.AuditOf(o)
	line := fmt.Sprintf("%d", o.Response.Code)
	if outcome := verdicts.OutcomeOf(o.Response); outcome != "" {
		line = fmt.Sprintf("%s (%d)", outcome, o.Response.Code)
	}
	status := verdicts.StatusOf(o.Response)
	switch {
	case event != nil && event.ImpersonatedUser != nil:
		line += fmt.Sprintf(" as %s, groups %q", event.ImpersonatedUser.Username, event.ImpersonatedUser.Groups)
		if c := scenarios.ConstraintOf(event); c != "" {
			line += ", constraint " + c
		}
	case status != nil && status.Message != "":
		line += ": " + status.Message
	}
	return line
}

// plainNames puts the names of the scenario in the place of the unique ones.
func plainNames(names map[string]string, text string) string {
	plain := slices.Sorted(maps.Keys(names))
	slices.SortStableFunc(plain, func(a, b string) int { return len(names[b]) - len(names[a]) })
	var pairs []string
	for _, n := range plain {
		if names[n] != "" && names[n] != n {
			pairs = append(pairs, names[n], n)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
