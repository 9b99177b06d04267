package explore

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// Run implements product.Plan.
func (p *plan) Run(ctx context.Context, log *record.Log, events product.Observer) error {
	for _, c := range p.cells {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Execute records the interruption, and the cells that are left have no evidence
		}
		x := &cellRun{cell: c, log: log, events: events}
		if err := x.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.options.Cell.Name, err)
		}
	}
	return nil
}

// cellRun explores a cell.
type cellRun struct {
	*cell
	log    *record.Log
	events product.Observer

	mu  sync.Mutex // over sum
	sum tally      // what all sequences have found
}

func (x *cellRun) run(ctx context.Context) error {
	errs := make([]error, len(x.sequences))
	var ready, ended sync.WaitGroup
	for i, s := range x.sequences {
		refs := slices.DeleteFunc(s.batches(), func(ref batchRef) bool { return !x.plan.runs(ref) })
		if len(refs) == 0 {
			continue
		}
		r := newSequenceRun(x, s, refs)
		ready.Add(1)
		ended.Go(func() {
			isUp := false
			r.guard(func() { isUp, errs[i] = r.start(ctx) })
			ready.Done()
			ready.Wait() // starting a control plane takes the time of those that run
			if isUp {
				r.guard(func() { r.addProblem(r.sendBatches(ctx)) })
			}
			r.stop()
			errs[i] = errors.Join(errs[i], x.log.Append(s.key(), r.evidence()))
		})
	}
	ended.Wait()
	if i := slices.IndexFunc(errs, usage.Is); i >= 0 {
		return errs[i] // all control planes of the cell say the same
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if x.sum.Cases > 0 {
		x.say("%s", x.sum.line())
	}
	return nil
}

// add adds what came out of a batch, and shows how far the cell is.
func (x *cellRun) add(r *batchResult) {
	x.mu.Lock()
	x.sum = x.sum.add(r.tally)
	sum := x.sum
	x.mu.Unlock()
	x.events.Status(fmt.Sprintf("%s: %d/%d cases, %.0f cases/s, %d disagreements",
		x.options.Cell.Name, sum.Cases, x.plan.o.Cases, sum.perSecond(), sum.Disagreements))
}

func (x *cellRun) say(format string, args ...any) {
	x.events.Say(x.options.Cell.Name + ": " + fmt.Sprintf(format, args...))
}

// sequenceRun sends a sequence, and judges each batch to know which cases have to be run alone.
type sequenceRun struct {
	*cellRun
	sender
	refs       []batchRef
	prepares   *source
	assertions assertions
	// pending is the batch that was sent last, until what has to be run alone was.
	pending       *batchJudge
	disagreements int
	stopped       bool

	problemsMu sync.Mutex
	problems   []string
}

func newSequenceRun(x *cellRun, s *sequence, refs []batchRef) *sequenceRun {
	r := &sequenceRun{
		cellRun:    x,
		sender:     sender{sequence: s},
		refs:       refs,
		prepares:   &source{sequence: s},
		assertions: assertions{auditIDs: map[string]string{}},
	}
	r.base, r.others = x.options, map[string]reports.FoundTarget{}
	return r
}

func (r *sequenceRun) start(ctx context.Context) (isUp bool, err error) {
	begun := time.Now()
	if r.hosts[0], err = startHost(ctx, r.optionsAt(place{})); err != nil {
		if usage.Is(err) {
			return false, err
		}
		r.addProblem(fmt.Errorf("did not start: %w", err))
		return false, nil
	}
	target := r.hosts[0].target
	r.say("%s ready in %.1f s, gate %s", target.Witness.GitVersion, time.Since(begun).Seconds(), r.askedTarget.Facts.Gate)
	if err := server.CheckTarget(target.FoundTarget(), r.askedTarget); err != nil {
		r.addProblem(err)
		return false, nil
	}
	return true, nil
}

// evidence returns what is known of the sequence as a whole.
func (r *sequenceRun) evidence() *sequenceEvidence {
	e := &sequenceEvidence{Others: r.others, Problems: r.problems, Stopped: r.stopped}
	if r.hosts[0] != nil {
		found := r.hosts[0].target.FoundTarget()
		e.Target = &found
	}
	return e
}

// guard keeps a panic from ending the process, and leaving servers behind.
func (r *sequenceRun) guard(do func()) {
	defer func() {
		if p := recover(); p != nil {
			r.addProblem(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	do()
}

func (r *sequenceRun) stop() {
	for _, h := range slices.Backward(r.hosts[:]) { // the first one has the etcd
		if h != nil {
			if err := h.target.Stop(); err != nil {
				r.addProblem(fmt.Errorf("stopping the target: %w", err))
			}
		}
	}
}

// addProblem keeps what broke. That the user interrupted the run is not a problem of its own.
func (r *sequenceRun) addProblem(err error) {
	if err == nil {
		return
	}
	isTargetUp := r.hosts[0] == nil || r.hosts[0].target.Err() == nil
	if errors.Is(err, context.Canceled) && isTargetUp {
		return
	}
	r.problemsMu.Lock()
	r.problems = append(r.problems, err.Error())
	r.problemsMu.Unlock()
	r.say("broke: %v", err)
}

// sendBatches sends one batch while the next is prepared and the one before is judged.
func (r *sequenceRun) sendBatches(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	ready := make(chan *batch)
	var preparing, judging sync.WaitGroup
	var unprepared error
	preparing.Go(func() {
		defer close(ready)
		r.guard(func() { unprepared = r.prepareAll(ctx, ready) })
	})
	defer preparing.Wait() // after cancel has ended it
	defer cancel()
	defer judging.Wait()
	for b := range ready {
		err := r.send(ctx, b)
		judging.Wait() // of the batch before, which is kept whatever became of this one
		if err = errors.Join(err, r.finishBatch(ctx)); err != nil {
			return err
		}
		if r.stopped {
			return nil
		}
		judging.Go(func() { r.guard(func() { r.addProblem(r.judge(ctx, b)) }) })
	}
	judging.Wait()
	return errors.Join(r.finishBatch(ctx), unprepared)
}

func (r *sequenceRun) prepareAll(ctx context.Context, ready chan<- *batch) error {
	for _, ref := range r.refs {
		b, err := r.prepares.batch(ref)
		if err == nil {
			err = r.provision(ctx, b)
		}
		if err != nil {
			return err
		}
		select {
		case ready <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// judge judges a batch that was sent.
func (r *sequenceRun) judge(ctx context.Context, b *batch) error {
	evidence, err := r.collect(ctx, b)
	if err != nil {
		return err
	}
	for _, e := range evidence.Cases {
		if err := r.assertions.check(e); err != nil {
			return err
		}
	}
	j := newBatchJudge(r.sequence, b, evidence)
	j.say = r.say
	j.runAlone = func(ctx context.Context, p *preparedCase, objects bool) (*verdicts.Evidence, error) {
		e, err := r.sendAlone(ctx, p, objects)
		if err == nil {
			e, err = redactEvidence(e)
		}
		if err != nil {
			return nil, err
		}
		evidence.Alone = append(evidence.Alone, e)
		return e, r.assertions.check(e)
	}
	j.sendAgain = func(ctx context.Context, repetition *batch) ([]*verdicts.Evidence, error) {
		if err := r.send(ctx, repetition); err != nil {
			return nil, err
		}
		evidence, err := r.collect(ctx, repetition)
		if err != nil {
			return nil, err
		}
		evidence.Again = evidence.Cases
		return evidence.Again, nil
	}
	r.pending = j
	j.broken = j.judgeCases()
	return j.broken
}

// finishBatch runs again, alone, what was seen to differ in the batch that was judged last, and records all that was seen
// of it.
func (r *sequenceRun) finishBatch(ctx context.Context) error {
	j := r.pending
	r.pending = nil
	if j == nil {
		return nil
	}
	err := j.broken
	if err == nil {
		err = j.confirmAll(ctx)
	}
	if recording := r.log.Append(j.batch.ref.id(), j.evidence); recording != nil {
		return errors.Join(err, recording)
	}
	if err == nil {
		r.plan.remember(j.batch.ref, j.out)
		err = r.recordScenarios(j.out)
	}
	if j.broken != nil {
		err = nil // It is a known problem.
	}
	r.disagreements += j.out.Disagreements
	r.stopped = r.disagreements >= maxDisagreements
	if r.stopped {
		r.say("stopped after %d disagreements", r.disagreements)
	}
	r.add(j.out)
	r.events.Done(j.batch.ref.id())
	return err
}

// recordScenarios records a scenario file for each disagreement.
func (r *sequenceRun) recordScenarios(out *batchResult) error {
	for _, d := range out.disagreements {
		if err := r.log.AppendFile(d.file, []byte(d.scenario)); err != nil {
			return err
		}
	}
	return nil
}
