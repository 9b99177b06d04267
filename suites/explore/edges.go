package explore

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// A success is remembered for ten seconds. In an edged batch the last request of each case comes again when what its
// requests left is about to be forgotten, or just was: within edgeMargin of it. What the model predicts then follows from
// the times that the requests had, and so it does where a request is further than punctual from the time that the waits
// say, for a busy machine stalls. A request during which something was forgotten can go either way: neither it is judged
// nor what comes after it, which depends on it.
const (
	remembered = 10 * time.Second
	edges      = 3 // how often the last request comes again
	edgeMargin = 25 * time.Millisecond
	punctual   = remembered / 40
)

// sendEdges sends walks as long as the first is remembered, and then what is left of all, each request at a random time
// around those at which what its walk left is forgotten.
func (l *lane) sendEdges(ctx context.Context, b *batch) (err error) {
	type due struct {
		at time.Time
		w  *walk
	}
	for rest := b.walks; len(rest) > 0 && err == nil; {
		var later []due
		for begun := time.Now(); err == nil && len(rest) > 0 && time.Since(begun) < remembered-time.Second; rest = rest[1:] {
			first := time.Now()
			err = l.sendOn(ctx, b, rest[0])
			spread := time.Since(first) + 2*edgeMargin
			for range edges {
				later = append(later, due{first.Add(remembered - edgeMargin + rand.N(spread)), rest[0]})
			}
		}
		slices.SortFunc(later, func(x, y due) int { return cmp.Compare(x.at.UnixNano(), y.at.UnixNano()) })
		for _, d := range later {
			if err == nil && clusters.Pause(ctx, time.Until(d.at)) {
				err = l.sendOn(ctx, b, d.w)
			}
		}
	}
	return cmp.Or(err, ctx.Err())
}

// inTime says whether all requests were sent, and answered, about when the waits say.
func inTime(s *scenarios.Scenario, times []oracle.Span) bool {
	var due time.Duration
	for _, st := range s.Steps {
		if due += time.Duration(st.Wait); st.Request != nil {
			if times[0].Sent < due-punctual || times[0].Answered > due+punctual {
				return false
			}
			times = times[1:]
		}
	}
	return true
}

// verdict judges a case by its evidence, and says of how many requests it does not tell, for their times do not.
func (l *lane) verdict(p *prepared, ev *verdicts.Evidence) (r verdicts.Result, undecided int, err error) {
	times := scenarios.Each(ev.Steps, func(o verdicts.Observation) oracle.Span {
		return oracle.Span{Sent: o.Sent.Sub(ev.Steps[0].Sent), Answered: o.Answered.Sub(ev.Steps[0].Sent)}
	})
	if len(times) != requests(p.scenario) || inTime(p.scenario, times) {
		return verdicts.Judge(p.scenario, ev), 0, nil
	}
	played, sure, err := oracle.PlayAt(p.scenario, p.asked.Facts, fixtures.FS, times)
	if err != nil {
		return r, 0, fmt.Errorf("%s: the model: %w", p.scenario.ID, err)
	}
	p.played = played
	l.state(p.scenario, played)
	for i := range played[1:] { // as they were, for whoever sends them again
		if before := &p.scenario.Steps[played[i+1].Step-1]; before.Wait > 0 {
			before.Wait = scenarios.Duration(max(times[i+1].Sent-times[i].Answered, 1))
		}
	}
	if undecided = len(times) - sure; undecided > 0 {
		own, seen := *p.scenario, *ev
		own.Steps, seen.Steps = own.Steps[:played[sure].Step], seen.Steps[:sure]
		return verdicts.Judge(&own, &seen), undecided, nil
	}
	return verdicts.Judge(p.scenario, ev), 0, nil
}
