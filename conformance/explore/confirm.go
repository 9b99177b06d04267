package explore

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// shrinkLimit bounds how many runs are made to find the smallest case, and shrinkTime how long they may take.
const (
	shrinkLimit = 400
	shrinkTime  = 2 * time.Minute
)

// confirm runs a case again, alone and under fresh names, and keeps it as a disagreement if it differs again.
func (j *batchJudge) confirm(ctx context.Context, p *preparedCase) error {
	repeated, err := j.judgeAlone(ctx, p, p.scenario, p.objects)
	if err != nil {
		return err
	}
	if repeated.Verdict == verdicts.Invalid {
		return fmt.Errorf("case %d, run alone: %s", p.number, repeated.Reason)
	}
	if isPassed(repeated) {
		differsInCrowds := p.isApart && j.differAgain > 0
		if differsInCrowds || j.isCertain(p) {
			return j.keepOnce(p)
		}
		if !isPassed(p.result) {
			j.out.NotConfirmed++
			j.out.unconfirmed = append(j.out.unconfirmed,
				fmt.Sprintf("case %d differed once, and not when it was run again: %s", p.number, p.result.Reason),
			)
			j.say("case %d differed once, and not when it was run again: %s", p.number, p.result.Reason)
		}
		return nil
	}
	j.say("case %d: %s", p.number, repeated.Reason)
	j.say(
		"looking for a smaller case that shows it: at most %d runs or %s; Ctrl-C ends the search and keeps the case",
		shrinkLimit,
		shrinkTime,
	)
	small, result, err := j.shrink(ctx, p, repeated)
	if err != nil {
		return err
	}
	d := disagreement{
		number:      p.number,
		choice:      p.choice.String(),
		reason:      result.Reason,
		differences: result.Differences,
		file:        j.scenarioFile(p),
	}
	if d.scenario, err = j.print(small, p, result); err != nil {
		return err
	}
	d.overRBAC = p.objects
	isSmallest := !j.evidence.Searches[len(j.out.disagreements)].Ended
	if isSmallest && !p.objects && cases.IsUnique(small) {
		resultWithObjects, err := j.judgeAlone(ctx, p, small, true)
		if err != nil {
			return err
		}
		d.overRBAC = !isPassed(resultWithObjects)
	}
	j.out.disagreements = append(j.out.disagreements, d)
	j.out.Disagreements++
	j.say("case %d, made small:\n%s", p.number, d.scenario)
	return nil
}

// isCertain reports whether a case has shown what is a fault of the API server even if it comes only once, as after a history
// that a case run alone does not have. At the edges of what is remembered an answer depends on milliseconds.
func (j *batchJudge) isCertain(p *preparedCase) bool {
	return p.result.IsCertain() && j.batch.special != edgedSuffix
}

// keepOnce keeps a case as a disagreement that was not seen again when it was run alone. It can't be made smaller.
func (j *batchJudge) keepOnce(p *preparedCase) (err error) {
	r := p.result
	r.Reason += "; it was not seen again when the case was run alone, so that it depends on what the server was asked before or meanwhile"
	if j.differAgain > 0 {
		r.Reason += fmt.Sprintf("; when all cases were sent side by side again, under other names, %d differed", j.differAgain)
	}
	d := disagreement{
		number:      p.number,
		choice:      p.choice.String(),
		reason:      r.Reason,
		differences: r.Differences,
		file:        j.scenarioFile(p),
		once:        true,
	}
	if d.scenario, err = j.print(p.scenario, p, r); err != nil {
		return err
	}
	j.out.disagreements = append(j.out.disagreements, d)
	j.out.Disagreements++
	j.say("case %d: %s", p.number, r.Reason)
	return nil
}

// scenarioFile returns the path of a disagreement's scenario in the report's folder.
func (j *batchJudge) scenarioFile(p *preparedCase) string {
	name := fmt.Sprintf("case-%06d", p.number)
	if at := p.at.path(); at != "" {
		name += "-" + at
	}
	return path.Join("scenarios", j.batch.ref.id(), name+".yaml")
}

// shrink makes a case smaller while it differs, and returns the result of the smallest.
func (j *batchJudge) shrink(
	ctx context.Context,
	p *preparedCase,
	r verdicts.Result,
) (_ *scenarios.Scenario, _ verdicts.Result, broken error) {
	search := j.beginSearch(ctx)
	small := cases.Shrink(p.scenario, shrinkLimit, func(s *scenarios.Scenario) bool {
		cannotRun := p.objects && !canBeObjects(s)
		if broken != nil || cannotRun || !search.mayGoOn() {
			return false
		}
		result, err := j.judgeAlone(ctx, p, s, p.objects)
		if search.isEndedBy(ctx, err) {
			return false
		}
		if err != nil {
			broken = err
			return false
		}
		if result.Verdict != verdicts.Failed {
			return false
		}
		r = result
		return true
	})
	if broken != nil {
		return nil, r, broken
	}
	small, _, err := j.predict(small, p.askedTarget.Facts)
	return small, r, err
}

