package certify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Seen is what came of a check that needs an API server.
type Seen struct {
	Got   string `json:"got,omitempty"`   // the decision, or whether the question was allowed
	Error string `json:"error,omitempty"` // why there is none
	// Window is how long it took until a change of policy was noticed, Limit how long it may take, in milliseconds.
	Window int64 `json:"windowMs,omitempty"`
	Limit  int64 `json:"limitMs,omitempty"`
	// Cell is the API server that was asked for, in the first line about it.
	Cell *verdicts.Cell `json:"cell,omitempty"`
	// NotSupported says why the level cannot be tried.
	NotSupported string             `json:"notSupported,omitempty"`
	Scenario     *verdicts.Evidence `json:"scenario,omitempty"` // everything that was seen of a scenario
}

type judged struct {
	level   CertificationLevel
	reason  string // empty if all is well
	text    string // what was expected, and what came
	unclear bool   // nothing can be said
}

// judgeSeen judges an answer with what was seen of it. Its error is about evidence that fits no check.
func (b *Plan) judgeSeen(a Answer) (j judged, err error) {
	if a.Check == revocation {
		return judgeWindow(a)
	}
	check, ok := b.clusterChecks()[a.Vector]
	if !ok || a.Check != inCluster {
		return j, fmt.Errorf("the evidence is about a check %q, which there is not", a.Vector)
	}
	j.level = InCluster
	if check.Scenario != nil {
		return b.judgeScenario(check, a)
	}
	got := a.Seen.Got
	if a.Seen.Error != "" {
		got = a.Seen.Error
	}
	j.text = fmt.Sprintf("%s: %s: expected %s, got %s", a.Vector, asks(check.Spec), check.Expect, got)
	switch {
	case a.Seen.Error != "":
		j.reason = "api-server-answers-an-error"
	case got == string(check.Expect):
	case got == string(scenarios.Deny) && check.Expect == scenarios.NoOpinion:
		j.reason = "denies-what-is-not-granted"
	default:
		j.reason = check.Reason
	}
	return j, nil
}

// judgeScenario takes the verdict of the scenario. A reason that the authorizer gives stands at the end of a
// refusal's message, and is its own business.
func (b *Plan) judgeScenario(check clusterCheck, a Answer) (j judged, err error) {
	e := a.Seen.Scenario
	if e == nil || e.Scenario != check.Scenario.ID {
		return j, fmt.Errorf("the evidence of %q is about another scenario", a.Vector)
	}
	j.level = InCluster
	result := verdicts.Judge(check.Scenario, e)
	j.text = a.Vector + ": " + result.Reason
	wrong := slices.DeleteFunc(result.Differences, func(d verdicts.Difference) bool {
		return d.Field == "message" && strings.HasPrefix(d.Got, d.Want+": ")
	})
	if len(wrong) > 0 {
		d := wrong[0]
		j.text = fmt.Sprintf("%s: step %d: %s: expected %s, got %s", a.Vector, d.Step, d.Field, word(d.Want), word(d.Got))
	}
	switch {
	case result.Verdict == verdicts.Invalid:
		j.unclear = true
	case result.Verdict == verdicts.Failed && (len(wrong) > 0 || len(result.Differences) == 0):
		j.reason = check.Reason
	}
	return j, nil
}

func judgeWindow(a Answer) (j judged, err error) {
	j.level = Revocation
	all := windows()
	i := slices.IndexFunc(all, func(w window) bool { return w.ID == a.Vector })
	if i < 0 {
		return j, fmt.Errorf("the evidence is about a window %q, which there is not", a.Vector)
	}
	w := all[i]
	j.text = fmt.Sprintf("%s: expected allowed=%t within %d ms, got allowed=%s after %d ms", w.ID, w.Allowed, a.Seen.Limit, a.Seen.Got, a.Seen.Window)
	switch {
	case a.Seen.Error != "":
		j.text, j.reason = w.ID+": "+a.Seen.Error, "revocation-breaks"
	case a.Seen.Got != fmt.Sprint(w.Allowed), a.Seen.Window > a.Seen.Limit, a.Seen.Limit < w.limit(0).Milliseconds(), a.Seen.Limit > w.limit(MaxOwnCache).Milliseconds():
		j.reason = w.Reason
	}
	return j, nil
}

