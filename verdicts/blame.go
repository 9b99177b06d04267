package verdicts

import (
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// Blame is what caused a failed or invalid result: apiServer, authorizer, harness or environment.
type Blame string

const (
	// BlameAuthorizer: a review was decided otherwise than the grants say.
	BlameAuthorizer Blame = "authorizer"
	// BlameAPIServer: the reviews were decided as the grants say, and the control run saw the same: the API server differs.
	BlameAPIServer Blame = "apiServer"
	// BlameHarness: authzconf itself broke.
	BlameHarness Blame = "harness"
	// BlameEnvironment: a process died, or two runs of the same did not agree.
	BlameEnvironment Blame = "environment"
)

// contradictions are the fields in which an API server contradicts itself.
var contradictions = []string{countedField, aboutField, chainField}

// blame returns whose fault a failure is, and why. First the authorizer: a review that was decided otherwise than the
// scenario's grants say. Then the API server, for an answer that nothing else explains, even if it comes only once: the
// control run does not repeat what the server had been asked before. Then the control run, the same scenario under fresh
// names: if it did not fail in the same way, something outside the scenario had a part in it; if it did, the API server does
// not do what the scenario says.
func blame(s *scenarios.Scenario, e *Evidence, r Result) (Blame, string) {
	if d, ok := findWrongDecision(s, e); ok && !isContradiction(r) {
		return BlameAuthorizer, r.Reason + "; the authorizer decided otherwise than the grants: " + d
	}
	if e.Control == nil {
		return BlameAPIServer, r.Reason + "; there was no control run"
	}
	control := judgeOnce(s, e.Control)
	isAlike := differInEventsOnly(r, control) || differAlike(r, control)
	switch {
	case r.IsCertain() && !isAlike:
		return BlameAPIServer, r.Reason + "; the control run did not show the same, but nothing outside of the API server explains it even once"
	case control.Verdict == Invalid:
		return BlameEnvironment, r.Reason + "; the control run broke: " + control.Reason
	case control.Verdict == Passed:
		return BlameEnvironment, r.Reason + "; the control run passed, so the answer is not always the same"
	case !isAlike:
		return BlameEnvironment, r.Reason + "; the control run failed otherwise: " + control.Reason
	}
	return BlameAPIServer, r.Reason + "; the control run saw the same"
}

// isContradiction reports whether the API server contradicts itself: then nobody can say that a decision is the authorizer's.
func isContradiction(r Result) bool {
	return slices.ContainsFunc(r.Differences, func(d Difference) bool { return slices.Contains(contradictions, d.Field) })
}

// differInEventsOnly reports whether both runs failed because requests have a second audit event, and for nothing else.
// Which request's second event comes early enough to be seen is chance; that there are two is not.
func differInEventsOnly(r, control Result) bool {
	isOther := func(d Difference) bool { return d.Field != eventsField }
	return !slices.ContainsFunc(slices.Concat(r.Differences, control.Differences), isOther)
}

// differAlike reports whether both runs failed in the same fields of the same steps. The values have fresh names in them.
func differAlike(r, control Result) bool {
	return slices.EqualFunc(r.Differences, control.Differences, func(x, y Difference) bool { return x.Step == y.Step && x.Field == y.Field })
}

// findWrongDecision finds a review that was decided otherwise than the grants in force say. Scenarios that change
// grants while they run are left out: their window is what they are about.
func findWrongDecision(s *scenarios.Scenario, e *Evidence) (string, bool) {
	if s.Requires.Chain != "" {
		return "", false // not only the grants decide there
	}
	bound, _ := s.BindOn(e.Suffix, e.Nodes)
	if slices.ContainsFunc(bound.Steps, func(st scenarios.Step) bool { return st.Grant != "" || st.Revoke != "" }) {
		return "", false
	}
	grants := append(scenarios.RulesFromManifests(bound.Manifests), bound.Grants...)
	grants = append(grants, scenarios.RulesFromManifests(bound.Objects)...)
	for _, o := range Requests(e.Steps) {
		decided, _ := Fold(o.Reviews)
		for _, d := range decided {
			if !escalates(bound, o.Step) && contradictsGrants(d, grants) {
				return fmt.Sprintf("%s was %s", describe(d.Spec), d.Decision), true
			}
		}
	}
	return "", false
}

// contradictsGrants reports whether a review was not allowed although it is granted, or an impersonation was allowed that is
// not granted. Ordinary verbs may be allowed by what every cluster grants, or by the Node authorizer; impersonation is
// allowed by nobody but the scenario.
func contradictsGrants(d Decided, grants []scenarios.Grant) bool {
	isAllowed := d.Decision == scenarios.Allow
	if scenarios.Covered(grants, d.Spec) {
		return !isAllowed
	}
	_, isImpersonation := scenarios.ImpersonationMode(Describe(d).Verb)
	return isImpersonation && isAllowed
}

// escalates reports whether the step, or one before it, may have changed roles: then the scenario's grants are not all.
func escalates(s *scenarios.Scenario, step int) bool {
	return slices.ContainsFunc(s.Steps[:step+1], func(st scenarios.Step) bool {
		return st.Request != nil && st.Request.APIGroup == "rbac.authorization.k8s.io"
	})
}