// caseSearch is a search for a smaller case that is under way, or one that was recorded and is made again.
type caseSearch struct {
	*search
	// left is how many runs the recorded search has, -1 if this one is not recorded; until is when this one ends.
	left  int
	until time.Time
}

// beginSearch begins a search, or the recorded one of the next disagreement.
func (j *batchJudge) beginSearch(ctx context.Context) *caseSearch {
	number := len(j.out.disagreements)
	if number < len(j.evidence.Searches) {
		recorded := &j.evidence.Searches[number]
		return &caseSearch{search: &search{}, left: recorded.Runs}
	}
	j.evidence.Searches = append(j.evidence.Searches, search{})
	until := time.Now().Add(shrinkTime)
	if deadline, hasOne := ctx.Deadline(); hasOne && deadline.Before(until) {
		until = deadline
	}
	return &caseSearch{search: &j.evidence.Searches[number], left: -1, until: until}
}

// mayGoOn reports whether another run may be made, and counts it.
func (s *caseSearch) mayGoOn() bool {
	switch {
	case s.left == s.Runs, s.Ended:
		return false
	case s.left < 0 && time.Now().After(s.until):
		s.Ended = true
		return false
	}
	s.Runs++
	return true
}

// isEndedBy reports whether the user ended the search while a run was made, which then does not count.
func (s *caseSearch) isEndedBy(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() == nil {
		return false
	}
	s.Runs--
	s.Ended = true
	return true
}

// judgeAlone runs a scenario by itself, with metrics read for every request. objects means that its grants are RBAC objects. The
// server is one as it was of which the scenario is made.
func (j *batchJudge) judgeAlone(
	ctx context.Context,
	from *preparedCase,
	s *scenarios.Scenario,
	objects bool,
) (r verdicts.Result, err error) {
	if err := ctx.Err(); err != nil {
		return r, err
	}
	j.runs++
	p := &preparedCase{at: from.at, askedTarget: from.askedTarget}
	if p.scenario, p.predicted, err = j.predict(s, p.askedTarget.Facts); err != nil {
		return r, err
	}
	p.bind(scenarios.Suffix(j.cell.plan.o.Seed, j.batch.ref.id(), "alone", strconv.Itoa(j.runs)))
	e, err := j.runAlone(ctx, p, objects)
	if err != nil {
		return r, err
	}
	_, err = j.judgeCase(p, e)
	return p.result, err
}

// print renders a case as a scenario file, with what a file needs beside what was found.
func (j *batchJudge) print(s *scenarios.Scenario, p *preparedCase, r verdicts.Result) (string, error) {
	comments := []string{
		fmt.Sprintf("Kubernetes %s, gate %s: the model and the server disagree.", j.cell.options.Cell.Kubernetes, p.askedTarget.Facts.Gate),
		strings.Join(strings.Fields(r.Reason), " "), "The expectations are the model's.",
	}
	if denied := deniedSteps(s); len(denied) > 0 {
		paired, ok := cases.AddTwins(s, denied)
		if !ok {
			comments = append(comments, "A twin is missing: a scenario that differs in one respect and is allowed.")
		}
		var err error
		if s, _, err = j.predict(paired, p.askedTarget.Facts); err != nil {
			return "", err
		}
	}
	binary, err := version.ParseGeneric(p.askedTarget.Facts.Binary) // scenarios name minor versions
	if err != nil {
		return "", err
	}
	s.Requires.Kubernetes, s.Requires.Binary = "", fmt.Sprintf("=%d.%d", binary.Major(), binary.Minor())
	s.Description = fmt.Sprintf("Found by authzconf explore, seed %d, case %d%s.", j.cell.plan.o.Seed, p.number, p.at)
	raw, err := cases.Print(s, comments...)
	return string(raw), err
}

// deniedSteps returns the indices of the steps with requests that are denied.
func deniedSteps(s *scenarios.Scenario) (denied []int) {
	for i, st := range s.Steps {
		if st.Expect == nil {
			continue
		}
		if st.Expect.Outcome != scenarios.Allowed && st.Expect.Outcome != scenarios.ServerError {
			denied = append(denied, i)
		}
	}
	return denied
}
