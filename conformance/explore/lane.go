package explore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/internal/usage"
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

func (l *lane) start(ctx context.Context) (up bool, err error) {
	begun := time.Now()
	if l.hosts[0], err = start(ctx, l.options(place{})); err != nil {
		if usage.Is(err) {
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
				l.broke(l.judge(b, seen))
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

// shrinkLimit bounds how many runs are made to find the smallest case.
const shrinkLimit = 400

// confirm runs a case again, alone and under fresh names, and reports it if it differs again.
func (l *lane) confirm(ctx context.Context, p *prepared) error {
	again, err := l.alone(ctx, p, p.scenario, p.objects)
	if err != nil {
		return err
	}
	if again.Verdict == verdicts.Invalid {
		return fmt.Errorf("case %d, run alone: %s", p.number, again.Reason)
	}
	if !failed(again) {
		if failed(p.result) {
			l.found.NotConfirmed++
			l.say("case %d differed once, and not when it was run again: %s", p.number, p.result.Reason)
		}
		return nil
	}
	l.say("case %d: %s", p.number, again.Reason)
	small, result, err := l.shrink(ctx, p, again)
	if err != nil {
		return err
	}
	d := Disagreement{Case: p.number, Choice: p.choice.String(), Reason: result.Reason, Differences: result.Differences}
	if d.Scenario, err = l.print(small, p, result); err != nil {
		return err
	}
	if d.OverRBAC = p.objects; !p.objects && cases.IsUnique(small) {
		over, err := l.alone(ctx, p, small, true)
		if err != nil {
			return err
		}
		d.OverRBAC = failed(over)
	}
	l.found.Disagreements = append(l.found.Disagreements, d)
	l.o.Events(Event{Text: fmt.Sprintf("%s: case %d, made small:\n%s", l.found.Name, p.number, d.Scenario)})
	return nil
}

func (l *lane) shrink(ctx context.Context, p *prepared, r verdicts.Result) (_ *scenarios.Scenario, _ verdicts.Result, broken error) {
	small := cases.Shrink(p.scenario, shrinkLimit, func(s *scenarios.Scenario) bool {
		if broken != nil || p.objects && !canBeObjects(s) {
			return false
		}
		result, err := l.alone(ctx, p, s, p.objects)
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
	small, _, err := l.expect(small, p.asked.Facts)
	return small, r, err
}

// alone runs a scenario by itself, with metrics read for every request. objects
// says whether its grants are RBAC objects. The server is one as it was of which it is made.
func (l *lane) alone(ctx context.Context, of *prepared, s *scenarios.Scenario, objects bool) (r verdicts.Result, err error) {
	if err := ctx.Err(); err != nil {
		return r, err
	}
	l.runs++
	p := &prepared{at: of.at, asked: of.asked}
	if p.scenario, p.played, err = l.expect(s, p.asked.Facts); err != nil {
		return r, err
	}
	p.bind(scenarios.Suffix(l.o.Seed, l.found.Name, "alone", strconv.Itoa(l.runs)))
	ev, err := l.run(ctx, p, objects)
	if err != nil {
		return r, err
	}
	r, _, err = l.verdict(p, ev)
	return r, err
}

func (l *lane) runAlone(ctx context.Context, p *prepared, objects bool) (ev *verdicts.Evidence, err error) {
	h, err := l.hostFor(ctx, p.at)
	switch {
	case err != nil:
	case objects:
		ev = h.replay.Replay(ctx, p.scenario, p.suffix)
		err = errors.Join(ctx.Err(), h.target.Err())
	default:
		ev, err = l.sendAlone(ctx, h, p)
	}
	if err == nil {
		ev, err = reports.RedactEvidence(ev)
	}
	if err == nil {
		l.seen.Alone = append(l.seen.Alone, ev)
	}
	return ev, err
}

// sendAlone sends a scenario whose grants the recorder answers.
func (l *lane) sendAlone(ctx context.Context, h *host, p *prepared) (*verdicts.Evidence, error) {
	ev := l.emptyEvidence(p)
	defer l.grants.Store(nil)
	defer hangUp([]*prepared{p})
	for i, st := range p.bound.Steps {
		if st.Wait > 0 {
			hangUp([]*prepared{p})
			clusters.Pause(ctx, time.Duration(st.Wait)) // who interrupts it interrupts the next request
		}
		if st.Request == nil {
			continue
		}
		l.grantsOf(p.bound, i)
		p.sent = append(p.sent, sent{step: i})
		s := &p.sent[len(p.sent)-1]
		if err := h.target.Observe(ctx, &s.observation, func() (err error) {
			s.observation, s.hangUp, err = l.request(ctx, h, h.target.Host(), p.bound, i)
			return err
		}); err != nil {
			return nil, err
		}
	}
	hangUp([]*prepared{p})
	for _, s := range p.sent {
		if s.observation.Response.Held != "" {
			if err := h.target.AuditEarlier(ctx, &s.observation); err != nil {
				return nil, err
			}
		}
		ev.Steps = append(ev.Steps, s.observation)
	}
	return ev, nil
}

// print renders a case as a scenario file, with what a file needs beside what was found.
func (l *lane) print(s *scenarios.Scenario, p *prepared, r verdicts.Result) (string, error) {
	comments := []string{
		fmt.Sprintf("Kubernetes %s, gate %s: the model and the server disagree.", l.found.Kubernetes, p.asked.Facts.Gate),
		strings.Join(strings.Fields(r.Reason), " "), "The expectations are the model's.",
	}
	var denied []int
	for i, st := range s.Steps {
		if x := st.Expect; x != nil && x.Outcome != scenarios.Allowed && x.Outcome != scenarios.ServerError {
			denied = append(denied, i)
		}
	}
	if len(denied) > 0 {
		paired, ok := cases.AddTwins(s, denied)
		if !ok {
			comments = append(comments, "A twin is missing: a scenario that differs in one respect and is allowed.")
		}
		var err error
		if s, _, err = l.expect(paired, p.asked.Facts); err != nil {
			return "", err
		}
	}
	binary, err := version.ParseGeneric(p.asked.Facts.Binary) // scenarios name minor versions
	if err != nil {
		return "", err
	}
	s.Requires.Kubernetes, s.Requires.Binary = "", fmt.Sprintf("=%d.%d", binary.Major(), binary.Minor())
	s.Description = fmt.Sprintf("Found by authzconf explore, seed %d, case %d%s.", l.o.Seed, p.number, p.at)
	raw, err := cases.Print(s, comments...)
	return string(raw), err
}

// allow implements recorder.Script with the grants of the case that is being sent; the rest is left to those behind.
func (l *lane) allow(spec authorizationv1.SubjectAccessReviewSpec) recorder.Answer {
	grants := l.grants.Load()
	return recorder.Answer{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: grants != nil && scenarios.Covered(*grants, spec)}}
}

func (l *lane) grantsOf(bound *scenarios.Scenario, step int) {
	grants := bound.GrantsAt(step)
	l.grants.Store(&grants)
}
