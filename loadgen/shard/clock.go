package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/authzconf/authzconf/reports/load/run"
)

// MaxOffset is by how much the clock of a shard may differ from the coordinator's, beside what the round trip
// leaves uncertain: all shards begin a block at one time, and half a LateTolerance (10 ms by default) of
// difference would begin to show in the lag.
const MaxOffset = 5 * time.Millisecond

// MaxUncertainty is how uncertain the measurement may be: half of the shortest round trip. A check that could not
// see 50 ms would be none.
const MaxUncertainty = 50 * time.Millisecond

const (
	// questions is how often a shard is asked for its time: the shortest round trip counts, for it leaves least
	// uncertain.
	questions = 8
	// moreQuestions are asked while all round trips were long.
	moreQuestions = 32
	answerTimeout = 5 * time.Second
)

// reading is a shard's answer to the question for its time.
type reading struct {
	Question int       `json:"question"`
	Now      time.Time `json:"now"`
}

// Clocks compares the clocks of all shards with this process's.
func (g *Group) Clocks(ctx context.Context) ([]run.Clock, error) {
	all, errs := make([]run.Clock, len(g.members)), make([]error, len(g.members))
	for i, m := range g.members {
		if all[i], errs[i] = m.clock(ctx); errs[i] == nil {
			errs[i] = Judge(all[i])
		}
	}
	return all, errors.Join(errs...)
}

// Judge is an error if a clock is off, or cannot be told not to be.
func Judge(c run.Clock) error {
	offset, uncertainty := time.Duration(c.Offset), time.Duration(c.Uncertainty)
	switch {
	case uncertainty > MaxUncertainty:
		return fmt.Errorf("the clock of %s cannot be compared: the shortest of %d round trips leaves ±%s uncertain, at most %s may be",
			c.Shard, moreQuestions, uncertainty.Round(time.Microsecond), MaxUncertainty)
	case offset.Abs() > uncertainty+MaxOffset:
		return fmt.Errorf("the clock of %s differs from the coordinator's by %s ± %s, at most %s and what is uncertain may be",
			c.Shard, offset.Round(time.Microsecond), uncertainty.Round(time.Microsecond), MaxOffset)
	}
	return nil
}

// clock asks for the time, again and again, and takes what the shortest round trip says: the shard read its clock
// somewhere between question and answer.
func (m *member) clock(ctx context.Context) (run.Clock, error) {
	best := run.Clock{Shard: m.name, Uncertainty: run.Duration(time.Hour)}
	for i := range moreQuestions {
		if i >= questions && time.Duration(best.Uncertainty) <= MaxUncertainty {
			break
		}
		before := time.Now()
		if err := m.send(Order{Ask: i + 1}); err != nil {
			return best, m.lost()
		}
		now, err := m.answer(ctx, i+1)
		if err != nil {
			return best, err
		}
		trip := time.Since(before)
		if half := trip / 2; half < time.Duration(best.Uncertainty) {
			// Sub of a time from elsewhere compares wall clocks, which is the question.
			best.Offset, best.Uncertainty = run.Duration(now.Sub(before.Round(0))-half), run.Duration(half)
		}
	}
	return best, nil
}

func (m *member) answer(ctx context.Context, question int) (time.Time, error) {
	timer := time.NewTimer(answerTimeout)
	defer timer.Stop()
	for {
		select {
		case r, ok := <-m.readings:
			if !ok {
				return time.Time{}, m.lost()
			}
			if r.Question == question {
				return r.Now, nil
			}
		case <-timer.C:
			return time.Time{}, fmt.Errorf("%s does not say its time within %s", m.name, answerTimeout)
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}
