package storm

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
)

// predict compares the reviews of the last block with the prediction for its requests. The first time that a side
// differs, it looks for the smallest schedule that shows it. It reports whether to go on.
func (r *runner) predict(
	ctx context.Context,
	s *controlPlane,
	p plannedBlock,
	variant profile.Variant,
	start time.Time,
	sends []pacer.Send,
) bool {
	at := len(r.out.Blocks) - 1
	b := &r.out.Blocks[at]
	for _, fault := range findFaults(r.Profile, b, sends) {
		r.problem(at, "a fault of authzconf: %s", fault)
	}
	if err := r.predictBlock(s, b, variant, start); err != nil {
		r.problem(at, "%v", err)
		return false
	}
	for _, fault := range findPredictionFaults(b) {
		r.problem(at, "a fault of authzconf: %s", fault)
	}
	list, _ := b.ComparePrediction()
	if len(list) == 0 || r.shrunk[p.side] || !r.repeatable(b) {
		return true
	}
	r.shrunk[p.side] = true
	longest := tries * (r.Profile.Block + profile.CacheLife + r.Profile.Timeout)
	r.Say(
		fmt.Sprintf(
			"%s on %s: %s; looking for fewer requests that show it: at most %d tries, %s; Ctrl-C ends the search and keeps what was found",
			p.side.Variant,
			p.side.Server,
			strings.Join(list, "; "),
			tries,
			longest,
		),
	)
	b.Smallest = r.findSmallest(ctx, s, p, sends, list)
	r.out.EndedAfterFinding = ctx.Err() != nil
	return !r.out.EndedAfterFinding
}

// repeatable reports whether some of a block's requests lead to the same reviews when they are sent again. What needs
// many requests at once is not searched for among few, and pods send only whole blocks.
func (r *runner) repeatable(b *run.Block) bool {
	followsServer := b.FollowsServer || r.Profile.SelfReviews > 0
	return r.Engine != Pods && !followsServer && !r.Profile.Counts && r.Profile.OneServer() && !r.Profile.Authorizer.Cache
}

// findSmallest looks for the smallest schedule that is not as predicted. differences are those of the whole schedule.
func (r *runner) findSmallest(ctx context.Context, s *controlPlane, p plannedBlock, sends []pacer.Send, differences []string) *run.Smallest {
	at, variant, text := len(r.out.Blocks)-1, p.side.Does(), ""
	smallest := population.Smallest(sends, tries, func(fewer []pacer.Send) bool {
		if ctx.Err() != nil {
			return false
		}
		list, err := r.resend(ctx, s, p, variant, fewer)
		if err != nil && ctx.Err() == nil {
			r.problem(at, "looking for the smallest schedule: %v", err)
		}
		if len(list) > 0 {
			text = strings.Join(list, "; ")
		}
		r.Say(fmt.Sprintf("  %d of its %d requests: %s", len(fewer), len(sends), cmp.Or(strings.Join(list, "; "), "as predicted")))
		return len(list) > 0
	})
	text = cmp.Or(text, "with fewer requests it did not show again: "+strings.Join(differences, "; "))
	out := &run.Smallest{Count: len(smallest), Text: text}
	for _, send := range smallest[:min(len(smallest), shownRequests)] {
		out.Requests = append(out.Requests, population.Describe(r.Profile, variant, send))
	}
	return out
}

// predictBlock has population.History predict a block by its log, which is not needed afterwards.
func (r *runner) predictBlock(s *controlPlane, b *run.Block, variant profile.Variant, start time.Time) (err error) {
	if r.Profile.Predictable() {
		b.Predicted, err = s.history.PredictSettled(variant, start, b.Log, b.Settled)
	}
	if err == nil {
		b.Identities, err = s.history.CompareIdentities(variant, b.Log, s.ownReviews(), b.GivenUp)
	}
	b.Ungranted = b.FindUngranted(variant.Denied, r.Profile.Event.Kind != profile.NoEvent)
	b.Log = nil
	return err
}

const (
	// tries is how many schedules are tried for the smallest one. Each takes as long as its requests, and until the
	// server has forgotten.
	tries         = 16
	shownRequests = 20
)

// resend sends some of a block's requests after the server has forgotten the checks, and returns what is not as
// predicted.
func (r *runner) resend(
	ctx context.Context,
	s *controlPlane,
	p plannedBlock,
	variant profile.Variant,
	sends []pacer.Send,
) ([]string, error) {
	if !r.forget(ctx, p.side) {
		return nil, nil
	}
	o := shard.Order{Side: p.side, Seed: p.seed, Sends: sends}
	if err := s.generator.Prepare(ctx, o); err != nil {
		return nil, err
	}
	o.Start = s.generator.Start()
	count := r.count(s, o.Start, true)
	b, err := s.generator.Block(ctx, o)
	r.last[p.side] = time.Now()
	if err != nil {
		return nil, err
	}
	count().fill(b, r.Profile.Authorizer.Cache)
	if err := r.predictBlock(s, b, variant, o.Start); err != nil {
		return nil, err
	}
	list, _ := b.ComparePrediction()
	return list, nil
}
