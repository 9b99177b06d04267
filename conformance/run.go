package conformance

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Common is what every run is given, of a plan and of an upgrade path.
type Common struct {
	Texts reports.Texts // all scenarios that were loaded, and their files
	// Seed makes names unique. The same seed gives the same names.
	Seed int64
	// Events receives progress, from several goroutines; it must be set.
	Events  func(Event)
	Version string // authzconf's own, Command the command line, for the report
	Command []string
	// Inputs are the files that the command line names, Require the levels that must not be left out.
	Inputs  map[string]string
	Require []scenarios.Level
}

// Options are what the run of a plan is given.
type Options struct {
	Common
	// Plan says which scenarios run where.
	Plan []CellPlan
	// Parallel is how many control planes run at once; 0 is as many as the machine has processors and memory for.
	Parallel int
	// KnownFailing must fail, for their stated reasons.
	KnownFailing []reports.KnownFailing
}

// Recorded is what a run has recorded, and the report of it.
type Recorded struct {
	Report   *reports.ConformanceReport
	Evidence []*verdicts.Evidence
	Median   time.Duration // the median time of a scenario, waits apart
}

// Begin is a record with an empty report.
func (o *Common) Begin(provider string) *Recorded {
	return &Recorded{Report: &reports.ConformanceReport{
		SuiteVersion: o.Version, Command: o.Command, Inputs: o.Inputs, Require: o.Require, Seed: o.Seed, Started: time.Now(),
		Implementation: reports.Implementation{Name: "kube-apiserver", Provider: provider},
	}}
}

// Complete ends the record.
func (o *Common) Complete(r *Recorded, known []reports.KnownFailing) {
	r.Report.Finished = time.Now()
	r.Median = median(o.Texts.Set, r.Evidence)
	r.Report.Complete(o.Texts.Set, r.Evidence, known)
}

// Add adds a cell to the record.
func (r *Recorded) Add(cell reports.Cell, evidence []*verdicts.Evidence) {
	r.Report.Cells = append(r.Report.Cells, cell)
	r.Evidence = append(r.Evidence, evidence...)
}

// Execute runs a plan and makes the report. An error is the user's to mend; everything else is in the report. When ctx
// ends, what was seen so far is reported, and the rest is invalid.
func Execute(ctx context.Context, o Options) (*Recorded, error) {
	r := o.Begin(o.Plan[0].Target.Cell.Provider)
	s := New(o.Plan, o.Seed, o.Events)
	s.Parallel = min(cmp.Or(o.Parallel, Fitting(o.Plan[0].Target.Cell.Provider)), len(grouped(s.Cells)))
	defer func() { _ = s.Stop() }()
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	if err := s.Wait(); err != nil {
		return nil, err
	}
	for _, c := range s.Cells {
		r.Add(c.Report())
	}
	r.Report.Parallel, r.Report.PeakMemoryBytes = s.Parallel, s.PeakMemory()
	o.Complete(r, o.KnownFailing)
	return r, nil
}

func median(set *scenarios.Set, evidence []*verdicts.Evidence) time.Duration {
	var took []time.Duration
	for _, e := range evidence {
		if s, ok := set.Get(e.Scenario); ok {
			took = append(took, e.Ended.Sub(e.Started)-s.Waits())
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

const (
	// cellMemory is what one cell may need. Measured are 200 to 350 MiB, shared pages
	// and what authzconf remembers of it included; a loaded kube-apiserver has more.
	cellMemory = 400 << 20
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
	if free := availableMemory(); free > 0 {
		n = min(n, int(free/memory))
	}
	return max(1, n)
}

// availableMemory is what the kernel thinks new processes can have without swapping, in bytes; 0 where it does not say.
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

const memoryEvery = 2 * time.Second

// memoryWatch remembers the most memory that was held at once.
type memoryWatch struct{ peak atomic.Int64 }

// lessMemory is how much less memory the machine has free than now: processes of kind are no children of ours.
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
		if stat, err := p.Stat(); err != nil || p.PID != own && stat.PPID != own {
			continue // not ours, or it ended meanwhile
		}
		if status, err := p.NewStatus(); err == nil {
			sum += status.RssAnon + status.RssShmem
			files = max(files, status.RssFile)
		}
	}
	return int64(sum + files)
}
