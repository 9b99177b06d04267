//go:build !linux

package agent

import (
	"context"
	"time"

	"github.com/authzconf/authzconf/clusters"
)

// alarm wakes one goroutine at given moments. stop ends present and future waits, and any goroutine may call it.
type alarm struct {
	over func() error
	wake func(d time.Duration) bool
	stop func()
}

func newAlarm() (*alarm, error) {
	ctx, stop := context.WithCancel(context.Background())
	return &alarm{over: ctx.Err, wake: func(d time.Duration) bool { return clusters.Pause(ctx, d) }, stop: stop}, nil
}

// wait returns true when the moment has come, false once the alarm is stopped.
func (a *alarm) wait(moment time.Time) bool { return a.wake(time.Until(moment)) && a.over() == nil }

// close may only be called by the goroutine that waits.
func (a *alarm) close() { a.stop() }
