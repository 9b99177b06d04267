package run

import (
	"fmt"
	"time"
)

// Pressure is how much a block had to share the machine: differences over the block, from a kernel that reports them.
type Pressure struct {
	// Stolen is the processor time that the hypervisor gave to others, summed over processors (/proc/stat, steal).
	Stolen Duration `json:"stolen"`
	// Busy is the processor time of everything that ran on the machine.
	Busy Duration `json:"busy"`
	// Waited is how long at least one process waited for a processor (/proc/pressure/cpu, some).
	Waited Duration `json:"waited"`
}

// Since returns the pressure since an earlier reading.
func (p Pressure) Since(before Pressure) Pressure {
	return Pressure{Stolen: p.Stolen - before.Stolen, Busy: p.Busy - before.Busy, Waited: p.Waited - before.Waited}
}

// These are the parts of the machine's processor time that others may use in a block whose times are compared. They
// were fixed before anything was measured by them.
const (
	StolenLimit = 0.01
	OthersLimit = 0.1
)

// FindDisturbance returns why a block that ran on a machine with a number of processors says nothing about time, or ""
// if it does or if that is unknown.
func (b *Block) FindDisturbance(processors int) string {
	if b.Pressure == nil || processors == 0 || b.Length <= 0 {
		return ""
	}
	available := float64(b.Length) * float64(processors)
	if part := float64(b.Pressure.Stolen) / available; part > StolenLimit {
		return fmt.Sprintf("the hypervisor took %.1f %% of the processor time, at most %g %% may be", 100*part, 100*StolenLimit)
	}
	if part := float64(b.Others()) / available; part > OthersLimit {
		return fmt.Sprintf("other processes had %.1f %% of the processor time, at most %g %% may be", 100*part, 100*OthersLimit)
	}
	return ""
}

// Others returns the processor time that neither the generator nor the programs under load used.
func (b *Block) Others() time.Duration {
	if b.Pressure == nil {
		return 0
	}
	others := b.Pressure.Busy - b.GeneratorCPU
	for _, c := range b.Cost {
		others -= c.CPU
	}
	return max(0, time.Duration(others))
}

// DescribePressure returns how much of the machine others used over all blocks, and how long processes waited, or "" if
// that is unknown.
func (r *Run) DescribePressure() string {
	var stolen, others, waited, length time.Duration
	for i := range r.Blocks {
		b := &r.Blocks[i]
		if b.Pressure == nil {
			return ""
		}
		stolen, waited = stolen+time.Duration(b.Pressure.Stolen), waited+time.Duration(b.Pressure.Waited)
		others, length = others+b.Others(), length+time.Duration(b.Length)
	}
	available := float64(length) * float64(r.Machine.CPUs)
	if available <= 0 {
		return ""
	}
	return fmt.Sprintf(
		"other processes had %.1f %% of the processor time in the blocks, the hypervisor took %.1f %%; some process waited for a processor %.0f %% of the time",
		100*float64(others)/available,
		100*float64(stolen)/available,
		100*float64(waited)/float64(length),
	)
}
