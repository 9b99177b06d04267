package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/verdicts"
)

// progress shows a run: on a terminal one line that is rewritten, otherwise a plain line every so often, so that
// a log stays short.
type progress struct {
	out     io.Writer
	live    bool
	verbose bool
	total   int
	started time.Time

	mu           sync.Mutex
	done, failed int
	shown        time.Time
	said         string // the last text or reason printed
}

// plainEvery is the pause between two plain progress lines.
const plainEvery = 5 * time.Second

func newProgress(out io.Writer, total int, verbose bool) *progress {
	f, ok := out.(*os.File)
	live := ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
	return &progress{out: out, live: live, verbose: verbose, total: total, started: time.Now(), shown: time.Now()}
}

// event implements the session's callback.
func (p *progress) event(e session.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
	p.status()
}

// status rewrites the live line, or prints a plain one if it is time.
func (p *progress) status() {
	text := fmt.Sprintf("%d/%d scenarios, %d not passed, %.0f s", p.done, p.total, p.failed, time.Since(p.started).Seconds())
	switch {
	case p.live:
		_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", text)
	case time.Since(p.shown) > plainEvery:
		p.shown = time.Now()
		_, _ = fmt.Fprintln(p.out, text)
	}
}

// line prints a whole line above the live one.
func (p *progress) line(text string) {
	if p.live {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
	_, _ = fmt.Fprintln(p.out, text)
}

// end clears the live line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
