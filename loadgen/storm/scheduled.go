package storm

import (
	"fmt"
	"time"

	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
)

// life is a process of a server: which one, and since which start.
type life struct {
	server string
	start  int
}

// holdSchedule holds blocks to those that profile and seed put one after the other, to the schedule of each, and to what the
// model makes of that: the log of single requests is not kept, but when they were meant to be sent follows from the seed.
func (o *Options) holdSchedule(r *run.Run) error {
	plan, sound := order(o.Profile, r.Seed), len(r.Problems) == 0 && !r.Interrupted
	if n := len(r.Blocks); n > len(plan) || n < len(plan) && sound {
		return fmt.Errorf("there are %d blocks, and profile and seed have %d", n, len(plan))
	}
	histories, began, ended := map[life]*population.History{}, map[life]time.Time{}, map[int]time.Time{}
	for i := range r.Blocks {
		b, p := &r.Blocks[i], plan[i]
		asked := run.Block{Pair: p.pair, Role: p.role, AA: p.comparison.AA(), Start: p.start, Variant: p.side.Variant, Server: string(p.side.Server), Comparison: p.comparison.Name, Agents: r.Agents}
		is := run.Block{Pair: b.Pair, Role: b.Role, AA: b.AA, Start: b.Start, Variant: b.Variant, Server: b.Server, Comparison: b.Comparison, Agents: b.Agents}
		if change := reports.Change(is, asked); change != "" {
			return fmt.Errorf("block %d is not the one that profile and seed have in its place: %s", i, change)
		}
		of := life{b.Server, b.Start}
		if first, again := began[of]; again && o.Profile.Event.Kind == profile.NoEvent && !first.Equal(b.ServerStarted) {
			return fmt.Errorf("block %d: %s began at %s and at %s, and was not restarted", i, b.Server, first, b.ServerStarted)
		}
		began[of], ended[b.Start] = b.ServerStarted, b.Started.Add(time.Duration(b.Length))
		if at := b.ServerStarted; !at.IsZero() && (at.After(b.Started.Add(clockTolerance)) && o.Profile.Event.Kind == profile.NoEvent || at.Before(ended[b.Start-1].Add(-clockTolerance))) {
			return fmt.Errorf("block %d: %s is said to have begun at %s, not before this block and after the start before", i, b.Server, at)
		}
		if !sound {
			continue
		}
		if err := o.holdPrediction(b, p, of, r.Servers, histories); err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
	}
	return nil
}

// clockTolerance is by how much a process may be wrong about its beginning: the kernel knows its own to the second.
const clockTolerance = 2 * time.Second

// holdPrediction holds a block to its schedule. What agents do that follow the server does not follow from that, nor what a
// server costs that is one of several, or restarted, or was asked something else meanwhile.
func (o *Options) holdPrediction(b *run.Block, p planned, of life, servers []run.Server, histories map[life]*population.History) (err error) {
	if o.Profile.Reflectors || b.FollowsServer {
		return nil
	}
	sends := o.Profile.Plan(p.seed).Stripe(0, 1)
	if most := int64(len(sends) * (1 + o.Profile.SelfReviews)); b.Planned > most || b.Planned < most-b.Dropped*int64(o.Profile.SelfReviews) {
		return fmt.Errorf("%d requests were planned, and its schedule has %d", b.Planned, most)
	}
	h, known := histories[of]
	if !known {
		version := ""
		for _, s := range servers {
			if s.Name == b.Server && len(s.GitVersion) > 1 {
				version = s.GitVersion[1:]
			}
		}
		if h, err = population.NewHistory(o.Profile, p.side.Server, version); err != nil {
			return err
		}
		histories[of] = h
	}
	if h == nil || b.Predicted == nil || b.Smallest != nil || !o.Profile.OneServer() || o.Profile.SelfReviews > 0 {
		histories[of] = nil
		return nil
	}
	want, err := h.Predict(p.side.Does(), b.Started, population.Planned(sends, b.Latency.Max()))
	if err != nil {
		return err
	}
	return differentFrom(b, want)
}

// differentFrom says where a prediction is none for a block's schedule. Requests that were under way as long as the longest of
// them cost the fewest and the most; one that was not sent in time, or answered otherwise, may have cost four more or less.
func differentFrom(b *run.Block, want *run.Prediction) error {
	odd := b.Retried + b.Dropped + b.Sent - answeredAsExpected(b)
	is := b.Predicted
	if odd == 0 && (is.First != want.First || is.Asked != want.Asked || is.Seldom != want.Seldom || is.Often != want.Often) {
		return fmt.Errorf("by its schedule %d agents asked %d to %d times, %d of them at first; its prediction says %d, %d to %d, %d",
			want.Asked, want.Seldom, want.Often, want.First, is.Asked, is.Seldom, is.Often, is.First)
	}
	model, slack := map[run.ReviewKind]run.CheckRange{}, b.Planned/50+4*(odd+b.Late)
	for _, c := range want.Checks {
		model[c.ReviewKind] = c
	}
	for _, c := range is.Checks {
		m := model[c.ReviewKind]
		if delete(model, c.ReviewKind); c.Low < m.Low-slack || c.High > m.High+slack || c.Low > m.High+slack || c.High < m.Low-slack {
			return fmt.Errorf("its prediction is %d to %d reviews %s %s %s, and by its schedule %d to %d", c.Low, c.High, c.Mode, c.Verb, c.Decision, m.Low, m.High)
		}
	}
	for _, m := range model {
		if m.Low > slack {
			return fmt.Errorf("its prediction has no reviews %s %s %s, and by its schedule %d to %d", m.Mode, m.Verb, m.Decision, m.Low, m.High)
		}
	}
	return nil
}

func answeredAsExpected(b *run.Block) (n int64) {
	for _, count := range b.Answers {
		n += count
	}
	for _, count := range b.Wrong {
		n -= count
	}
	return n - b.Retried
}
