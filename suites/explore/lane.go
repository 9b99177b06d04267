package explore

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/verdicts"
)

// lane is one control plane with the cases that are sent to it: one in of, from the index on.
type lane struct {
	*explorer
	index, of int
	target    *target.Target
	replay    *replay.Replayer
	sender    *sender
	grants    grantList
	runs      int // of single cases, for their names

	suspects []*prepared
	found    CellReport
}

// start brings the control plane up, and tells whether it is. An error is the user's to mend.
func (l *lane) start(ctx context.Context) (up bool, err error) {
	o := l.cell
	o.Front = l.grants.answer
	o.Recorder.HTTP1 = true
	// Requests come one at a time, so memory that is collected late costs little.
	o.KubeAPIServerEnv = append([]string{"GOGC=400"}, o.KubeAPIServerEnv...)
	begun := time.Now()
	if l.target, err = target.Start(ctx, o); err != nil {
		if _, usage := errors.AsType[*local.UsageError](err); usage {
			return false, err
		}
		l.broke(fmt.Errorf("did not start: %w", err))
		return false, nil
	}
	if m := l.target.Witness.Mismatches; len(m) > 0 {
		l.broke(fmt.Errorf("the target is not what was asked for: %s", m[0]))
		return false, nil
	}
	l.say("%s ready in %.1f s, gate %s", l.target.Witness.GitVersion, time.Since(begun).Seconds(), l.target.Facts.Gate)
	if l.replay, err = replay.New(l.target); err == nil {
		l.sender, err = newSender(l.target)
	}
	l.broke(err)
	return err == nil, nil
}

// guard keeps a panic from ending the process, and leaving servers behind.
func (l *lane) guard(do func()) {
	defer func() {
		if p := recover(); p != nil {
			l.broke(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	do()
}

func (l *lane) stop() {
	if l.target == nil {
		return
	}
	if err := l.target.Stop(); err != nil {
		l.broke(fmt.Errorf("stopping the target: %w", err))
	}
}

// broke notes why a cell is not to be believed; what ends because it was interrupted is not broken.
func (l *lane) broke(err error) {
	if err == nil || errors.Is(err, context.Canceled) && (l.target == nil || l.target.Err() == nil) {
		return
	}
	l.mu.Lock()
	l.found.Problems = append(l.found.Problems, err.Error())
	l.mu.Unlock()
	l.say("broke: %v", err)
}

// batches sends one batch while the next is prepared and the one before is judged.
func (l *lane) batches(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	ready := make(chan *batch)
	var preparing, judging sync.WaitGroup
	var unprepared error
	preparing.Go(func() {
		defer close(ready)
		l.guard(func() { unprepared = l.prepareAll(ctx, ready) })
	})
	defer preparing.Wait() // after cancel has ended it
	defer cancel()
	defer judging.Wait()
	for b := range ready {
		err := l.send(ctx, b)
		judging.Wait() // of the batch before
		if err != nil {
			return err
		}
		if err := l.confirmAll(ctx); err != nil {
			return err
		}
		if len(l.found.Disagreements) >= maxDisagreements {
			l.say("stopped after %d disagreements", maxDisagreements)
			l.found.Stopped = true
			return nil
		}
		judging.Go(func() { l.guard(func() { l.judge(ctx, b) }) })
	}
	judging.Wait()
	if err := l.confirmAll(ctx); err != nil {
		return err
	}
	return unprepared
}

// prepareAll makes the batches. Every lane makes all cases, and takes its own.
func (l *lane) prepareAll(ctx context.Context, ready chan<- *batch) error {
	g := cases.New(l.o.Seed)
	for made := 0; made < l.o.Cases; {
		b := &batch{}
		for ; made < l.o.Cases && len(b.cases) < batchSize; made++ {
			c := g.Next()
			if made%l.of != l.index {
				continue
			}
			p, err := l.prepare(c)
			if err != nil {
				return err
			}
			b.cases = append(b.cases, p)
		}
		b.pairs, b.allPairs = g.Pairs()
		if err := l.provision(ctx, b); err != nil {
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

// confirmAll runs again, alone, what was seen to differ.
func (l *lane) confirmAll(ctx context.Context) error {
	list := l.suspects
	l.suspects = nil
	for _, p := range list {
		if len(l.found.Disagreements) >= maxDisagreements {
			return nil
		}
		if err := l.confirm(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func failed(r verdicts.Result) bool { return r.Verdict != verdicts.Passed }
