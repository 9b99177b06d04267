package certify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// ClusterObservation is what was seen in a check that needs an API server.
type ClusterObservation struct {
	// Answer is the decision, or whether the question was allowed. Error says why there is none.
	Answer string `json:"got,omitempty"`
	Error  string `json:"error,omitempty"`
	// Window is how long it took until a change of policy was seen, and Limit how long it may take, in milliseconds.
	Window int64 `json:"windowMs,omitempty"`
	Limit  int64 `json:"limitMs,omitempty"`
	// Scenario is everything that was seen of a scenario.
	Scenario *verdicts.Evidence `json:"scenario,omitempty"`
}

// observationResult is what follows from what was seen.
type observationResult struct {
	level CertificationLevel
	// reason is empty if nothing is wrong. text says what was expected and what was seen.
	reason, text string
	// unclear is set if nothing can be said.
	unclear bool
}

// judgeObservation judges an answer by what was seen. It returns an error if the evidence belongs to no check.
func (b *Plan) judgeObservation(a Answer) (j observationResult, err error) {
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
	got := a.ClusterObservation.Answer
	j.text = fmt.Sprintf(
		"%s: %s: expected %s, got %s",
		a.Vector,
		describeSpec(check.Spec),
		check.Expect,
		cmp.Or(a.ClusterObservation.Error, got),
	)
	switch {
	case a.ClusterObservation.Error != "":
		j.reason = "api-server-answers-an-error"
	case got == string(check.Expect):
	case got == string(scenarios.Deny) && check.Expect == scenarios.NoOpinion:
		j.reason = "denies-what-is-not-granted"
	default:
		j.reason = check.Reason
	}
	return j, nil
}

// judgeScenario judges a scenario by its verdict. It ignores the reason at the end of a refusal's message, because the
// authorizer may choose it freely.
func (b *Plan) judgeScenario(check clusterCheck, a Answer) (j observationResult, err error) {
	e := a.ClusterObservation.Scenario
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
		j.text = fmt.Sprintf("%s: step %d: %s: expected %s, got %s", a.Vector, d.Step, d.Field, cutWord(d.Want), cutWord(d.Got))
	}
	onlyReasons := len(wrong) == 0 && len(result.Differences) > 0
	switch {
	case result.Verdict == verdicts.Invalid:
		j.unclear = true
	case result.Verdict == verdicts.Failed && !onlyReasons:
		j.reason = check.Reason
	}
	return j, nil
}

// judgeWindow judges how long it took until a change of policy was seen, for one way of asking.
func judgeWindow(a Answer) (j observationResult, err error) {
	j.level = Revocation
	all := windows()
	i := slices.IndexFunc(all, func(w window) bool { return w.ID == a.Vector })
	if i < 0 {
		return j, fmt.Errorf("the evidence is about a window %q, which there is not", a.Vector)
	}
	w, observation := all[i], a.ClusterObservation
	j.text = fmt.Sprintf(
		"%s: expected allowed=%t within %d ms, got allowed=%s after %d ms",
		w.ID,
		w.Allowed,
		observation.Limit,
		observation.Answer,
		observation.Window,
	)
	isLimit := w.limit(0).Milliseconds() <= observation.Limit && observation.Limit <= w.limit(MaxOwnCache).Milliseconds()
	inTime := observation.Window <= observation.Limit
	switch {
	case observation.Error != "":
		j.text, j.reason = w.ID+": "+observation.Error, "revocation-breaks"
	case observation.Answer != fmt.Sprint(w.Allowed), !inTime, !isLimit:
		j.reason = w.Reason
	}
	return j, nil
}

// clusterChecks returns all checks of the chain by their IDs.
func (b *Plan) clusterChecks() map[string]clusterCheck {
	if b.checks == nil {
		b.checks = map[string]clusterCheck{}
		for _, c := range b.clusterPlan() {
			b.checks[c.ID] = c
		}
	}
	return b.checks
}

// setCell sets the API server that the checks in a cluster are for.
func (b *Plan) setCell(c verdicts.Cell) {
	if b.cell != c {
		b.cell, b.checks = c, nil
	}
}
