//go:build !linux

package agent

import (
	"sync"
	"time"
)

// alarm wakes one goroutine at given moments.
type alarm struct {
	once    sync.Once
	stopped chan struct{}
}

func newAlarm() (*alarm, error) { return &alarm{stopped: make(chan struct{})}, nil }

// wait returns true when the moment has come, false once the alarm is stopped.
func (a *alarm) wait(moment time.Time) bool {
	timer := time.NewTimer(time.Until(moment))
	defer timer.Stop()
	select {
	case <-a.stopped:
		return false
	default:
	}
	select {
	case <-a.stopped:
		return false
	case <-timer.C:
		return true
	}
}

// stop ends what waits, now and later. It may be called by anybody.
func (a *alarm) stop() { a.once.Do(func() { close(a.stopped) }) }

// close is for the goroutine that waits.
func (a *alarm) close() { a.stop() }
