package shard

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
	before, _ := Used(os.Getpid())
	sum := 0
	for begin := time.Now(); time.Since(begin) < 100*time.Millisecond; {
		sum++
	}
	cpu, rss := Used(os.Getpid())
	if cpu <= before {
		t.Errorf("no processor time was used to count to %d", sum)
	}
	if rss < 1<<20 || rss > 1<<34 {
		t.Errorf("resident memory %d", rss)
	}
	if cpu, rss := Used(-1); cpu != 0 || rss != 0 {
		t.Error("a process that is not there uses something")
	}
}
