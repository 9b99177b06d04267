package verdicts

import (
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// blame says whose fault a failure is, and why. First the authorizer: a review that was decided otherwise than the
// scenario's grants say. Then the control run, the same scenario under fresh names: if it did not fail in the same
// way, something outside the scenario had a part in it; if it did, the API server does not do what the scenario
// says.
func blame(s *scenarios.Scenario, e *Evidence, r Result) (Blame, string) {
	if d, ok := wrongDecision(s, e); ok && !contradicted(r.Differences) {
		return BlameAuthorizer, r.Reason + "; the authorizer decided otherwise than the grants: " + d
	}
	if e.Control == nil {
		return BlameAPIServer, r.Reason + "; there was no control run"
	}
	control := judgeOnce(s, e.Control)
	switch {
	case control.Verdict == Invalid:
		return BlameEnvironment, r.Reason + "; the control run broke: " + control.Reason
	case control.Verdict == Passed:
		return BlameEnvironment, r.Reason + "; the control run passed, so the answer is not always the same"
	case !sameFields(r.Differences, control.Differences):
		return BlameEnvironment, r.Reason + "; the control run failed otherwise: " + control.Reason
	}
	return BlameAPIServer, r.Reason + "; the control run saw the same"
}

// contradicted says whether the API server contradicts itself: then a decision cannot be told to be the authorizer's.
func contradicted(differences []Difference) bool {
	return slices.ContainsFunc(differences, func(d Difference) bool { return d.Field == countedField || d.Field == aboutField })
}

// sameFields compares what differed, not the values: names are fresh in the control run.
func sameFields(a, b []Difference) bool {
	return slices.EqualFunc(a, b, func(x, y Difference) bool { return x.Step == y.Step && x.Field == y.Field })
}

// wrongDecision finds a review that was decided otherwise than the grants in force say. Scenarios that change
// grants while they run are left out: their window is what they are about.
func wrongDecision(s *scenarios.Scenario, e *Evidence) (string, bool) {
	if s.Requires.Chain != "" {
		return "", false // not only the grants decide there
	}
	bound, _ := s.BindOn(e.Suffix, e.Nodes)
	if slices.ContainsFunc(bound.Steps, func(st scenarios.Step) bool { return st.Grant != "" || st.Revoke != "" }) {
		return "", false
	}
	grants := append(scenarios.RulesFromManifests(bound.Manifests), bound.Grants...)
	grants = append(grants, scenarios.RulesFromManifests(bound.Objects)...)
	for _, o := range requests(e.Steps) {
		decided, _ := Fold(o.Reviews)
		for _, d := range decided {
			granted := scenarios.Covered(grants, d.Spec)
			// Ordinary verbs may be allowed by what every cluster grants, or by the Node authorizer; impersonation
			// is allowed by nobody but the scenario.
			_, impersonation := scenarios.ImpersonationMode(Describe(d).Verb)
			switch {
			case escalates(bound, o.Step):
			case granted && d.Decision != scenarios.Allow, !granted && impersonation && d.Decision == scenarios.Allow:
				return fmt.Sprintf("%s was %s", describe(d.Spec), d.Decision), true
			}
		}
	}
	return "", false
}

// escalates says whether the step may have changed roles itself, so that the grants of the scenario are not all
// there is.
func escalates(s *scenarios.Scenario, step int) bool {
	return slices.ContainsFunc(s.Steps[:step+1], func(st scenarios.Step) bool {
		return st.Request != nil && st.Request.APIGroup == "rbac.authorization.k8s.io"
	})
}
