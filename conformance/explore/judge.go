package explore

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// judgeBatch judges a recorded batch: the same cases are generated, and judged by their evidence.
func (p *plan) judgeBatch(ref batchRef, view record.View) (*batchResult, error) {
	if result := p.findResult(ref); result != nil {
		return result, nil
	}
	evidence, err := record.ReadOnce[batchEvidence](view, ref.id())
	if err != nil {
		return nil, err
	}
	b, err := ref.sequence.source.batch(ref)
	if err != nil {
		return nil, err
	}
	if len(evidence.Cases) != len(b.cases) {
		return nil, fmt.Errorf("there is evidence of %d cases, the command line asks for %d", len(evidence.Cases), len(b.cases))
	}
	j := newBatchJudge(ref.sequence, b, evidence)
	j.runAlone = replayAlone(evidence.Alone)
	j.sendAgain = func(context.Context, *batch) ([]*verdicts.Evidence, error) { return evidence.Again, nil }
	if err := j.judgeCases(); err != nil {
		return nil, err
	}
	if err := j.confirmAll(context.Background()); err != nil {
		return nil, err
	}
	p.remember(ref, j.out)
	return j.out, nil
}

// replayAlone returns a function that reads what was seen of cases that were run alone.
func replayAlone(recorded []*verdicts.Evidence) runAlone {
	return func(_ context.Context, p *preparedCase, _ bool) (*verdicts.Evidence, error) {
		if len(recorded) == 0 {
			return nil, fmt.Errorf("%s was not as predicted, and there is no evidence of it run alone", p.scenario.ID)
		}
		e := recorded[0]
		recorded = recorded[1:]
		return e, checkIdentity(p, e)
	}
}

// checkIdentity returns an error for evidence of another case.
func checkIdentity(p *preparedCase, e *verdicts.Evidence) error {
	if e.Scenario != p.scenario.ID || e.Suffix != p.suffix {
		return fmt.Errorf(
			"the evidence of %s under the names of %s is not that of %s under those of %s",
			e.Scenario,
			e.Suffix,
			p.scenario.ID,
			p.suffix,
		)
	}
	return nil
}

// runAlone runs a case by itself, or reads what was seen of it when it was. objects means that its grants are RBAC objects.
type runAlone func(ctx context.Context, p *preparedCase, objects bool) (*verdicts.Evidence, error)

// batchJudge judges a batch by its evidence, and what is not as predicted once more, alone.
type batchJudge struct {
	*sequence
	batch    *batch
	evidence *batchEvidence
	out      *batchResult
	suspects []*preparedCase
	runAlone runAlone
	// sendAgain sends a batch once more, or reads what was seen of it when it was. differAgain of its cases side by side differed.
	sendAgain   func(ctx context.Context, b *batch) ([]*verdicts.Evidence, error)
	differAgain int
	runs        int // of single cases, for their names
	// broken says why the cases could not be judged.
	broken error
	// say is called with what a person may want to see.
	say func(format string, args ...any)
}

func newBatchJudge(s *sequence, b *batch, evidence *batchEvidence) *batchJudge {
	return &batchJudge{sequence: s, batch: b, evidence: evidence, out: &batchResult{}, say: func(string, ...any) {}}
}

// judgeCases judges each case. What is not as predicted becomes a suspect, to be run alone.
func (j *batchJudge) judgeCases() error {
	total, isUnsure := counts{}, false
	for i, p := range j.batch.cases {
		e := j.evidence.Cases[i]
		if err := checkIdentity(p, e); err != nil {
			return err
		}
		undecided, err := j.judgeCase(p, e)
		if err != nil {
			return err
		}
		isUnsure = isUnsure || undecided > 0
		j.out.Undecided += undecided
		if !isPassed(p.result) {
			j.suspects = append(j.suspects, p)
		}
		total.addCase(p, e)
		j.out.addCase(p, e)
	}
	j.out.addBatch(j.batch)
	if len(j.suspects) > 0 {
		return nil
	}
	if why := j.compareTotals(total, isUnsure); why != "" {
		// One of them did it; which, only each alone can tell.
		j.say("a batch does not add up: %s; its cases are run alone", why)
		j.suspects = j.batch.cases
		j.out.Recounts++
		j.out.recounted = why
	}
	return nil
}

