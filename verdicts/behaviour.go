package verdicts

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

var serverMade = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// localAddress matches where something listens for one run, which a message may name.
var localAddress = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// Behaviour is what a target did in a scenario, a line per thing seen, with the scenario's own names and without
// what is generated anew in every run. Two cells that behave alike give the same lines.
func Behaviour(e *Evidence) []string {
	back := make(map[string]string, len(e.Names))
	for name, unique := range e.Names {
		back[unique] = name
	}
	plain := func(s string) string {
		return localAddress.ReplaceAllString(serverMade.ReplaceAllString(scenarios.Rename(s, back), "<id>"), "<address>")
	}
	lines := scenarios.Each(e.Problems, func(p Problem) string { return "problem: " + plain(p.Text) })
	if u := e.Unheeded; u != nil {
		lines = append(lines, plain(fmt.Sprintf("step %d: allowed=%v, not %v as its roles and bindings say: %s", u.Step, u.Answer.Allowed, u.Want, describe(u.Review))))
	}
	for i := range e.Steps {
		for _, l := range stepBehaviour(&e.Steps[i]) {
			lines = append(lines, fmt.Sprintf("step %d: %s", e.Steps[i].Step, plain(l)))
		}
	}
	return lines
}

// reviewBehaviour renders reviews in order, but for runs of extra checks, whose keys come from a Go map.
func reviewBehaviour(decided []Decided) []string {
	var lines []string
	extras := 0 // length of the run of extra checks at the end of lines
	for _, d := range decided {
		lines = append(lines, "review: "+reviewUser(d.Spec).Render()+" "+RenderReview(Describe(d)))
		if a := d.Spec.ResourceAttributes; a != nil && a.Resource == "userextras" {
			extras++
			slices.Sort(lines[len(lines)-extras:])
			continue
		}
		extras = 0
	}
	return lines
}

func stepBehaviour(o *Observation) []string {
	if o.Client != nil {
		return clientBehaviour(o)
	}
	answer := fmt.Sprintf("answer %d", o.Response.Code)
	if st := StatusOf(o.Response); st != nil && st.Message != "" {
		answer += ": " + st.Message
	}
	lines := []string{o.Request.Method + " " + o.Request.URL, answer}
	decided, stray := Fold(o.Reviews)
	lines = append(lines, reviewBehaviour(decided)...)
	for _, r := range stray {
		lines = append(lines, "stray review: "+describe(r.Spec))
	}
	if ev := AuditOf(o); ev != nil {
		if u := ev.ImpersonatedUser; u != nil {
			lines = append(lines, "audit: impersonated "+scenarios.UserOf(u.Username, u.UID, u.Groups, u.Extra).Render())
		}
		if m := ev.AuthenticationMetadata; m != nil {
			lines = append(lines, "audit: constraint "+m.ImpersonationConstraint)
		}
		lines = append(lines, "audit: decision "+quote(ev.Annotations[decisionAnnotation]))
	}
	lines = append(lines, backendBehaviour(o)...)
	for _, m := range o.Metrics {
		if !strings.HasSuffix(m.Name, "_duration_seconds_count") {
			lines = append(lines, fmt.Sprintf("metric: %s{mode=%q,decision=%q} +%d", m.Name, m.Mode, m.Decision, m.Delta))
		}
	}
	return lines
}
