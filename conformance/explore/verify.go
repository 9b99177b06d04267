package explore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// seen is the evidence of a batch, and of the single cases that were run because of it.
type seen struct {
	Cases []*verdicts.Evidence `json:"cases"`
	// Arrived is how many reviews arrived meanwhile, those of no case among them.
	Arrived int `json:"arrived"`
	// Metrics are the increases over the whole batch; nil where the target has none.
	Metrics []verdicts.MetricSample `json:"metrics"`
	Alone   []*verdicts.Evidence    `json:"alone,omitempty"`
}

type laneEvidence struct {
	Target *reports.Found `json:"target,omitempty"` // nil where it did not start
	// Beside is what the API server beside it was, by the name of the cell.
	Beside map[string]reports.Found `json:"beside,omitempty"`
	Of     int                      `json:"of"`
	Broken []string                 `json:"broken,omitempty"` // what no evidence of a case shows
}

type ended struct {
	Interrupted bool `json:"interrupted"`
}

const endPiece = "end"

func (l *lane) name() string { return fmt.Sprintf("%s/lane-%d", l.asked.Name, l.index) }

func (l *lane) keep() error {
	e := &laneEvidence{Of: l.of, Broken: l.found.Problems, Beside: l.beside}
	if l.hosts[0] != nil {
		found := l.hosts[0].target.Found()
		e.Target = &found
	}
	_, err := reports.Keep(l.pieces, l.name(), e)
	return err
}

// Judge makes the report again from what was seen: the same cases are generated, and judged by their evidence.
func Judge(o Options, pieces *reports.Pieces) (*Report, error) {
	end, err := reports.Take[ended](pieces, endPiece)
	if err != nil {
		return nil, err
	}
	o.Events = func(Event) {}
	r := &Report{Seed: o.Seed, Cases: o.Cases, Interrupted: end.Interrupted}
	for _, c := range o.Cells {
		x := &explorer{o: o, cell: c}
		if end.Interrupted && !pieces.Has(x.newLane(0, 1).name()) {
			break // it did not get there
		}
		for i, of := 0, 1; i < of; i++ {
			l := x.newLane(i, of)
			e, err := reports.Take[laneEvidence](pieces, l.name())
			if err != nil {
				return nil, err
			}
			if of = e.Of; of < 1 || of > maxLanes {
				return nil, fmt.Errorf("%s: a cell has 1 to %d lanes, not %d", l.name(), maxLanes, of)
			}
			l = x.newLane(i, of)
			x.lanes = append(x.lanes, l)
			if err := l.again(e, pieces, end.Interrupted); err != nil {
				return nil, err
			}
		}
		r.Cells = append(r.Cells, x.report())
	}
	r.conclude()
	return r, nil
}

// again judges all batches of a lane. Only where something broke some may be missing.
func (l *lane) again(e *laneEvidence, pieces *reports.Pieces, interrupted bool) error {
	l.found.Problems = e.Broken
	short := interrupted || len(e.Broken) > 0
	if !short {
		if e.Target == nil {
			return fmt.Errorf("%s: nothing says which control plane it had", l.name())
		}
		if err := server.Hold(*e.Target, l.asked); err != nil {
			return err
		}
	}
	ctx, audits := context.Background(), map[string]string{}
	for b, err := range l.all() {
		if err != nil {
			return err
		}
		if l.full() || short && !pieces.Has(b.name) {
			break
		}
		for _, p := range b.cases {
			if found := e.Beside[p.asked.Name]; !short && p.at.server > 0 {
				if err := server.Hold(found, p.asked); err != nil {
					return err
				}
			}
		}
		s, err := reports.Take[seen](pieces, b.name)
		if err == nil {
			err = l.hold(b, s, audits)
		}
		if err != nil {
			return err
		}
		next := 0
		l.run = func(_ context.Context, p *prepared, _ bool) (*verdicts.Evidence, error) {
			if next == len(s.Alone) {
				return nil, fmt.Errorf("%s: a case was not as predicted, and there is no evidence of it run alone: %s", b.name, p.scenario.ID)
			}
			next++
			return s.Alone[next-1], l.holdCase(p, s.Alone[next-1], p.asked.Facts.Capabilities, audits)
		}
		err = l.judge(b, s)
		if err = errors.Join(err, l.confirmAll(ctx)); err != nil && !short {
			return err
		}
		if next < len(s.Alone) && !short {
			return fmt.Errorf("%s: there is evidence of %s run alone, and no case was to be", b.name, s.Alone[next].Scenario)
		}
	}
	return nil
}

