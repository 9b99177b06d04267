package load

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports/load/run"
)

// Usage is what one program used for a variant.
type Usage struct {
	// PerRequest is ms of CPU time above idle for each request sent, Idle the part of a processor that the program
	// uses without requests.
	PerRequest float64 `json:"cpuMillisecondsPerRequest"`
	Idle       float64 `json:"idleProcessors"`
	RSS        int64   `json:"rssBytes"` // the most at a block's end
	// Allocated bytes for each request sent, and garbage collections in all blocks.
	Allocated float64 `json:"allocatedBytesPerRequest,omitempty"`
	GCs       int64   `json:"gcs,omitempty"`
	PeakHeap  int64   `json:"peakHeapBytes,omitempty"` // of all blocks
}

// usageOf adds up what programs used in blocks.
func usageOf(blocks []*run.Block) (used map[string]Usage) {
	var sent int64
	var length time.Duration
	for _, b := range blocks {
		sent, length = sent+b.Sent, length+time.Duration(b.Length)
		for name, c := range b.Cost {
			if used == nil {
				used = map[string]Usage{}
			}
			u := used[name]
			u.PerRequest += milliseconds(time.Duration(c.CPU - c.Idle))
			u.Idle += time.Duration(c.Idle).Seconds()
			u.RSS, u.Allocated, u.GCs, u.PeakHeap = max(u.RSS, c.RSS), u.Allocated+float64(c.Allocated), u.GCs+c.GCs, max(u.PeakHeap, c.PeakHeap)
			used[name] = u
		}
	}
	for name, u := range used {
		u.PerRequest, u.Allocated, u.Idle = u.PerRequest/float64(max(sent, 1)), u.Allocated/float64(max(sent, 1)), u.Idle/length.Seconds()
		used[name] = u
	}
	return used
}

// cpuText is "API server 2.10 ms, authorizer 0.20 ms".
func cpuText(used map[string]Usage) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(used)) {
		parts = append(parts, fmt.Sprintf("%s %.2f ms", name, used[name].PerRequest))
	}
	return cmp.Or(strings.Join(parts, ", "), "not known")
}
