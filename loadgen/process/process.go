// Package process reads what processes and the machine use, where the kernel
// says it in /proc; elsewhere everything is 0.
package process

import (
	"runtime"
	"time"

	"github.com/prometheus/procfs"

	"github.com/authzconf/authzconf/reports/load/run"
)

// CPU is the processor time, user and system, that a process has used so far, to
// 10 ms.
func CPU(pid int) time.Duration {
	stat, ok := statOf(pid)
	if !ok {
		return 0
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)).Round(time.Millisecond)
}

// RSS is the resident memory of a process, in bytes.
func RSS(pid int) int64 {
	stat, ok := statOf(pid)
	if !ok {
		return 0
	}
	return int64(stat.ResidentMemory())
}

// PeakRSS is the most resident memory that a process has had, in bytes.
func PeakRSS(pid int) int64 {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0
	}
	return int64(status.VmHWM)
}

func statOf(pid int) (procfs.ProcStat, bool) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, false
	}
	stat, err := p.Stat()
	return stat, err == nil
}

// Machine says where this process runs.
func Machine() run.Machine {
	m := run.Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, LoadBefore: Load()}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return m
	}
	if memory, err := proc.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		m.MemoryBytes = int64(*memory.MemTotalBytes)
	}
	return m
}

// Load is the load average of the last minute.
func Load() float64 {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	load, err := proc.LoadAvg()
	if err != nil {
		return 0
	}
	return load.Load1
}
