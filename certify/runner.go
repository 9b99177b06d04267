package certify

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// maxFaults is how many faults in a row end a run. A server that hangs would otherwise take hours.
	maxFaults = 5
	// maxUseless is how many answers in a row that say neither yes nor no end a run. The rest would be no better.
	maxUseless = 500
)

// Runner has the state of a run while it asks.
type Runner[A any] struct {
	Answers []A
	// Progress is called before each step.
	Progress func(step string, reviews int)
	// Record, if it is given, is called with the answers of each step when the step is over. These answers are then
	// removed from Answers.
	Record func(step string, durations time.Duration, answers []A) error
	// Recorded returns all answers that Record was called with. It has to be given if Record is.
	Recorded func() ([]A, error)

	durations map[string]time.Duration
	mu        sync.Mutex
	// faults counts the faults in a row, and undecided the answers in a row that decide nothing.
	faults    int
	undecided int
	// stopped says why the run was ended early.
	stopped string
	err     error
}

// Run is what was seen in a run, and what follows from it.
type Run[A any] struct {
	*Certification
	Answers []A
	// Durations is how long each step took.
	Durations map[string]time.Duration
}

// NewRunner returns a runner. Progress, if it is given, is called before each step.
func NewRunner[A any](progress func(step string, reviews int)) *Runner[A] {
	if progress == nil {
		progress = func(string, int) {}
	}
	return &Runner[A]{Progress: progress, durations: map[string]time.Duration{}}
}

// Perform asks all questions and judges the answers. An error is about the harness; what is wrong with the authorizer
// is in the findings. Progress, if it is given, is called before each step.
func Perform[A any](
	ctx context.Context,
	judge func([]A) (*Certification, error),
	progress func(step string, reviews int),
	ask func(context.Context, *Runner[A]) error,
) (*Run[A], error) {
	r := NewRunner[A](progress)
	if err := ask(ctx, r); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := judge(r.Answers)
	if err != nil {
		return nil, err
	}
	return &Run[A]{Certification: c, Answers: r.Answers, Durations: r.durations}, nil
}

// Step carries out one step of the run, measures how long it takes, and records its answers.
func (r *Runner[A]) Step(name string, do func()) {
	before, began := len(r.Answers), time.Now()
	do()
	took := time.Since(began)
	r.durations[name] += took
	if r.Record == nil || len(r.Answers) == before {
		return
	}
	if err := r.Record(name, took, r.Answers[before:]); err != nil && r.err == nil {
		r.err = err
	}
	r.Answers = slices.Clip(r.Answers[:before])
}

// AllAnswers returns all answers of the run so far.
func (r *Runner[A]) AllAnswers() ([]A, error) {
	if r.Recorded == nil || r.err != nil {
		return r.Answers, r.err
	}
	return r.Recorded()
}

// runEndingFaults are faults that end a run if a few of them come in a row.
var runEndingFaults = []string{"does-not-answer-in-time", "closes-the-connection", faultTooLarge}

// Continue reports whether it makes sense to go on after an answer. fault is what went wrong on its way, or "".
func (r *Runner[A]) Continue(fault string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.undecided++; fault == "" {
		r.undecided = 0
	}
	if slices.Contains(unreachableFaults, fault) {
		r.stop("the webhook cannot be asked: " + fault)
		return false
	}
	if r.faults++; !slices.Contains(runEndingFaults, fault) {
		r.faults = 0
	}
	if r.faults >= maxFaults {
		r.stop(fmt.Sprintf("%d faults in a row: %s", maxFaults, fault))
	}
	if r.undecided >= maxUseless {
		r.stop(fmt.Sprintf("%d answers in a row that decide nothing: %s", maxUseless, fault))
	}
	return r.stopped == ""
}

// stop ends the run for a reason, unless it has ended already.
func (r *Runner[A]) stop(why string) {
	if r.stopped == "" {
		r.stopped = why
	}
}

// End ends the run for a reason. Nothing more is asked.
func (r *Runner[A]) End(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop(why)
}

// HasEnded reports whether the run has ended, so that nothing more is asked.
func (r *Runner[A]) HasEnded() bool { return r.Stopped() != "" }

// Stopped returns why the run was ended, or "" if it goes on.
func (r *Runner[A]) Stopped() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped
}
