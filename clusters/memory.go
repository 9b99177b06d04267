package clusters

import "github.com/prometheus/procfs"

// AvailableMemory returns what the kernel thinks new processes of this machine can have without swapping, in bytes. It is not
// known, and 0, where there is no /proc.
func AvailableMemory() (bytes int64, isKnown bool) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, false
	}
	memory, err := proc.Meminfo()
	if err != nil || memory.MemAvailableBytes == nil {
		return 0, false
	}
	return int64(*memory.MemAvailableBytes), true
}
