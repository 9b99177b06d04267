package scenarios

import (
	"runtime/debug"
	"sync"
)

// rarePercent is the growth of the heap, in percent, after which garbage is collected while files are loaded. Most of
// what is loaded stays, so a collection frees little: at Go's usual 100, collecting takes a third of the time of
// loading. See runtime/debug.SetGCPercent.
const rarePercent = 600

// rareCollection makes collections of garbage rarer while at least one load is under way. Afterwards the process
// collects as before, so that what else it does needs no more memory.
type rareCollection struct {
	mu    sync.Mutex
	loads int // under way
	usual int // the percentage before the first of them
}

var loading rareCollection

// begin is called when a load begins.
func (r *rareCollection) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loads == 0 {
		r.usual = debug.SetGCPercent(rarePercent)
	}
	r.loads++
}

// end is called when a load has ended.
func (r *rareCollection) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loads--
	if r.loads == 0 {
		debug.SetGCPercent(r.usual)
	}
}
