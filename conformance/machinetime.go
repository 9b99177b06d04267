package conformance

import (
	"maps"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/authzconf/authzconf/reports"
)

// OwnName is the name of this program among those whose processor time is counted. The recorder runs in it.
const OwnName = "authzconf"

// countTime adds processor time of programs, by name.
func (s *Session) countTime(usage map[string]time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.processorTime == nil {
		s.processorTime = map[string]time.Duration{}
	}
	for name, d := range usage {
		s.processorTime[name] += d
	}
}

// machineRecord returns what the run has taken of the machine so far.
func (s *Session) machineRecord() MachineRecord {
	m := MachineRecord{
		Parallel: s.Parallel, PeakMemoryBytes: s.PeakMemory(),
		Seconds: time.Since(s.began).Seconds(), Processors: runtime.GOMAXPROCS(0),
		ProcessorSeconds: map[string]float64{OwnName: ownProcessorTime().Seconds()},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, d := range s.processorTime {
		m.ProcessorSeconds[name] = d.Seconds()
	}
	return m
}

// ownProcessorTime returns the processor time that this process has taken; 0 where that cannot be read.
func ownProcessorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// processorFigures returns the processor time of each program, and which part of the processors' time nothing of the run used.
func processorFigures(m MachineRecord) (figures []reports.Figure) {
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(m.ProcessorSeconds)) {
		seconds := m.ProcessorSeconds[name]
		sum += seconds
		figures = append(figures, reports.Figure{Name: "processor time of " + name, Value: seconds, Unit: "s"})
	}
	available := m.Seconds * float64(m.Processors)
	if available > 0 {
		figures = append(figures,
			reports.Figure{Name: "processors idle or with other work", Value: 100 * max(0, 1-sum/available), Unit: "%"},
		)
	}
	return figures
}
