package verdicts

import (
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// Blame is what caused a failed or invalid result: apiServer, authorizer, harness or environment.
type Blame string

const (
	// BlameAuthorizer means that a review was decided otherwise than the grants say.
	BlameAuthorizer Blame = "authorizer"
	// BlameAPIServer means that the reviews were decided as the grants say and the control run saw the same, or that
	// nothing but the API server explains the failure.
	BlameAPIServer Blame = "apiServer"
	// BlameHarness means that authzconf itself broke.
	BlameHarness Blame = "harness"
	// BlameEnvironment means that a process died, or that two runs of the same scenario did not agree.
	BlameEnvironment Blame = "environment"
)

// contradictions are the fields in which an API server contradicts itself.
var contradictions = []string{countedField, aboutField, chainField}

// blame returns who caused a failure, and why. It tries three explanations in this order. It is the authorizer if a
// review was decided otherwise than the scenario's grants say. It is the API server if nothing else explains the
// answer, even if it comes only once: the control run does not repeat what the server had been asked before. Otherwise
// the control run decides, which is the same scenario under fresh names: if it did not fail in the same way, something
// outside of the scenario contributed to the failure; if it did, the API server does not do what the scenario says.
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

// isContradiction reports whether the API server contradicts itself. Then nobody can say that a decision is the
// authorizer's.
func isContradiction(r Result) bool {
	return slices.ContainsFunc(r.Differences, func(d Difference) bool { return slices.Contains(contradictions, d.Field) })
}

// differInEventsOnly reports whether both runs failed only because requests have a second audit event. Which second
// event arrives early enough to be seen is chance; that there are second events is not.
func differInEventsOnly(r, control Result) bool {
	isOther := func(d Difference) bool { return d.Field != eventsField }
	return !slices.ContainsFunc(slices.Concat(r.Differences, control.Differences), isOther)
}

// differAlike reports whether both runs failed in the same fields of the same steps. The values are not compared,
// because fresh names occur in them.
func differAlike(r, control Result) bool {
	return slices.EqualFunc(
		r.Differences,
		control.Differences,
		func(x, y Difference) bool { return x.Step == y.Step && x.Field == y.Field },
	)
}

// findWrongDecision finds a review that was decided otherwise than the grants in force say. Scenarios that change
// grants while they run are left out, because during the change either decision is right.
func findWrongDecision(s *scenarios.Scenario, e *Evidence) (string, bool) {
	if s.Requires.Chain != "" {
		return "", false // the grants alone do not decide there
	}
	bound, _ := s.BindOn(e.Suffix, e.Nodes)
	if slices.ContainsFunc(bound.Steps, func(st scenarios.Step) bool { return st.Grant != "" || st.Revoke != "" }) {
		return "", false
	}
	grants := append(scenarios.RulesFromManifests(bound.Manifests), bound.Grants...)
	grants = append(grants, scenarios.RulesFromManifests(bound.Objects)...)
	for _, o := range Requests(e.Steps) {
		decisions, _ := DeriveDecisions(o.Reviews)
		for _, d := range decisions {
			if !escalates(bound, o.Step) && contradictsGrants(d, grants) {
				return fmt.Sprintf("%s was %s", describeSpec(d.Spec), d.Decision), true
			}
		}
	}
	return "", false
}

// contradictsGrants reports whether a review was not allowed although the permission is granted, or whether an
// impersonation was allowed that is not granted. Ordinary verbs may be allowed by what every cluster grants, or by the
// Node authorizer; only the scenario's grants allow impersonation.
func contradictsGrants(d DecidedReview, grants []scenarios.Grant) bool {
	isAllowed := d.Decision == scenarios.Allow
	if scenarios.Covered(grants, d.Spec) {
		return !isAllowed
	}
	_, isImpersonation := scenarios.ImpersonationMode(Describe(d).Verb)
	return isImpersonation && isAllowed
}

// escalates reports whether the step, or one before it, may have changed roles. Then the scenario's grants are not the
// only ones.
func escalates(s *scenarios.Scenario, step int) bool {
	return slices.ContainsFunc(s.Steps[:step+1], func(st scenarios.Step) bool {
		return st.Request != nil && st.Request.APIGroup == "rbac.authorization.k8s.io"
	})
}
