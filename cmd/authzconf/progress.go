package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/loadgen/storm"
	"github.com/authzconf/authzconf/verdicts"
)

// display shows how something is going: on a terminal in one line that is rewritten, otherwise in a plain line
// every so often, so that a log stays short.
type display struct {
	out  io.Writer
	live bool

	mu    sync.Mutex
	shown time.Time
}

const (
	// plainEvery is the pause between two plain lines.
	plainEvery = 5 * time.Second
	// liveEvery is the pause between two counts on a terminal, for what counts quickly.
	liveEvery = 200 * time.Millisecond
	// eraseLine clears the live line.
	eraseLine = "\r\x1b[K"
)

func newDisplay(out io.Writer) *display {
	f, ok := out.(*os.File)
	return &display{out: out, live: ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb", shown: time.Now()}
}

// due says whether it is time for another line, for what counts quickly.
func (d *display) due() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live {
		return time.Since(d.shown) >= liveEvery
	}
	return time.Since(d.shown) > plainEvery
}

// status rewrites the live line, or prints a plain one if it is time.
func (d *display) status(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.live:
		_, _ = fmt.Fprint(d.out, eraseLine+text)
	case time.Since(d.shown) > plainEvery:
		_, _ = fmt.Fprintln(d.out, text)
	default:
		return
	}
	d.shown = time.Now()
}

// line prints a whole line above the live one.
func (d *display) line(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live {
		text = eraseLine + text
	}
	_, _ = fmt.Fprintln(d.out, text)
}

func (d *display) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live {
		_, _ = fmt.Fprint(d.out, eraseLine)
	}
}

type progress struct {
	*display
	verbose bool
	total   int
	started time.Time

	counting     sync.Mutex
	done, failed int
	said         string // the last text or reason printed
}

func newProgress(out io.Writer, total int, verbose bool) *progress {
	return &progress{display: newDisplay(out), verbose: verbose, total: total, started: time.Now()}
}

func (p *progress) event(e session.Event) {
	p.counting.Lock()
	defer p.counting.Unlock()
	if e.Text != "" {
		p.said = e.Text
		p.line(e.Text)
	}
	if e.Result == nil {
		return
	}
	p.done++
	bad := e.Result.Verdict == verdicts.Failed || e.Result.Verdict == verdicts.Invalid
	if bad {
		p.failed++
	}
	// When a target dies all that is left has the same reason, with its log: it is shown once.
	again := bad && strings.HasSuffix(p.said, e.Result.Reason)
	if p.verbose || bad && !again {
		p.line(fmt.Sprintf("%-8s %s  %s (%d ms)", e.Result.Verdict, e.Result.Cell, e.Result.Scenario, e.Took.Milliseconds()))
	}
	if bad && !again {
		p.said = e.Result.Reason
		p.line("         " + p.said)
	}
	p.status(fmt.Sprintf("%d/%d scenarios, %d not passed, %.0f s", p.done, p.total, p.failed, time.Since(p.started).Seconds()))
}

type loadProgress struct {
	*display
	last storm.Progress
}

// progress shows rates over the time since the last call, latencies over the block.
func (p *loadProgress) progress(now storm.Progress) {
	before := p.last
	if before.Block != now.Block {
		before = storm.Progress{}
	}
	p.last = now
	p.status(loadLine(before, now))
}

// created counts the objects that are there before the first block.
func (p *loadProgress) created(done, total int64) {
	if done == total || p.due() {
		p.status(inEnglish.Sprintf("%d of %d objects", done, total))
	}
}

// inEnglish groups digits.
var inEnglish = message.NewPrinter(language.English)

func loadLine(before, now storm.Progress) string {
	seconds := max((now.Elapsed - before.Elapsed).Seconds(), 0.001)
	rate := func(now, before float64) float64 { return (now - before) / seconds }
	ms := func(q float64) float64 { return float64(now.Live.Latency.Quantile(q).Microseconds()) / 1000 }
	return fmt.Sprintf("block %d/%d %s on %s: %.1f of %.1f requests/s, p50 %.1f ms, p99 %.1f ms, %.1f reviews/s, %d errors, %s left",
		now.Block, now.Blocks, now.Side.Variant, now.Side.Server,
		rate(float64(now.Live.Sent), float64(before.Live.Sent)), rate(now.Asked, before.Asked), ms(0.5), ms(0.99),
		rate(float64(now.Reviews), float64(before.Reviews)), now.Live.Errors, now.Left.Round(time.Second))
}
