package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/authzconf/authzconf/loadgen/storm"
)

// loadProgress shows a storm: on a terminal one line that is rewritten every
// second, otherwise a plain line every so often.
type loadProgress struct {
	out  io.Writer
	live bool

	mu    sync.Mutex
	shown time.Time
	last  storm.Progress
}

func newLoadProgress(out io.Writer) *loadProgress {
	f, ok := out.(*os.File)
	return &loadProgress{out: out, live: ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb", shown: time.Now()}
}

func (p *loadProgress) said(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	_, _ = fmt.Fprintln(p.out, text)
}

func (p *loadProgress) clear() {
	if p.live {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// progress shows rates over the time since the last call, latencies over the
// block.
func (p *loadProgress) progress(now storm.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.last
	if before.Block != now.Block {
		before = storm.Progress{}
	}
	p.last = now
	p.status(loadLine(before, now))
}

// created counts the objects that are there before the first block. On a terminal
// that is often enough a few times a second.
func (p *loadProgress) created(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live && done < total && time.Since(p.shown) < liveEvery {
		return
	}
	p.status(inEnglish.Sprintf("%d of %d objects", done, total))
}

// status shows how it is going; p.mu is held.
func (p *loadProgress) status(text string) {
	switch {
	case p.live:
		p.shown = time.Now()
		_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", text)
	case time.Since(p.shown) > plainEvery:
		p.shown = time.Now()
		_, _ = fmt.Fprintln(p.out, text)
	}
}

// inEnglish groups digits.
var inEnglish = message.NewPrinter(language.English)

// liveEvery is the pause between two counts on a terminal.
const liveEvery = 200 * time.Millisecond

// loadLine is the state of a storm on one line.
func loadLine(before, now storm.Progress) string {
	seconds := max((now.Elapsed - before.Elapsed).Seconds(), 0.001)
	rate := func(now, before float64) float64 { return (now - before) / seconds }
	ms := func(q float64) float64 { return float64(now.Live.Latency.Quantile(q).Microseconds()) / 1000 }
	return fmt.Sprintf("block %d/%d %s on %s: %.1f of %.1f requests/s, p50 %.1f ms, p99 %.1f ms, %.1f reviews/s, %d errors, %s left",
		now.Block, now.Blocks, now.Side.Variant, now.Side.Server,
		rate(float64(now.Live.Sent), float64(before.Live.Sent)), rate(now.Asked, before.Asked), ms(0.5), ms(0.99),
		rate(float64(now.Reviews), float64(before.Reviews)), now.Live.Errors, now.Left.Round(time.Second))
}

func (p *loadProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}