func (b *Plan) clusterChecks() map[string]clusterCheck {
	if b.checks == nil {
		b.checks = map[string]clusterCheck{}
		for _, c := range b.clusterPlan() {
			b.checks[c.ID] = c
		}
	}
	return b.checks
}

func (b *Plan) onCell(c verdicts.Cell) {
	if b.cell != c {
		b.cell, b.checks = c, nil
	}
}

// cellOf finds in the evidence what API server it is about.
func (b *Plan) cellOf(answers []Answer) error {
	for _, a := range answers {
		if a.Seen == nil || a.Seen.Cell == nil {
			continue
		}
		// No other form has a meaning for ExpectedFacts.
		if release, err := local.ParseRelease(a.Seen.Cell.Kubernetes); err != nil || *a.Seen.Cell != cellFor(release) {
			return fmt.Errorf("the evidence is about an API server of version %q", word(a.Seen.Cell.Kubernetes))
		}
		b.onCell(*a.Seen.Cell)
		return nil
	}
	return nil
}

// asks is a review on one line. The wording of findings is part of bundles, which are judged again: it stays.
func asks(s spec) string {
	if r := s.ResourceAttributes; r != nil {
		return fmt.Sprintf("%+q %+q %+q %+q in %+q", word(s.User), word(r.Verb), word(r.Group+"/"+scenarios.FullResource(r.Resource, r.Subresource)), word(r.Name), word(r.Namespace))
	}
	if n := s.NonResourceAttributes; n != nil {
		return fmt.Sprintf("%+q %+q %+q", word(s.User), word(n.Verb), word(n.Path))
	}
	return "a request that is not a review"
}

// describe is a review with its answer: what was asked, answered and expected, and the grant that it is near to.
func (b *Plan) describe(v Question, a Answer) string {
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, "%s: %s: expected %s, got %s", v.ID, asks(v.Spec), cmp.Or(string(v.Expect), "a refusal"), got(a))
	if a.Said != "" {
		_, _ = fmt.Fprintf(&out, "\n  it said: %+q", a.Said)
	}
	if g, ok := b.Policy.Nearest(v.Spec); ok && v.Form != literal {
		_, _ = fmt.Fprintf(&out, "\n  nearest grant: %s", grantText(g))
	}
	for _, reason := range append(judge(v, a), v.Reason) {
		if text := policy.Why(reason); text != "" {
			_, _ = fmt.Fprintf(&out, "\n  right: %s", text)
			break
		}
	}
	return out.String()
}

func got(a Answer) string {
	if a.Fault != "" {
		if a.HTTP != 0 {
			return fmt.Sprintf("%s %d", a.Fault, a.HTTP)
		}
		return a.Fault
	}
	text := string(a.decision())
	for _, field := range []struct{ name, value string }{{"apiVersion", a.APIVersion}, {"kind", a.Kind}, {"fields", strings.Join(a.Unknown, ", ")}} {
		if field.value != "" {
			text += fmt.Sprintf(", %s %+q", field.name, field.value)
		}
	}
	return text
}

func grantText(g scenarios.Grant) string {
	who := fmt.Sprintf("user %+q", word(g.Subject.User))
	if g.Subject.Group != "" {
		who = fmt.Sprintf("group %+q", word(g.Subject.Group))
	}
	list := func(all []string) string {
		if len(all) > 3 {
			return fmt.Sprintf("%+q and %d more", all[:3], len(all)-3)
		}
		return fmt.Sprintf("%+q", all)
	}
	if len(g.NonResourceURLs) > 0 {
		return fmt.Sprintf("%s may %s paths %s", who, list(g.Verbs), list(g.NonResourceURLs))
	}
	text := fmt.Sprintf("%s may %s %s of API groups %s", who, list(g.Verbs), list(g.Resources), list(g.APIGroups))
	if len(g.Names) > 0 {
		text += " named " + list(g.Names)
	}
	if g.Namespace == "" {
		return text + " everywhere"
	}
	return text + fmt.Sprintf(" in namespace %q", g.Namespace)
}