// hold holds the evidence of a batch to its cases.
func (l *lane) hold(b *batch, s *seen, audits map[string]string) error {
	if len(s.Cases) != len(b.cases) {
		return fmt.Errorf("%s: has evidence of %d cases, the command line asks for %d", b.name, len(s.Cases), len(b.cases))
	}
	if counted := slices.ContainsFunc(b.cases, (*prepared).counted); counted != (s.Metrics != nil) {
		return fmt.Errorf("%s: has metrics: %t, and the control plane has them: %t", b.name, s.Metrics != nil, counted)
	}
	for i, p := range b.cases {
		if err := l.holdCase(p, s.Cases[i], withoutMetrics(p.asked.Facts.Capabilities), audits); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return nil
}

// holdCase holds a piece of evidence to the case that it has to be of: what was taken from another one does not fit.
// shown is what the target could show of it.
func (l *lane) holdCase(p *prepared, e *verdicts.Evidence, shown []scenarios.Capability, audits map[string]string) error {
	is, of := *e, *l.emptyEvidence(p)
	is.Steps, is.Problems, is.Started, is.Ended = nil, nil, of.Started, of.Ended
	if of.Capabilities = shown; reports.Change(is, of) != "" {
		return fmt.Errorf("the evidence of %s is not that of this case: %s", p.scenario.ID, reports.Change(is, of))
	}
	var before time.Time
	for i := range e.Steps {
		o := &e.Steps[i]
		id := o.Response.AuditID
		if other := audits[id]; id != "" && other != "" {
			return fmt.Errorf("%s: its audit ID %s is also one of %s", e.Scenario, id, other)
		}
		audits[id] = e.Scenario
		if why := unlike(o, before); why != "" {
			return fmt.Errorf("%s: step %d: %s", e.Scenario, o.Step, why)
		}
		before = o.Answered
	}
	return nil
}

// unlike says how a request was not sent behind the one before, and when its reviews and its audit event have it, or that its
// reviews were not decided as they went on: what a server remembers is a matter of time, and nobody knows what it remembered
// of a request that may have been sent at any.
func unlike(o *verdicts.Observation, before time.Time) string {
	near := func(a, b time.Time) bool { return a.Sub(b).Abs() <= 2*verdicts.ClockTolerance } // the machine may be busy
	if o.Sent.Before(before) || o.Answered.Before(o.Sent) {
		return "it was not sent behind the one before, and answered behind that"
	}
	decided, stray := verdicts.Fold(o.Reviews) // in the order of those at the front; one that went on got no opinion there
	for i, r := range o.Reviews {
		front, went := r.Point == verdicts.Front, false
		if front {
			went, decided = decided[0].Decision == scenarios.NoOpinion, decided[1:]
		}
		known := slices.Contains([]scenarios.Decision{scenarios.Allow, scenarios.NoOpinion}, r.Decision)
		if len(stray) > 0 || front != known || went && r.Decision != scenarios.NoOpinion {
			return fmt.Sprintf("review %d, at %q, was decided %q", i, r.Point, r.Decision)
		}
		if i == 0 && !near(r.At, o.Sent) || r.At.Before(o.Sent.Add(-verdicts.ClockTolerance)) || r.At.After(o.Answered.Add(verdicts.ClockTolerance)) {
			return "the time of a review is not that of the request"
		}
	}
	var e auditv1.Event
	if json.Unmarshal(o.Audit, &e) == nil && (!near(e.RequestReceivedTimestamp.Time, o.Sent) || !near(e.StageTimestamp.Time, o.Answered)) {
		return "the times of its audit event are not those of the request"
	}
	return ""
}

func (l *lane) collect(ctx context.Context, b *batch) (*seen, error) {
	s := &seen{}
	for _, of := range b.seen {
		if of != nil {
			s.Arrived += len(of.Reviews)
			s.Metrics = together(s.Metrics, of.Metrics)
		}
	}
	for _, p := range b.cases {
		ev, err := reports.RedactEvidence(l.seenOf(ctx, p, b))
		if err := errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		s.Cases = append(s.Cases, ev)
		p.sent, p.bound, p.names = nil, nil, nil
	}
	b.seen = [2]*server.Batched{}
	return s, nil
}

// judge judges a batch by its evidence. What is not as predicted becomes a suspect, to be run alone.
func (l *lane) judge(b *batch, s *seen) (err error) {
	l.seen = s
	reviews, unsure := 0, false
	var suspects []*prepared
	counted := counts{}
	for i, p := range b.cases {
		ev := s.Cases[i]
		var undecided int
		if p.result, undecided, err = l.verdict(p, ev); err != nil {
			return err
		}
		l.found.Undecided += undecided
		unsure = unsure || undecided > 0
		if failed(p.result) {
			suspects = append(suspects, p)
		}
		for i := range ev.Steps {
			reviews += len(ev.Steps[i].Reviews)
			if p.counted() {
				counted.add(&ev.Steps[i])
			}
			l.span(&ev.Steps[i])
		}
		for _, played := range p.played {
			counted.attempts(played.Prediction.Attempts)
		}
		l.found.Requests += len(ev.Steps)
		if p.objects {
			l.found.OverRBAC++
		}
	}
	why := ""
	if len(suspects) == 0 {
		if unsure { // nobody knows what the attempts became
			maps.DeleteFunc(counted, func(k string, _ int) bool { return strings.HasPrefix(k, verdicts.AttemptsMetric) })
			attempts := strings.TrimSuffix(verdicts.AttemptsMetric, "_total")
			s = &seen{Arrived: s.Arrived, Metrics: seq.Filter(s.Metrics, func(m verdicts.MetricSample) bool { return !strings.HasPrefix(m.Name, attempts) })}
		}
		why = totals(s, reviews, counted)
	}
	if why != "" {
		// One of them did it; which, only each alone can tell.
		l.say("a batch does not add up: %s; its cases are run alone", why)
		suspects = b.cases
		l.found.Recounts++
	}
	switch b.special {
	case "":
	case beside, balanced:
		l.found.Beside += len(b.walks)
	case flipped:
		l.found.Flipped += len(b.walks)
	default:
		l.found.Special += len(b.walks)
	}
	if b.special != restarted {
		l.found.Cases += len(b.walks)
	}
	l.found.Reviews += reviews
	l.found.Pairs, l.found.AllPairs = b.pairs, b.allPairs
	l.suspects = append(l.suspects, suspects...)
	l.progress(l)
	return nil
}

func (l *lane) span(o *verdicts.Observation) {
	if l.first.IsZero() {
		l.first = o.Sent
	}
	l.found.Seconds = max(l.found.Seconds, o.Answered.Sub(l.first).Seconds())
}

type counts map[string]int

// add counts the impersonation checks that were seen.
func (c counts) add(o *verdicts.Observation) {
	decided, _ := verdicts.Fold(o.Reviews)
	for _, d := range decided {
		if mode, ok := scenarios.ImpersonationMode(verdicts.Describe(d).Verb); ok {
			c[key(verdicts.AuthorizationsMetric, mode, scenarios.DecisionLabel(d.Decision))]++
		}
	}
}

func (c counts) attempts(list []scenarios.MetricDelta) {
	for _, d := range list {
		c[key(verdicts.AttemptsMetric, d.Mode, d.Decision)] += d.Count
	}
}

func key(metric, mode, decision string) string {
	return fmt.Sprintf("%s{mode=%q,decision=%q}", metric, mode, decision)
}

// totals says in what way a batch as a whole is not what its requests add up to, or nothing: reviews that belong
// to no request, and metrics, each with its histogram.
func totals(seen *seen, reviews int, want counts) string {
	if n := seen.Arrived; n != reviews {
		return fmt.Sprintf("%d reviews arrived, %d belong to a request", n, reviews)
	}
	if seen.Metrics == nil {
		return ""
	}
	got := counts{}
	for _, m := range seen.Metrics {
		name := m.Name
		if base, ok := strings.CutSuffix(name, "_duration_seconds_count"); ok {
			name = base + "_total"
			got[key(name, m.Mode, m.Decision)+" in its histogram"] += m.Delta
			continue
		}
		got[key(name, m.Mode, m.Decision)] += m.Delta
	}
	all := maps.Clone(want)
	for k, n := range want {
		all[k+" in its histogram"] = n
	}
	var wrong []string
	keys := maps.Clone(all)
	maps.Copy(keys, got)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if all[k] != got[k] {
			wrong = append(wrong, fmt.Sprintf("%s: want +%d, got +%d", k, all[k], got[k]))
		}
	}
	return strings.Join(wrong, "; ")
}
