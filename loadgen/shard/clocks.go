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

// MaxOffset is by how much the clock of a shard may differ from the coordinator's, in addition to the uncertainty of
// the round trip. All shards begin a block at the same time, and a difference of half a LateTolerance (10 ms by
// default) would begin to show in the lag.
const MaxOffset = 5 * time.Millisecond

// MaxUncertainty is the largest uncertainty of the measurement, which is half of the shortest round trip. A check has
// to be able to see 50 ms.
const MaxUncertainty = 50 * time.Millisecond

const (
	// questions is how often a shard is asked for its time. The shortest round trip counts, because it is the least
	// uncertain one.
	questions     = 8
	moreQuestions = 32 // asked as long as all round trips were long
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

// Judge returns an error if a clock is off, or if that cannot be excluded.
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

// clock asks for the time several times, and uses the shortest round trip: the shard read its clock somewhere between
// question and answer.
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
			// Sub of a time from elsewhere compares wall clocks, and that is what is needed.
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
	// dateEvery is how often a server is asked until the second in its Date header changes.
	dateEvery = 5 * time.Millisecond
	// dateTimeout is how long the end of a second is looked for, again and again until it is found exactly enough.
	dateTimeout = 5 * time.Second
	// exactDate is how exactly it has to be found, so that two such comparisons are within MaxUncertainty.
	exactDate = MaxUncertainty / 4
)

// compareClock compares this process's clock with a server's by the header Date of its answers (RFC 9110, section
// 6.6.1). That has whole seconds, so the moment at which one ends is found, which lies between a request and an answer.
// Any answer will do, even a refusal. The most exact result counts.
func compareClock(ctx context.Context, config *rest.Config) (clockReading, error) {
	limited, cancel := context.WithTimeout(ctx, dateTimeout)
	defer cancel()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return clockReading{}, err
	}
	best := clockReading{Uncertainty: time.Hour}
	var last, lastAsked time.Time
	for best.Uncertainty > exactDate {
		askedAt := time.Now()
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
		answeredAt := time.Now()
		if hasEnded := !last.IsZero() && date.After(last); hasEnded {
			half := answeredAt.Sub(lastAsked) / 2
			middle := lastAsked.Add(half).Round(0) // a wall clock
			if half < best.Uncertainty {
				best = clockReading{middle.Sub(date), half}
			}
		}
		last, lastAsked = date, askedAt
		time.Sleep(dateEvery)
	}
	return best, nil
}

// readDate asks a server for its version, and returns the time of the answer by the server's clock.
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
