package session

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	"github.com/authzconf/authzconf/engine/target"
)

const (
	// cellMemory is what one cell may need. Measured are 200 to 350 MiB, shared pages
	// and what authzconf remembers of it included; a loaded kube-apiserver has more.
	cellMemory = 400 << 20
	// nodesMemory is what a cluster of kind with two nodes may need: some 520 MiB a
	// node, and as much again for what its disk is cached with.
	nodesMemory = 1600 << 20
	// cellsPerProcessor is how many cells one processor has work for: scenarios of a cell run one after the other,
	// and each request waits for the server. Two keep a processor busy; with more, control planes take longer to
	// start, and no run is shorter.
	cellsPerProcessor = 2
)

// Fitting is how many cells the machine has processors and free memory for, at least 1. A processor that the
// others leave idle is no use, and memory that is not there ends in processes being killed.
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
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	memory, err := proc.Meminfo()
	if err != nil || memory.MemAvailableBytes == nil {
		return 0
	}
	return int64(*memory.MemAvailableBytes)
}

// memoryEvery is the pause between two looks.
const memoryEvery = 2 * time.Second

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

// heldMemory is what this process and its children hold now: what each has for itself, and of the pages of files,
// which programs share, those of the one that has most. (proc(5) has it exactly, as Pss, at a hundred times the cost.)
func heldMemory() int64 {
	processes, err := procfs.AllProcs()
	if err != nil {
		return 0
	}
	own := os.Getpid()
	var sum, files uint64
	for _, p := range processes {
		stat, err := p.Stat()
		if err != nil || p.PID != own && stat.PPID != own {
			continue // not ours, or it ended meanwhile
		}
		if status, err := p.NewStatus(); err == nil {
			sum += status.RssAnon + status.RssShmem
			files = max(files, status.RssFile)
		}
	}
	return int64(sum + files)
}