// compareTotals returns in what way the batch as a whole is not what its cases add up to. Where a case is not decided nobody
// knows what its attempts became, and these are left out.
func (j *batchJudge) compareTotals(want counts, isUnsure bool) string {
	metrics := j.evidence.Metrics
	if isUnsure {
		maps.DeleteFunc(want, func(k string, _ int) bool { return strings.HasPrefix(k, verdicts.AttemptsMetric) })
		attempts := strings.TrimSuffix(verdicts.AttemptsMetric, "_total")
		metrics = seq.Filter(metrics, func(m verdicts.MetricSample) bool { return !strings.HasPrefix(m.Name, attempts) })
	}
	return compareTotals(j.evidence.Arrived, j.out.Reviews, metrics, want)
}

func isPassed(r verdicts.Result) bool { return r.Verdict == verdicts.Passed }

// judgeCase judges a case by its evidence, and returns of how many requests nothing can be said, because their times do
// not tell.
func (s *sequence) judgeCase(p *preparedCase, e *verdicts.Evidence) (undecided int, err error) {
	times := seq.Map(e.Steps, func(o verdicts.Observation) oracle.Span {
		return oracle.Span{Sent: o.Sent.Sub(e.Steps[0].Sent), Answered: o.Answered.Sub(e.Steps[0].Sent)}
	})
	if len(times) != countRequests(p.scenario) || isInTime(p.scenario, times) {
		p.result = verdicts.Judge(p.scenario, e)
		return 0, nil
	}
	predictions, sureSteps, err := oracle.PlayAt(p.scenario, p.askedTarget.Facts, fixtures.FS, times)
	if err != nil {
		return 0, fmt.Errorf("%s: the model: %w", p.scenario.ID, err)
	}
	p.predicted = predictions
	s.fillIn(p.scenario, predictions)
	for i := range predictions[1:] { // as they were, for whoever sends them again
		if before := &p.scenario.Steps[predictions[i+1].Step-1]; before.Wait > 0 {
			before.Wait = scenarios.Duration(max(times[i+1].Sent-times[i].Answered, 1))
		}
	}
	if undecided = len(times) - sureSteps; undecided > 0 {
		scenario, evidence := *p.scenario, *e
		scenario.Steps, evidence.Steps = scenario.Steps[:predictions[sureSteps].Step], evidence.Steps[:sureSteps]
		p.result = verdicts.Judge(&scenario, &evidence)
		return undecided, nil
	}
	p.result = verdicts.Judge(p.scenario, e)
	return 0, nil
}

// confirmAll runs again, alone, what was seen to differ, and before that all cases of a crowd side by side.
func (j *batchJudge) confirmAll(ctx context.Context) error {
	if err := j.repeatCrowd(ctx); err != nil {
		return err
	}
	end := len(j.suspects) - j.evidence.Left
	for i, p := range j.suspects[:end] {
		if len(j.out.disagreements) >= maxDisagreements {
			return nil
		}
		err := j.confirm(ctx, p)
		if err != nil && ctx.Err() != nil {
			j.evidence.Left = len(j.suspects) - i
			break
		}
		if err != nil {
			return err
		}
	}
	if j.evidence.Left > 0 {
		j.out.NotConfirmed += j.evidence.Left
		j.out.unconfirmed = append(j.out.unconfirmed,
			fmt.Sprintf(
				"%d cases differed, and the run ended before they could be run again; the first: %s",
				j.evidence.Left,
				j.suspects[len(j.suspects)-j.evidence.Left].result.Reason,
			),
		)
	}
	return nil
}
