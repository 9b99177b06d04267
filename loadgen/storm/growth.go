package storm

import (
	"context"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// The gauges of what an API server holds.
const (
	goroutines = "go_goroutines"
	openFiles  = "process_open_fds"
	heapInUse  = "go_memstats_heap_inuse_bytes"
)

const (
	// calmTime is how long servers have after the last block to let go of what it took, and calmEvery how often they are
	// asked: requests that were given up end within a minute, and memory is freed when it is collected.
	calmTime  = 90 * time.Second
	calmEvery = 3 * time.Second
)

// readHeld returns what the API servers of a side hold together, and when the last of them began.
func (s *controlPlane) readHeld() (held run.Held, began time.Time, err error) {
	for _, t := range s.targets {
		c, err := read(t, goroutines, openFiles, heapInUse, server.ProcessStartMetric)
		if err != nil {
			return held, began, err
		}
		for family, sum := range map[string]*float64{goroutines: &held.Goroutines, openFiles: &held.Files, heapInUse: &held.Heap} {
			found, _ := c.find(family)
			*sum += found.value
		}
		began = c.began()
	}
	return held, began, nil
}

// noteHeld notes what the servers hold before the blocks of a start. Clusters of somebody else's have others who use them.
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

// heldSince is what a process held before its blocks.
type heldSince struct {
	run.Held
	began time.Time
}

// watchGrowth waits until each server is back where it was before the blocks, and notes what it holds then. A server that
// was restarted meanwhile has no before.
func (r *runner) watchGrowth(ctx context.Context) {
	until := time.Now().Add(calmTime)
	for _, name := range r.Profile.Servers() {
		if growth, isKnown := r.awaitCalm(ctx, name, until); isKnown {
			r.out.Growth = append(r.out.Growth, growth)
		}
	}
}

// awaitCalm waits until a server holds no more than it may, and no longer than to a time.
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
