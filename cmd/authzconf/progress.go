package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
)

// productProgress shows how far a run is.
type productProgress struct {
	*progress
}

func newProductProgress(w io.Writer, cases []product.Case, verbose bool) *productProgress {
	total := 0
	for _, c := range cases {
		if c.NotRun == nil {
			total++
		}
	}
	return &productProgress{newProgress(w, total, verbose)}
}

func (p *productProgress) say(text string) {
	p.counting.Lock()
	defer p.counting.Unlock()
	p.said = text
	p.line(text)
}

func (p *productProgress) showStatus(text string) {
	p.counting.Lock()
	defer p.counting.Unlock()
	p.status(text)
}

func (p *productProgress) addResult(c product.Case, r reports.Result) {
	p.counting.Lock()
	defer p.counting.Unlock()
	p.done++
	if r.Bad() {
		p.failed++
	}
	// When a target dies, all remaining cases have the same reason, which contains its log. It is shown once.
	isNews := r.Bad() && !strings.HasSuffix(p.said, r.Reason)
	if p.verbose || isNews {
		p.line(fmt.Sprintf("%-8s %s  %s%s", r.Verdict, c.Group, c.Name, formatDuration(r.Seconds)))
	}
	if isNews {
		p.said = r.Reason
		p.line("         " + p.said)
	}
	p.status(fmt.Sprintf("%d/%d cases, %d not passed, %.0f s", p.done, p.total, p.failed, time.Since(p.started).Seconds()))
}

// formatDuration returns, to follow the name of a case, how long the case took, or "" if that was not measured.
func formatDuration(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.0f ms)", 1000*seconds)
}
