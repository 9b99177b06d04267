package model

import (
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// Disagreement is a case in which two phases are not one.
type Disagreement struct {
	Case   int
	Reason string
	// Vector is the smallest case that disagrees, as a vector file with the right decisions.
	Vector string
}

// BatchJudgement is the judgement on a batch.
type BatchJudgement struct {
	Counts
	// Disagreement is nil if the two phases decide every case as one phase does. Otherwise it is one case of the batch.
	Disagreement *Disagreement
}

// Judge compares the answers of an authorizer to the cases of a batch with the right answers. It is pure.
func (o Exploration) Judge(n int, b *Batch) (*BatchJudgement, error) {
	cases, judged := o.generate(n), &BatchJudgement{Counts: NewCounts()}
	statuses, err := o.readStatuses(cases, b)
	if err != nil {
		return nil, err
	}
	judged.Cases, judged.ByFailureMode[cases[0].mode] = len(cases), len(cases)
	for i, t := range cases {
		judged.ByAnswer[statuses[i/objects].Decision()]++
		judged.ByDecision[t.decide(true)]++
	}
	if at, reason := o.firstDisagreement(cases, statuses, b); reason != "" {
		d := &Disagreement{Case: n*batchSize + at, Reason: reason, Vector: cases[at].vector(reason)}
		if b.Smaller != nil {
			d.Reason, d.Vector = b.Smaller.Reason, b.Smaller.Vector
		}
		judged.Disagreement = d
	}
	return judged, nil
}

// readStatuses returns the answers to the requests of a batch.
func (o Exploration) readStatuses(cases []*generatedCase, b *Batch) (statuses []*vectors.SubjectAccessReviewStatus, err error) {
	if want := (len(cases) + objects - 1) / objects; len(b.Reviews) != want {
		return nil, fmt.Errorf("there are answers to %d requests, and there were %d", len(b.Reviews), want)
	}
	for _, r := range b.Reviews {
		status, err := o.Wire.ReadAccess(r.Answer)
		if err != nil {
			return nil, err
		}
		statuses = append(statuses, status)
	}
	return statuses, nil
}

// firstDisagreement returns the first case in which the two phases do not decide as one phase does, and the reason. The
// reason is empty if there is no such case.
func (o Exploration) firstDisagreement(
	cases []*generatedCase,
	statuses []*vectors.SubjectAccessReviewStatus,
	b *Batch,
) (at int, reason string) {
	for i, t := range cases {
		if reason := o.compare(t, statuses[i/objects], b.Reviews[i/objects].Evaluations, i%objects); reason != "" {
			return i, reason
		}
	}
	return 0, ""
}

// compare returns why the two phases do not decide a case as one phase does. object is the number of the object of the
// case. The reason is empty if they do.
func (o Exploration) compare(
	t *generatedCase,
	status *vectors.SubjectAccessReviewStatus,
	evaluations []Evaluation,
	object int,
) (reason string) {
	if err := o.Wire.Rules.Validate(*status, vectors.Optimized); err != nil {
		return "the answer breaks a rule: " + err.Error()
	}
	got := status.Decision()
	if want := t.firstPhase(); !slices.Contains(want, got) {
		return fmt.Sprintf("the first phase answers %s, want %s", got, want[0])
	}
	if got == vectors.Conditional {
		if object >= len(evaluations) {
			return "the conditions were not evaluated"
		}
		if got, reason = o.readDecision(evaluations[object]); reason != "" {
			return reason
		}
	}
	if want := t.decide(true); got != want {
		return fmt.Sprintf("two phases amount to %s, one to %s", got, want)
	}
	return ""
}

// readDecision returns the decision to which conditions evaluated, or why the answer is wrong.
func (o Exploration) readDecision(e Evaluation) (d vectors.Decision, reason string) {
	if e.Error != "" {
		return "", "the conditions are not evaluated: " + e.Error
	}
	response, err := o.Wire.ReadConditions(e.Answer)
	switch {
	case err != nil:
		return "", "the conditions are not evaluated: " + err.Error()
	case response == nil:
		return "", "the conditions are answered without a response"
	case response.Allowed && response.Denied:
		return "", "the conditions evaluate to allowed and denied"
	}
	return response.Decision(), ""
}
