package shard

import (
	"time"

	"github.com/prometheus/procfs"
)

// Used is the processor time that a process has used so far, user and system, to 10 ms, and its resident memory in
// bytes; 0 where the kernel does not say it in /proc.
func Used(pid int) (cpu time.Duration, rss int64) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0
	}
	stat, err := p.Stat()
	if err != nil {
		return 0, 0
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)).Round(time.Millisecond), int64(stat.ResidentMemory())
}
