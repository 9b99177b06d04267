package kind

import (
	"bufio"
	"fmt"
	"os"
)

// What the nodes of a cluster take of the machine's memory while scenarios run, measured (docs/kind.md).
const (
	controlPlaneBytes = 700 << 20
	workerBytes       = 250 << 20
)

// availableMemory returns how much memory programs can still have, in bytes. It is not known where there is no /proc.
func availableMemory() (bytes int64, known bool) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var kilobytes int64
		if n, _ := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10, true
		}
	}
	return 0, false
}
