package run

import (
	"fmt"
	"strings"
)

// Growth is what an API server says that it holds: after it was warmed up, and some time after its last block.
type Growth struct {
	Server string `json:"server"`
	Before Held   `json:"before"`
	After  Held   `json:"after"`
}

// Held are what an API server holds: goroutines, open files (connections among them), and the heap in use, in bytes.
type Held struct {
	Goroutines float64 `json:"goroutines"`
	Files      float64 `json:"openFiles"`
	Heap       float64 `json:"heapBytes"`
}

// By how much more an API server may hold after a storm than before it: what it remembers for ten seconds, and what its
// watch cache has read.
const (
	moreGoroutines = 300
	moreFiles      = 100
	moreHeap       = 128 << 20
	partMore       = 0.25
)

// Exceeds says in what respect a server holds more than it may after a storm; empty if it does not.
func (g Growth) Exceeds() string {
	var list []string
	for _, c := range []struct {
		what          string
		before, after float64
		more          float64
	}{
		{"goroutines", g.Before.Goroutines, g.After.Goroutines, moreGoroutines},
		{"open files", g.Before.Files, g.After.Files, moreFiles},
		{"bytes of heap", g.Before.Heap, g.After.Heap, moreHeap},
	} {
		if most := c.before*(1+partMore) + c.more; c.after > most {
			list = append(list, fmt.Sprintf("%.0f %s, %.0f before the storm, at most %.0f", c.after, c.what, c.before, most))
		}
	}
	return strings.Join(list, "; ")
}

// String returns what a server held before and after.
func (g Growth) String() string {
	return fmt.Sprintf("goroutines %.0f, then %.0f; open files %.0f, then %.0f; heap %.0f MiB, then %.0f MiB",
		g.Before.Goroutines, g.After.Goroutines, g.Before.Files, g.After.Files, g.Before.Heap/(1<<20), g.After.Heap/(1<<20))
}
