package certify

import (
	"context"
	"fmt"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// silentPauses returns the pauses of direct mode, in which nothing is asked.
func silentPauses() []time.Duration {
	return []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond}
}

// These are the questions of one round of silence. What is allowed is asked before the silence. After it, the first
// question is one that must be refused.
const (
	beforePause = iota
	firstAfter
	secondAfter
	thirdAfter
	questionsPerRound
)

// silenceQuestions returns the questions of all rounds. Each silence is ended once on a connection that was kept open,
// and once on a new one.
func (b *Plan) silenceQuestions() []Question { return b.silenceRounds(2 * len(silentPauses())) }

// silenceRounds returns the questions of the given number of rounds.
func (b *Plan) silenceRounds(rounds int) (out []Question) {
	paired := func(expect scenarios.Decision) []Question {
		return seq.Filter(b.all, func(v Question) bool { return v.Paired && v.Form == "" && v.Expect == expect })
	}
	allowed, refused := paired(scenarios.Allow), paired(scenarios.NoOpinion)
	if len(allowed) == 0 || len(refused) == 0 {
		return nil
	}
	for i := range rounds {
		round := [questionsPerRound]Question{
			beforePause: scatteredQuestion(allowed, i),
			firstAfter:  scatteredQuestion(refused, i),
			secondAfter: scatteredQuestion(refused, i+rounds),
			thirdAfter:  scatteredQuestion(allowed, i+rounds),
		}
		out = append(out, round[:]...)
	}
	return out
}

// askInSilence asks after silences of all lengths. It reports whether it makes sense to go on.
func (r *runner) askInSilence(ctx context.Context, questions []Question) bool {
	r.Runner.Progress(silenceCheck, len(questions))
	openClient, err := r.newClient(false)
	if err != nil {
		return false
	}
	defer openClient.close()
	for i, idle := range silentPauses() {
		for j, isNew := range []bool{false, true} {
			at := (2*i + j) * questionsPerRound
			if at >= len(questions) {
				return true
			}
			answers := r.askAroundPause(ctx, silenceCheck, openClient, idle, isNew, questions[at:at+questionsPerRound])
			r.Answers = append(r.Answers, answers...)
			if len(answers) < questionsPerRound || r.HasEnded() {
				return false
			}
		}
	}
	return true
}

// askAroundPause asks one question, then nothing for a while, and then three questions. The first of the three must be
// refused. It is asked on a connection that was kept open, or on a new one; the second is asked on the other of the
// two.
func (r *runner) askAroundPause(
	ctx context.Context,
	check string,
	openClient *client,
	idle time.Duration,
	isNew bool,
	round []Question,
) (answers []Answer) {
	freshClient, err := r.newClient(false)
	if err != nil {
		return nil
	}
	defer freshClient.close()
	clients := [questionsPerRound]*client{openClient, openClient, freshClient, openClient}
	if isNew {
		clients[firstAfter], clients[secondAfter] = freshClient, openClient
	}
	for i, q := range round {
		if i == firstAfter && !clusters.Pause(ctx, idle) {
			return nil
		}
		a := clients[i].ask(ctx, check, q)
		if ctx.Err() != nil {
			return nil
		}
		if i >= firstAfter {
			a.IdleMs = idle.Milliseconds()
		}
		answers = append(answers, a)
		r.Continue(a.undecidedReason())
	}
	return answers
}

// describePause returns what has to be added to a finding about an answer that came after a silence.
func describePause(a Answer) string {
	if a.IdleMs == 0 {
		return ""
	}
	return fmt.Sprintf("\n  after %d ms in which nothing was asked", a.IdleMs)
}
