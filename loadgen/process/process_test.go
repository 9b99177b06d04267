package process

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestSelf(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	before := CPU(os.Getpid())
	sum := 0
	for begin := time.Now(); time.Since(begin) < 100*time.Millisecond; {
		sum++
	}
	if CPU(os.Getpid()) <= before {
		t.Errorf("no processor time was used to count to %d", sum)
	}
	if rss := RSS(os.Getpid()); rss < 1<<20 || rss > 1<<34 {
		t.Errorf("resident memory %d", rss)
	}
	if m := Machine(); m.CPUs < 1 || m.MemoryBytes < 1<<20 || m.Go == "" {
		t.Errorf("machine %+v", m)
	}
	if CPU(-1) != 0 || RSS(-1) != 0 {
		t.Error("a process that is not there uses something")
	}
}
