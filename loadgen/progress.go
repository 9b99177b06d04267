package loadgen

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/authzconf/authzconf/loadgen/storm"
)

// progress shows how a storm is going on a line of status.
type progress struct {
	status func(text string)

	mu    sync.Mutex
	shown time.Time
	last  storm.Progress
}

func newProgress(status func(text string)) *progress { return &progress{status: status} }

// createdEvery is the pause between two counts of objects. Thousands of objects are created in a second.
const createdEvery = 200 * time.Millisecond

var inEnglish = message.NewPrinter(language.English)

// showCreated shows how many objects of the agents exist, now and then and at the end.
func (p *progress) showCreated(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if done < total && time.Since(p.shown) < createdEvery {
		return
	}
	p.shown = time.Now()
	p.status(inEnglish.Sprintf("%d of %d objects", done, total))
}

// showBlock shows rates over the time since the last call, and latencies over the block.
func (p *progress) showBlock(now storm.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.last
	if before.Block != now.Block {
		before = storm.Progress{}
	}
	p.last = now
	p.status(describeProgress(before, now))
}

func describeProgress(before, now storm.Progress) string {
	seconds := max((now.Elapsed - before.Elapsed).Seconds(), 0.001)
	rate := func(now, before float64) float64 { return (now - before) / seconds }
	ms := func(q float64) float64 { return float64(now.Live.Latency.Quantile(q).Microseconds()) / 1000 }
	return fmt.Sprintf("block %d/%d %s on %s: %.1f of %.1f requests/s, p50 %.1f ms, p99 %.1f ms, %.1f reviews/s, %d errors, %s left",
		now.Block, now.Blocks, now.Side.Variant, now.Side.Server,
		rate(float64(now.Live.Sent), float64(before.Live.Sent)), rate(now.Asked, before.Asked), ms(0.5), ms(0.99),
		rate(float64(now.Reviews), float64(before.Reviews)), now.Live.Errors, now.Left.Round(time.Second))
}
