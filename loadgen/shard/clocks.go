package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/loadgen/run"
)

// MaxOffset is by how much the clock of a shard may differ from the coordinator's, beside what the round trip
// leaves uncertain: all shards begin a block at one time, and half a LateTolerance (10 ms by default) of
// difference would begin to show in the lag.
const MaxOffset = 5 * time.Millisecond

// MaxUncertainty is how uncertain the measurement may be, half of the shortest round trip: a check has to see 50 ms.
const MaxUncertainty = 50 * time.Millisecond

const (
	// questions is how often a shard is asked for its time; the shortest round trip counts, as the least uncertain one.
	questions     = 8
	moreQuestions = 32 // asked while all round trips were long
	answerTimeout = 5 * time.Second
)

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
		return fmt.Errorf("the clock of %s cannot be compared: it is known to ±%s, and has to be to ±%s",
			c.Shard, uncertainty.Round(time.Microsecond), MaxUncertainty)
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
		before, now := time.Now(), time.Time{}
		if err := m.now(ctx, &now); err != nil {
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

func (m *member) now(ctx context.Context, out *time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("does not say its time within %s", answerTimeout))
	defer cancel()
	return m.call(ctx, "Now", none{}, out)
}

const (
	// dateEvery is how often a server is asked until the second of its Date header changes.
	dateEvery = 5 * time.Millisecond
	// dateTimeout is how long at most the end of a second is looked for, again and again while it was not found exactly.
	dateTimeout = 5 * time.Second
	// exactDate is how exactly it is to be found: two such comparisons are to be within MaxUncertainty.
	exactDate = MaxUncertainty / 4
)

// compareClock compares this process's clock with a server's, by the header Date of what it answers (RFC 9110, section 6.6.1).
// It has whole seconds: the moment is known at which one ends, which lies between a request and an answer. Any answer will do,
// also a refusal. What was found most exactly counts.
func compareClock(ctx context.Context, config *rest.Config) (reading, error) {
	limited, cancel := context.WithTimeout(ctx, dateTimeout)
	defer cancel()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return reading{}, err
	}
	best := reading{Uncertainty: time.Hour}
	var last, lastAsked time.Time
	for best.Uncertainty > exactDate {
		asked := time.Now()
		date, err := readDate(limited, client, config.Host)
		switch {
		case ctx.Err() != nil:
			return best, ctx.Err()
		case limited.Err() != nil && best.Uncertainty < time.Hour:
			return best, nil
		case limited.Err() != nil:
			return best, fmt.Errorf("no second of the server's clock has ended within %s", dateTimeout)
		case err != nil:
			return best, err
		}
		answered := time.Now()
		if hasEnded := !last.IsZero() && date.After(last); hasEnded {
			half := answered.Sub(lastAsked) / 2
			middle := lastAsked.Add(half).Round(0) // a wall clock
			if half < best.Uncertainty {
				best = reading{middle.Sub(date), half}
			}
		}
		last, lastAsked = date, asked
		time.Sleep(dateEvery)
	}
	return best, nil
}

// readDate asks a server for its version, and returns the time at which it answered, by its clock.
func readDate(ctx context.Context, client *http.Client, host string) (time.Time, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/version", nil)
	if err != nil {
		return time.Time{}, err
	}
	answer, err := client.Do(q)
	if err != nil {
		return time.Time{}, err
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return http.ParseTime(answer.Header.Get("Date"))
}
