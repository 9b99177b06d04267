package loadgen

import (
	"slices"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/storm"
)

func TestDescribeProgress(t *testing.T) {
	before := storm.Progress{Block: 2, Elapsed: 3 * time.Second, Asked: 60, Reviews: 100}
	before.Live.Sent = 58
	now := storm.Progress{
		Block:   2,
		Blocks:  8,
		Side:    profile.Side{Variant: "denied", Server: profile.GateOnServer},
		Elapsed: 5 * time.Second,
		Left:    90 * time.Second,
		Asked:   100,
		Reviews: 220,
	}
	now.Live.Sent, now.Live.Errors = 98, 1
	for range 100 {
		now.Live.Latency.Record(5 * time.Millisecond)
	}
	const want = "block 2/8 denied on gate-on: 20.0 of 20.0 requests/s, p50 5.0 ms, p99 5.0 ms, 60.0 reviews/s, 1 errors, 1m30s left"
	if got := describeProgress(before, now); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestShowCreated checks that of objects that are created by thousands in a second, the first and the last count are
// shown, and some between.
func TestShowCreated(t *testing.T) {
	var shown []string
	p := newProgress(func(text string) { shown = append(shown, text) })
	for done := range int64(1000) {
		p.showCreated(done+1, 1000)
	}
	if len(shown) > 20 || shown[0] != "1 of 1,000 objects" || !slices.Contains(shown, "1,000 of 1,000 objects") {
		t.Errorf("%q", shown)
	}
}
