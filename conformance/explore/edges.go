package explore

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
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

// dueWalk is a walk of which a request is due at a time.
type dueWalk struct {
	at   time.Time
	walk *walk
}

// sendEdges sends walks as long as the first is remembered, and then what is left of all, each request at a random time
// around those at which what its walk left is forgotten.
func (r *sender) sendEdges(ctx context.Context, b *batch) error {
	for rest := b.walks; len(rest) > 0; {
		continuations, count, err := r.sendBeginnings(ctx, b, rest)
		if err != nil {
			return err
		}
		rest = rest[count:]
		slices.SortFunc(continuations, func(x, y dueWalk) int { return cmp.Compare(x.at.UnixNano(), y.at.UnixNano()) })
		for _, d := range continuations {
			if !clusters.Pause(ctx, time.Until(d.at)) {
				return ctx.Err()
			}
			if err := r.sendOn(ctx, b, d.walk); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// sendBeginnings sends what comes before the edges of as many walks as there is time for, and returns when the rest of each
// is due.
func (r *sender) sendBeginnings(ctx context.Context, b *batch, walks []*walk) (continuations []dueWalk, count int, err error) {
	begun := time.Now()
	for count < len(walks) && time.Since(begun) < remembered-time.Second {
		first := time.Now()
		if err := r.sendOn(ctx, b, walks[count]); err != nil {
			return nil, count, err
		}
		spread := time.Since(first) + 2*edgeMargin
		for range edges {
			continuations = append(continuations, dueWalk{first.Add(remembered - edgeMargin + rand.N(spread)), walks[count]})
		}
		count++
	}
	return continuations, count, nil
}

// isInTime reports whether all requests were sent, and answered, about when the waits say.
func isInTime(s *scenarios.Scenario, times []oracle.Span) bool {
	var due time.Duration
	for _, st := range s.Steps {
		due += time.Duration(st.Wait)
		if st.Request == nil {
			continue
		}
		if times[0].Sent < due-punctual || times[0].Answered > due+punctual {
			return false
		}
		times = times[1:]
	}
	return true
}
