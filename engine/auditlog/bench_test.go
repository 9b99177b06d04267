package auditlog_test

import (
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Flags of TestBenchAdvise.
var (
	megabytes = flag.Int64("size", 1000, "size of each log, in MB")
	repeats   = flag.Int("repeats", 3, "how often each is read; the fastest counts")
)

// benchCases are the logs that are measured.
var benchCases = []struct {
	name     string
	perMille int
	gzip     bool
}{
	{"nobody impersonates", 0, false},
	{"1 % impersonate", 10, false},
	{"all impersonate", 1000, false},
	{"1 %, gzip", 10, true},
}

// TestBenchAdvise measures what authzconf advise needs for a large audit log, with the program that AUTHZCONF_BENCH
// names: MB/s and peak memory of the process. make bench-advise asks for it.
func TestBenchAdvise(t *testing.T) {
	program := os.Getenv("AUTHZCONF_BENCH")
	if program == "" {
		t.Skip("a measurement of minutes: make bench-advise")
	}
	size, path := *megabytes*1e6, filepath.Join(t.TempDir(), "audit.log")
	fmt.Printf("%-22s %10s %10s %12s\n", "log", "size", "MB/s", "peak memory")
	for _, c := range benchCases {
		if err := writeLog(path, sample{size: size, perMille: c.perMille, seed: 1}, c.gzip); err != nil {
			t.Fatal(err)
		}
		best, peak := time.Duration(0), int64(0)
		for range *repeats {
			took, memory, err := measure(t.Context(), program, path)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if best == 0 || took < best {
				best = took
			}
			peak = max(peak, memory)
		}
		fmt.Printf("%-22s %7d MB %10.0f %8d MiB\n", c.name, size/1e6, float64(size)/1e6/best.Seconds(), peak>>20)
	}
}

func writeLog(path string, s sample, compress bool) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	var out io.WriteCloser = f
	if compress {
		out = gzip.NewWriter(f)
	}
	if _, err := s.write(out); err != nil {
		return err
	}
	if compress {
		if err := out.Close(); err != nil {
			return err
		}
	}
	return f.Close()
}

// measure runs the program on one core.
func measure(ctx context.Context, program, path string) (time.Duration, int64, error) {
	cmd := exec.CommandContext(ctx, program, "advise", path)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	begun := time.Now()
	err := cmd.Run()
	took := time.Since(begun)
	// 3: a log in which nobody impersonates has no advice.
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 3 {
		return 0, 0, fmt.Errorf("exit code %s: %w", strconv.Itoa(code), err)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return took, 0, nil
	}
	return took, usage.Maxrss << 10, nil // Linux counts in KiB
}
