package explore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// lane is one control plane with the cases that are sent to it: one in of, from the index on.
type lane struct {
	*explorer
	index, of int
	asked     reports.Found // the control plane as the cell asks for it
	hosts     [2]*host      // the API server, and if it was needed the one beside it
	beside    map[string]reports.Found
	grants    atomic.Pointer[[]scenarios.Grant] // in force for the case that is being sent
	runs      int                               // of single cases, for their names
	// run runs a case alone, or reads what was seen of it when it was.
	run func(ctx context.Context, p *prepared, objects bool) (*verdicts.Evidence, error)

	batch    string // the name of the batch that was judged last
	seen     *seen  // and what was seen of it, to which single cases are added
	suspects []*prepared
	found    CellReport
	told     CellReport // what was found when progress was told last
	first    time.Time  // when its first request was sent
}

func (x *explorer) newLane(index, of int) *lane {
	c := x.cell.Cell
	l := &lane{explorer: x, index: index, of: of, asked: x.cell.Wanted(), beside: map[string]reports.Found{}, found: CellReport{Name: c.Name, Kubernetes: c.Kubernetes, Gate: c.Gate, Lanes: of}}
	l.run = l.runAlone
	return l
}

// start brings the control plane up, and tells whether it is. An error is the user's to mend.
func (l *lane) start(ctx context.Context) (up bool, err error) {
	begun := time.Now()
	if l.hosts[0], err = start(ctx, l.options(place{})); err != nil {
		if _, usage := errors.AsType[*local.UsageError](err); usage {
			return false, err
		}
		l.broke(fmt.Errorf("did not start: %w", err))
		return false, nil
	}
	l.say("%s ready in %.1f s, gate %s", l.hosts[0].target.Witness.GitVersion, time.Since(begun).Seconds(), l.asked.Facts.Gate)
	return true, nil
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
	for _, h := range slices.Backward(l.hosts[:]) { // the first one has the etcd
		if h != nil {
			if err := h.target.Stop(); err != nil {
				l.broke(fmt.Errorf("stopping the target: %w", err))
			}
		}
	}
}

// broke notes why a cell is not to be believed; what ends because it was interrupted is not broken.
func (l *lane) broke(err error) {
	if err == nil || errors.Is(err, context.Canceled) && (l.hosts[0] == nil || l.hosts[0].target.Err() == nil) {
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
		judging.Wait() // of the batch before, which is kept whatever became of this one
		if err = errors.Join(err, l.confirmAll(ctx)); err != nil {
			return err
		}
		if l.full() {
			return nil
		}
		judging.Go(func() {
			l.guard(func() {
				seen, err := l.collect(ctx, b)
				if err != nil {
					l.broke(err)
					return
				}
				l.batch = b.name
				l.judge(b, seen)
			})
		})
	}
	judging.Wait()
	return errors.Join(l.confirmAll(ctx), unprepared)
}

// full ends a lane before its next batch if there were too many disagreements.
func (l *lane) full() bool {
	if l.found.Stopped = len(l.found.Disagreements) >= maxDisagreements; l.found.Stopped {
		l.say("stopped after %d disagreements", maxDisagreements)
	}
	return l.found.Stopped
}

func (l *lane) prepareAll(ctx context.Context, ready chan<- *batch) error {
	for b, err := range l.all() {
		if err == nil {
			err = l.provision(ctx, b)
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

// all are the batches of the lane. Every lane makes all cases, and takes its own.
func (l *lane) all() iter.Seq2[*batch, error] {
	return func(yield func(*batch, error) bool) {
		g := cases.New(l.o.Seed)
		for made, n := 0, 0; made < l.o.Cases; n++ {
			var own []cases.Case
			for ; made < l.o.Cases && len(own) < batchSize; made++ {
				if c := g.Next(); made%l.of == l.index {
					own = append(own, c)
				}
			}
			if len(own) == 0 { // the last cases are other lanes'
				return
			}
			for _, special := range specialsOf(n) {
				b := &batch{name: fmt.Sprintf("%s-%04d%s", l.name(), n, special), special: special}
				b.pairs, b.allPairs = g.Pairs()
				if !yield(b, l.prepareBatch(b, own)) {
					return
				}
			}
		}
	}
}

// confirmAll runs again, alone, what was seen to differ. All that was seen of the batch is kept then.
func (l *lane) confirmAll(ctx context.Context) (err error) {
	list := l.suspects
	l.suspects = nil
	for _, p := range list {
		if len(l.found.Disagreements) >= maxDisagreements {
			break
		}
		if err = l.confirm(ctx, p); err != nil {
			break
		}
	}
	if l.seen != nil && l.pieces != nil {
		err = errors.Join(err, reports.KeepRedacted(l.pieces, l.batch, l.seen))
	}
	l.seen = nil
	return err
}

func failed(r verdicts.Result) bool { return r.Verdict != verdicts.Passed }
