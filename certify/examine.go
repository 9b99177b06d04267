package certify

import (
	"cmp"
	"fmt"

	"github.com/authzconf/authzconf/verdicts"
)

// examination is one pass over the answers of a run, in their order.
type examination struct {
	plan     *Plan
	findings *Findings
	controls controls
	rates    []Rate
	// causes has the first finding about each question that was answered wrongly.
	causes map[string]*cause
}

// cause is a finding that explains other wrong answers.
type cause struct {
	caseID  string
	finding Finding
}

// examine collects what is wrong in the answers. It returns an error if an answer belongs to no planned question.
func (b *Plan) examine(answers []Answer) (*Findings, error) {
	rates := b.rates(withoutControls(answers))
	e := &examination{plan: b, findings: NewFindings(), controls: b.newControls(answers), rates: rates, causes: map[string]*cause{}}
	isTransient := e.addOutages(answers)
	for i, a := range answers {
		isLeftOut := a.Control || a.Stage != nil || isTransient[i]
		if isLeftOut || isExcused(a, rates) {
			continue
		}
		if err := e.add(a); err != nil {
			return nil, err
		}
	}
	for _, r := range rates {
		for _, problem := range r.problems() {
			f := Finding{Reason: problem.reason, Level: Load, Blame: e.controls.blameForRate(r, problem.reason)}
			e.findings.Add(partOfLoad(r.check()).id(), f, func() string { return problem.text })
		}
	}
	return e.findings, nil
}

// addOutages adds what was wrong only for a while, with one finding for each such time. It returns the indexes of these
// answers.
func (e *examination) addOutages(answers []Answer) map[int]bool {
	isTransient := map[int]bool{}
	for _, o := range e.plan.transientOutages(answers) {
		begin := answers[o.wrong[0]]
		v, _ := e.plan.findQuestion(begin.Vector)
		f := Finding{Reason: reasonTransient, Level: levelOf(v, begin), Blame: e.controls.blame(begin, reasonTransient)}
		e.findings.Add(partOf(begin.Check, v).id(), f, func() string { return o.describe(e.plan, answers) })
		for _, i := range o.wrong {
			isTransient[i] = true
		}
	}
	return isTransient
}

// add adds what an answer shows. It returns an error if the answer belongs to no planned question.
func (e *examination) add(a Answer) error {
	if a.ClusterObservation != nil {
		return e.addObservation(a)
	}
	v, ok := e.plan.findQuestion(a.Vector)
	if !ok {
		return fmt.Errorf("the evidence is about %q, which seed %d does not have", a.Vector, e.plan.Policy.Seed)
	}
	e.addAnswer(v, a)
	return nil
}

// addAnswer adds what is wrong with an answer. What follows from another wrong answer is not a finding of its own.
func (e *examination) addAnswer(v Question, a Answer) {
	id, baseCause := partOf(a.Check, v).id(), e.causes[v.Base]
	example := func() string { return e.plan.describeQuestion(v, a) + describePause(a) }
	for _, reason := range judge(v, a) {
		isTime := reason == reasonSlow
		isRepeated := a.Check != plainCheck && e.causes[v.ID] != nil
		switch {
		case isTime:
		case baseCause != nil && a.Check == plainCheck:
			e.findings.Add(baseCause.caseID, baseCause.finding, example)
			continue
		case baseCause != nil || isRepeated:
			continue
		}
		f := Finding{Reason: reason, Level: levelOf(v, a), Blame: e.controls.blame(a, reason)}
		isWrongAnswer := a.Fault == "" && !isTime
		if other := repeatedReason(a.Check); other != "" && isWrongAnswer {
			f.Reason = other
		}
		e.findings.Add(id, f, example)
		if e.causes[v.ID] == nil && !isTime {
			e.causes[v.ID] = &cause{id, f}
		}
	}
	for _, reason := range advise(v, a) {
		e.findings.Add(id, Finding{Reason: reason, Level: levelOf(v, a), Advice: true}, example)
	}
	if a.Connections > maxConnections {
		f := Finding{Reason: "no-keep-alive", Level: Robust, Blame: e.controls.blame(a, "")}
		e.findings.Add(id, f, func() string {
			return fmt.Sprintf("%s: %d connections for %d reviews", a.Check, a.Connections, keepAliveReviews)
		})
	}
}

// addObservation adds what is wrong with what an API server did.
func (e *examination) addObservation(a Answer) error {
	j, err := e.plan.judgeObservation(a)
	if err != nil {
		return err
	}
	id, example := e.plan.partOfObservation(a).id(), func() string { return j.text }
	if j.reason != "" {
		e.findings.Add(id, Finding{Reason: j.reason, Level: j.level, Blame: e.controls.blame(a, j.reason)}, example)
	}
	if j.unclear {
		blame := cmp.Or(e.controls.blame(a, j.reason), verdicts.BlameEnvironment)
		e.findings.Add(id, Finding{Reason: "could-not-be-judged", Level: j.level, Blame: blame}, example)
	}
	return nil
}

// repeatedReason returns the name of a wrong answer in a check that repeats questions in other circumstances.
func repeatedReason(check string) string {
	switch {
	case isLoadCheck(check):
		return "wrong-under-load"
	case isConcurrent(check):
		return "wrong-under-concurrency"
	case check == silenceCheck:
		return "wrong-after-silence"
	case check == driftCheck:
		return "drifts"
	}
	return ""
}

// levelOf returns the level that is lost by a wrong answer.
func levelOf(v Question, a Answer) CertificationLevel { return partOf(a.Check, v).level }
