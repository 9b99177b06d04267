package explore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// collect makes evidence of what was seen of a batch.
func (l *lane) collect(ctx context.Context, b *batch) (*seen, error) {
	s := &seen{Arrived: len(b.seen.Reviews), Metrics: b.seen.Metrics}
	for _, p := range b.cases {
		ev, err := reports.RedactEvidence(l.seenOf(ctx, p, b.seen))
		if err := errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		s.Cases = append(s.Cases, ev)
		p.sent, p.bound, p.names = nil, nil, nil
	}
	b.seen = nil
	return s, nil
}

// judge judges a batch by its evidence. What is not as predicted becomes a suspect, to be run alone.
func (l *lane) judge(b *batch, s *seen) {
	l.seen = s
	reviews := 0
	var suspects []*prepared
	counted := counts{}
	for i, p := range b.cases {
		ev := s.Cases[i]
		p.result = verdicts.Judge(p.scenario, ev)
		if failed(p.result) {
			suspects = append(suspects, p)
		}
		for i := range ev.Steps {
			reviews += len(ev.Steps[i].Reviews)
			counted.add(&ev.Steps[i])
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
		why = totals(s, reviews, counted)
	}
	if why != "" {
		// One of them did it; which, only each alone can tell.
		l.say("a batch does not add up: %s; its cases are run alone", why)
		suspects = b.cases
		l.found.Recounts++
	}
	l.found.Cases += len(b.cases)
	l.found.Reviews += reviews
	l.found.Pairs, l.found.AllPairs = b.pairs, b.allPairs
	l.suspects = append(l.suspects, suspects...)
	l.progress(l)
}

// span adds the time of a request to that of the lane.
func (l *lane) span(o *verdicts.Observation) {
	if l.first.IsZero() {
		l.first = o.Sent
	}
	l.found.Seconds = max(l.found.Seconds, o.Answered.Sub(l.first).Seconds())
}

// counts are increases of series, by metric, mode and decision.
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

// attempts counts what was predicted.
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
