package storm

import (
	"context"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// These are the gauges of how much memory an API server has.
const (
	goroutines = "go_goroutines"
	openFiles  = "process_open_fds"
	heapInUse  = "go_memstats_heap_inuse_bytes"
)

const (
	// calmTime is how long servers have after the last block to release what it took. calmEvery is how often they are
	// asked. Requests that were given up end within a minute, and memory is freed when garbage is collected.
	calmTime  = 90 * time.Second
	calmEvery = 3 * time.Second
)

// readHeld returns how much memory the API servers of a side have together, and when the last of them began.
func (s *controlPlane) readHeld() (held run.Held, began time.Time, err error) {
	for _, t := range s.targets {
		c, err := read(t, []string{goroutines, openFiles, heapInUse, server.ProcessStartMetric})
		if err != nil {
			return held, began, err
		}
		for family, sum := range map[string]*float64{goroutines: &held.Goroutines, openFiles: &held.Files, heapInUse: &held.Heap} {
			value, _ := c.find(family)
			*sum += value.value
		}
		began = c.began()
	}
	return held, began, nil
}

// noteHeld records how much memory the servers have before the blocks of a start. It leaves out clusters of somebody
// else's, which others use too.
func (r *runner) noteHeld() {
	if r.can().Foreign {
		return
	}
	for name, s := range r.servers {
		held, began, err := s.readHeld()
		if err != nil {
			continue // a server that does not answer is a problem of its next block
		}
		r.held[name] = heldSince{held, began}
	}
}

// heldSince is how much memory a process had before its blocks.
type heldSince struct {
	run.Held
	began time.Time
}

// watchGrowth waits until each server is back where it was before the blocks, and records how much memory it has then.
// A server that was restarted meanwhile has no earlier value.
func (r *runner) watchGrowth(ctx context.Context) {
	until := time.Now().Add(calmTime)
	for _, name := range r.Profile.Servers() {
		if growth, isKnown := r.awaitCalm(ctx, name, until); isKnown {
			r.out.Growth = append(r.out.Growth, growth)
		}
	}
}

// awaitCalm waits until a server has no more memory than it may, but no longer than until a given time.
func (r *runner) awaitCalm(ctx context.Context, name profile.Server, until time.Time) (growth run.Growth, isKnown bool) {
	before, isNoted := r.held[name]
	if !isNoted || ctx.Err() != nil {
		return growth, false
	}
	for {
		held, began, err := r.servers[name].readHeld()
		if err != nil || !began.Equal(before.began) {
			return growth, false
		}
		growth = run.Growth{Server: string(name), Before: before.Held, After: held}
		isOver := growth.Exceeds() == "" || time.Now().After(until)
		if isOver || !clusters.Pause(ctx, calmEvery) {
			return growth, ctx.Err() == nil
		}
	}
}
