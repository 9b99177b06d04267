package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/simulated"
)

// Starts that were none are seen by the processes.
func TestStarts(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*run.Block)
		why   string
	}{
		{"never restarted", func(b *run.Block) { b.ServerStarted = time.Unix(1, 0) }, "is the same process in the starts 0 and 1"},
		{"does not say", func(b *run.Block) { b.ServerStarted = time.Time{} }, "does not say since when it runs"},
		{"sides of two starts", func(b *run.Block) {
			if b.Role == "A" && b.Pair == 4 {
				b.Start = 0
			}
		}, "has its sides in two starts of the servers, 0 and 1"},
	} {
		r := simulated.Sound().Run()
		for i := range r.Blocks {
			c.spoil(&r.Blocks[i])
		}
		if result := Judge(r, allOf()); result.Outcome != Inconclusive || !strings.Contains(reasonsText(result), c.why) {
			t.Errorf("%s: %s", c.name, reasonsText(result))
		}
	}
}
