package storm

import (
	"time"

	"github.com/prometheus/procfs"

	"github.com/authzconf/authzconf/loadgen/run"
)

// readPressure returns what this machine has done so far, or nil if the kernel does not report it.
func readPressure() *run.Pressure {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil
	}
	stat, err := proc.Stat()
	if err != nil {
		return nil
	}
	waits, err := proc.PSIStatsForResource("cpu")
	if err != nil || waits.Some == nil {
		return nil
	}
	all := stat.CPUTotal
	seconds := func(s float64) run.Duration { return run.Duration(s * float64(time.Second)) }
	return &run.Pressure{
		Stolen: seconds(all.Steal),
		Busy:   seconds(all.User + all.Nice + all.System + all.IRQ + all.SoftIRQ),
		Waited: run.Duration(time.Duration(waits.Some.Total) * time.Microsecond),
	}
}

// pressureSince returns the pressure since an earlier reading, or nil if either is missing.
func pressureSince(before *run.Pressure) *run.Pressure {
	now := readPressure()
	if now == nil || before == nil {
		return nil
	}
	return new(now.Since(*before))
}
