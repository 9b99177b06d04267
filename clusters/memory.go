package clusters

import "github.com/prometheus/procfs"

// AvailableMemory returns how many bytes of memory new processes on this machine can have without swapping, according
// to the kernel. It returns 0 if there is no /proc.
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
