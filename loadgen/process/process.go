// Package process reads what processes and the machine use, where the kernel
// says it in /proc; elsewhere everything is 0.
package process

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
)

// tick is the unit of processor time in /proc (USER_HZ), which is the same on
// every Linux that Go runs on.
const tick = 10 * time.Millisecond

// CPU is the processor time, user and system, that a process has used so far.
func CPU(pid int) time.Duration {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	return cpuOf(string(data))
}

// cpuOf reads a line of /proc/PID/stat. The name, in parentheses, may hold
// anything.
func cpuOf(stat string) time.Duration {
	const user, system = 11, 12 // counted from the state, which follows the name
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= system {
		return 0
	}
	var sum int64
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0
		}
		sum += n
	}
	return time.Duration(sum) * tick
}

// RSS is the resident memory of a process, in bytes.
func RSS(pid int) int64 { return status(pid, "VmRSS:") }

// PeakRSS is the most resident memory that a process has had, in bytes.
func PeakRSS(pid int) int64 { return status(pid, "VmHWM:") }

func status(pid int, name string) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	return kilobytes(data, name)
}

// kilobytes reads a line such as "VmRSS:  1234 kB", and returns bytes.
func kilobytes(data []byte, name string) int64 {
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var n int64
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok {
			if _, err := fmt.Sscan(rest, &n); err == nil {
				return n << 10
			}
		}
	}
	return 0
}

// Machine says where this process runs.
func Machine() run.Machine {
	m := run.Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, LoadBefore: Load()}
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.MemoryBytes = kilobytes(data, "MemTotal:")
	}
	return m
}

// Load is the load average of the last minute.
func Load() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}
