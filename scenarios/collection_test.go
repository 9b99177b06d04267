package scenarios

import (
	"runtime/debug"
	"testing"
)

// TestCollectionIsAsBefore checks that loads, also at the same time, leave the process with the percentage that it had.
func TestCollectionIsAsBefore(t *testing.T) {
	const usual = 123
	before := debug.SetGCPercent(usual)
	defer debug.SetGCPercent(before)
	loading.begin()
	loading.begin()
	loading.end()
	if got := debug.SetGCPercent(rarePercent); got != rarePercent {
		t.Errorf("while a load is under way, the percentage is %d, want %d", got, rarePercent)
	}
	loading.end()
	if got := debug.SetGCPercent(usual); got != usual {
		t.Errorf("after all loads, the percentage is %d, want %d", got, usual)
	}
}
