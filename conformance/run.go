package conformance

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/providers"
)

// Execute runs the cells of a plan, and returns when all are done. An error is for the user to mend; everything else is
// recorded. parallel is how many control planes run at once; 0 is as many as the machine has processors and memory for.
func Execute(ctx context.Context, plan []CellPlan, parallel int, o Output) error {
	s := New(plan, o)
	s.Parallel = min(cmp.Or(parallel, Fitting(plan[0].Target.Cell.Provider)), len(groupCells(s.Cells)))
	defer func() { _ = s.Stop() }()
	if err := s.Start(ctx); err != nil {
		return err
	}
	if err := s.Wait(); err != nil {
		return err
	}
	return o.Log.Append(machineKey, s.machineRecord())
}

const (
	// cellMemory is what one cell may need. Measured are 300 to 450 MiB, shared pages
	// and what authzconf remembers of it included; a loaded kube-apiserver has more.
	cellMemory = 500 << 20
	// nodesMemory is what a cluster of kind with two nodes may need: some 520 MiB a node, and as much again for disk caches.
	nodesMemory = 1600 << 20
	// cellsPerProcessor is how many cells one processor has work for: scenarios of a cell run in order, and requests wait
	// for the server. Two keep a processor busy; with more, control planes start slower, and no run is shorter.
	cellsPerProcessor = 2
)

// Fitting is how many cells the machine has processors and free memory for, at least 1. A processor that the
// others leave idle is no use, and memory that is not there ends in processes being killed.
func Fitting(provider string) int {
	n, memory := cellsPerProcessor*runtime.GOMAXPROCS(0), int64(cellMemory)
	if providers.CapabilitiesOf(provider).Nodes {
		// Its nodes keep a processor busy by themselves while it starts.
		n, memory = runtime.GOMAXPROCS(0), nodesMemory
	}
	if free, isKnown := clusters.AvailableMemory(); isKnown {
		n = min(n, int(free/memory))
	}
	return max(1, n)
}

const memoryEvery = 2 * time.Second

// memoryWatch remembers the most memory that was in use at once.
type memoryWatch struct{ peak atomic.Int64 }

// machineMemoryMeter returns a function that measures how much less memory the machine has free, in bytes, than when the
// meter was made: the processes of kind are not children of ours.
func machineMemoryMeter() func() int64 {
	before, _ := clusters.AvailableMemory()
	return func() int64 {
		now, _ := clusters.AvailableMemory()
		return max(0, before-now)
	}
}

// measureOwnMemory returns the memory of this process and its children, in bytes: the sum of what each has for itself, and,
// as programs share the pages of files, those of the process that has most. (proc(5) has the exact figure, Pss, at a
// hundred times the cost.)
func measureOwnMemory() int64 {
	processes, err := procfs.AllProcs()
	if err != nil {
		return 0
	}
	ownProcess := os.Getpid()
	var sum, files uint64
	for _, p := range processes {
		stat, err := p.Stat()
		if err != nil {
			continue // it ended meanwhile
		}
		if isOurs := p.PID == ownProcess || stat.PPID == ownProcess; !isOurs {
			continue
		}
		if status, err := p.NewStatus(); err == nil {
			sum += status.RssAnon + status.RssShmem
			files = max(files, status.RssFile)
		}
	}
	return int64(sum + files)
}
