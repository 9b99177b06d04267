package storm

import (
	"runtime"

	"github.com/prometheus/procfs"

	"github.com/authzconf/authzconf/loadgen/run"
)

// inspectMachine returns the machine that everything runs on.
func inspectMachine() run.Machine {
	m := run.Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH}
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if memory, err := proc.Meminfo(); err == nil && memory.MemTotalBytes != nil {
			m.MemoryBytes = int64(*memory.MemTotalBytes)
		}
	}
	return m
}

// loadAverage returns the load average of the last minute, or 0 if the kernel does not report it in /proc.
func loadAverage() float64 {
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if load, err := proc.LoadAvg(); err == nil {
			return load.Load1
		}
	}
	return 0
}
