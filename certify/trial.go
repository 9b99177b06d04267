package certify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Trial is the plan of a product that certifies. It asks an authorizer, records every answer, and judges what was
// recorded. Certifications of all kinds of authorizers are trials; A is the type of an answer.
type Trial[A any] struct {
	// Planned are all cases.
	Planned []product.Case
	Subject Subject
	// Webhook has the certificates that the authorizer showed. It is nil when a record is verified.
	Webhook *Webhook
	Seed    int64
	// Suite is the digest of everything that is to be asked.
	Suite string
	// Challenge is the challenge that the run answers, or nil.
	Challenge *Challenge
	// Ask asks the selected questions.
	Ask func(ctx context.Context, r *Runner[A], isSelected func(id string) bool) error
	// Examine judges the answers.
	Examine func(answers []A) (*Certification, error)

	once   sync.Once
	judged *judgedRun
	err    error
}

// judgedRun is what follows from a record as a whole.
type judgedRun struct {
	*Certification
	*circumstances
	answerCount int
}

// challengeCase is the case of the challenge that a run answers.
var challengeCase = product.NewCase("challenge", "answered", scenarios.Core, "challenge")

// WithChallenge adds the case of the challenge, if there is one.
func (t *Trial[A]) WithChallenge() *Trial[A] {
	if t.Challenge != nil {
		t.Planned = append(t.Planned, challengeCase)
	}
	return t
}

// Cases returns all cases.
func (t *Trial[A]) Cases() []product.Case { return t.Planned }

// Select leaves out cases. It keeps the case of the challenge, which is about the whole run.
func (t *Trial[A]) Select(leaveOut func(product.Case) string) {
	for i, c := range t.Planned {
		if c.NotRun != nil || c.ID == challengeCase.ID {
			continue
		}
		if why := leaveOut(c); why != "" {
			t.Planned[i].NotRun = &product.NotRun{Cause: reports.CauseUser, Why: why}
		}
	}
}

// isSelected reports whether a case is run.
func (t *Trial[A]) isSelected(id string) bool {
	return slices.ContainsFunc(t.Planned, func(c product.Case) bool { return c.ID == id && c.NotRun == nil })
}

// Run asks questions and records the answers.
func (t *Trial[A]) Run(ctx context.Context, log *record.Log, o product.Observer) error {
	r := NewRunner[A](func(step string, n int) {
		if n == 0 {
			o.Say(step)
			return
		}
		o.Say(fmt.Sprintf("%s: %s", step, reports.Plural(n, "review")))
	})
	steps := &stepRecorder[A]{log: log}
	r.Record = steps.record
	r.Recorded = func() ([]A, error) { return readAnswers[A](log.View()) }
	run := circumstances{Suite: t.Suite, Began: truncateToSeconds(time.Now())}
	err := t.Ask(ctx, r, t.isSelected)
	if err == nil {
		err = r.err
	}
	isInterrupted := ctx.Err() != nil
	if err != nil && !isInterrupted {
		if usage.Is(err) || steps.pieces == 0 {
			return err
		}
		run.Problem = err.Error()
	}
	run.Ended, run.Stopped = truncateToSeconds(time.Now()), r.Stopped()
	if t.Webhook != nil {
		run.Certificates = t.Webhook.Certificates()
	}
	if err := log.Append(circumstancesKey, run); err != nil {
		return err
	}
	for _, c := range t.Planned {
		if c.NotRun == nil && !isInterrupted {
			o.Done(c.ID)
		}
	}
	return nil
}

func truncateToSeconds(at time.Time) time.Time { return at.UTC().Truncate(time.Second) }

// judgeAll judges the record as a whole, once.
func (t *Trial[A]) judgeAll(view record.View) (*judgedRun, error) {
	t.once.Do(func() { t.judged, t.err = t.judgeRecord(view) })
	return t.judged, t.err
}

// judgeRecord judges the answers of a record, if they are to the questions of this suite.
func (t *Trial[A]) judgeRecord(view record.View) (*judgedRun, error) {
	run, err := record.Read[circumstances](view, circumstancesKey)
	if err != nil {
		return nil, err
	}
	if run.Suite != t.Suite {
		return nil, fmt.Errorf(
			"the answers are to suite %.12s, and this version of authzconf asks %.12s under seed %d: the version that asked has to judge them",
			run.Suite,
			t.Suite,
			t.Seed,
		)
	}
	answers, err := readAnswers[A](view)
	if err != nil {
		return nil, err
	}
	c, err := t.Examine(answers)
	if err != nil {
		return nil, err
	}
	return &judgedRun{Certification: c, circumstances: run, answerCount: len(answers)}, nil
}

// Judge returns the verdict on a case.
func (t *Trial[A]) Judge(id string, view record.View) reports.Result {
	run, err := t.judgeAll(view)
	if err != nil {
		return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameHarness, Reason: err.Error()}
	}
	if id == challengeCase.ID {
		return t.judgeChallenge(run)
	}
	result := run.Cases[id].result(run.Stopped)
	isJudged := result.Verdict != verdicts.Passed && result.Verdict != verdicts.NotSupported
	if isJudged {
		level, _, _ := strings.Cut(id, "/")
		result.Evidence = evidenceFiles(view, level)
	}
	return result
}

// judgeChallenge compares the run with the challenge that it answers.
func (t *Trial[A]) judgeChallenge(run *judgedRun) reports.Result {
	differences := t.Challenge.compare(t.Seed, run.circumstances)
	if len(differences) == 0 {
		return reports.Result{Verdict: verdicts.Passed, Judged: 1}
	}
	return reports.Result{Verdict: verdicts.Failed, Judged: 1, Reason: differences[0], Details: differences}
}

// result returns the verdict on a part of a level. stopped says why nothing more was asked, if the authorizer was the
// reason.
func (c CaseResult) result(stopped string) reports.Result {
	if c.Inapplicable != "" {
		return reports.Result{Verdict: verdicts.NotSupported, Reason: c.Inapplicable}
	}
	r := reports.Result{Verdict: verdicts.Passed, Judged: c.Answered}
	for _, f := range c.Findings {
		r.Details = append(r.Details, f.lines()...)
		if f.Advice {
			continue
		}
		r.Differences = append(r.Differences, f.difference())
		if r.Verdict == verdicts.Passed {
			r.Verdict, r.Blame, r.Reason = verdicts.Failed, f.Blame, fmt.Sprintf("%s: %s", f.Reason, reports.Plural(f.Count, "answer"))
		}
	}
	if len(r.Differences) > 1 {
		r.Reason += fmt.Sprintf(", and %s more", reports.Plural(len(r.Differences)-1, "finding"))
	}
	isIncomplete := c.Planned == 0 || c.Answered < c.Planned
	switch {
	case r.Verdict == verdicts.Failed:
	case isIncomplete && stopped != "":
		r.Verdict, r.Reason = verdicts.Failed, fmt.Sprintf("%s: %s", c.describeAnswered(), stopped)
	case c.Inconclusive != "":
		r.Verdict, r.Blame, r.Reason = verdicts.Invalid, verdicts.BlameEnvironment, c.Inconclusive
	case isIncomplete:
		r.Verdict, r.Blame, r.Reason = verdicts.Invalid, verdicts.BlameEnvironment, c.describeAnswered()
	}
	return r
}

// describeAnswered returns how much of a part was answered, in words.
func (c CaseResult) describeAnswered() string {
	if c.Planned == 0 {
		return "nothing was answered"
	}
	return fmt.Sprintf("%d of %s were answered", c.Answered, reports.Plural(c.Planned, "question"))
}
