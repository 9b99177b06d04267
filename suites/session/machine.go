package session

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/authzconf/authzconf/suites/target"
)

const (
	// cellMemory is what one cell may need. Measured are 200 to 350 MiB, shared pages
	// and what authzconf remembers of it included; a loaded kube-apiserver has more.
	cellMemory = 400 << 20
	// nodesMemory is what a cluster of kind with two nodes may need: some 520 MiB a
	// node, and as much again for what its disk is cached with.
	nodesMemory = 1600 << 20
	// cellsPerProcessor is how many cells one processor has work for: scenarios of a
	// cell run one after the other, and each request waits for the server. Two keep
	// a processor busy; with more, control planes take longer to start, and no run
	// is shorter.
	cellsPerProcessor = 2
)

// Fitting is how many cells the machine has processors and free memory for, at
// least 1. A processor that the others leave idle is no use, and memory that is
// not there ends in processes being killed.
func Fitting(provider string) int {
	n, memory := cellsPerProcessor*runtime.GOMAXPROCS(0), int64(cellMemory)
	if provider == target.Kind {
		// Its nodes keep a processor busy by themselves while it starts.
		n, memory = runtime.GOMAXPROCS(0), nodesMemory
	}
	if free := availableMemory(); free > 0 {
		n = min(n, int(free/memory))
	}
	return max(1, n)
}

// availableMemory is what the kernel thinks new processes can have without
// swapping, in bytes; 0 where it does not say.
func availableMemory() int64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return kilobytes(data, "MemAvailable:")
}

// kilobytes reads a line such as "Pss:  1234 kB", and returns bytes.
func kilobytes(data []byte, name string) int64 {
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var n int64
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok {
			if _, err := fmt.Sscan(rest, &n); err == nil {
				return n << 10
			}
		}
	}
	return 0
}

// memoryEvery is the pause between two looks. Each costs about a millisecond per
// process.
const memoryEvery = time.Second

// memoryWatch remembers the most memory that was held at once.
type memoryWatch struct{ peak atomic.Int64 }

// watch looks until ctx ends.
func (w *memoryWatch) watch(ctx context.Context, held func() int64) {
	ticker := time.NewTicker(memoryEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.peak.Store(max(w.peak.Load(), held()))
		}
	}
}

// lessMemory says how much less memory the machine has free than now: for clusters
// of kind, whose processes are the container engine's and not our children.
func lessMemory() func() int64 {
	before := availableMemory()
	return func() int64 { return max(0, before-availableMemory()) }
}

// heldMemory is what this process and its children hold now. Pages that several
// share, such as those of one program, count once in all (proc(5), Pss).
func heldMemory() int64 {
	own := strconv.Itoa(os.Getpid())
	sum := proportional(own)
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return sum
	}
	for _, f := range stats {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // it ended meanwhile
		}
		_, rest, _ := strings.Cut(string(raw), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == own { // state, parent, …
			sum += proportional(filepath.Base(filepath.Dir(f)))
		}
	}
	return sum
}

func proportional(pid string) int64 {
	data, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	if err != nil {
		return 0
	}
	return kilobytes(data, "Pss:")
}
