package load

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

func text(d run.Duration) string { return time.Duration(d).String() }

// percent is a part as "+3.1 %".
func percent(part float64) string {
	if math.Abs(part) < 0.0005 {
		return "0.0 %"
	}
	return fmt.Sprintf("%+.1f %%", 100*part)
}

func bracket(i statistics.Interval) string {
	return fmt.Sprintf("[%s, %s]", strings.TrimSuffix(percent(i.Low), " %"), percent(i.High))
}

// changeText is "+3.1 % [+1.2, +5.0 %]", or why it is unknown.
func changeText(e Effect) string {
	if !e.Measured {
		return "unknown (" + e.Why + ")"
	}
	return percent(e.Change.Estimate) + " " + bracket(e.Change)
}

// millisecondsText is "+0.120 [+0.050, +0.190] ms".
func millisecondsText(e Effect) string {
	if !e.Measured {
		return ""
	}
	return fmt.Sprintf("%+.3f [%+.3f, %+.3f] ms", e.Milliseconds.Estimate, e.Milliseconds.Low, e.Milliseconds.High)
}

func boundText(q QuantileBound) string {
	if !q.Bounded {
		return fmt.Sprintf("%.2f ms (no bounds: %d answers)", q.Milliseconds, q.Samples)
	}
	return fmt.Sprintf("%.2f ms [%.2f, %.2f]", q.Milliseconds, q.Low, q.High)
}

func reviewsText(r ReviewRate) string {
	if !r.Bounded {
		return fmt.Sprintf("%.3f reviews per request", r.PerRequest.Estimate)
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f] reviews per request", r.PerRequest.Estimate, r.PerRequest.Low, r.PerRequest.High)
}

// pText is "0.004 (adjusted 0.028)": the interval beside it goes with the first.
func pText(e Effect) string {
	if !e.Measured {
		return ""
	}
	return pValue(e.P) + " (adjusted " + pValue(e.PHolm) + ")"
}

func pValue(p float64) string {
	if p < 0.0005 {
		return "< 0.001"
	}
	return fmt.Sprintf("%.3f", p)
}

// marginText is "equivalent: [-0.5, +1.2 %] against 5 %".
func marginText(e Effect) string {
	if e.Verdict == "" {
		return "not asked"
	}
	if !e.Measured {
		return "unknown"
	}
	return fmt.Sprintf("%s: 90 %% interval %s, margin %g %%", e.Verdict, bracket(e.Ninety), 100*e.Margin)
}

func shortEffect(e Effect) string {
	if !e.Measured {
		return changeText(e)
	}
	return changeText(e) + ", " + millisecondsText(e) + ", p " + pText(e)
}

// String is the effect on one line: "+3.1 % [+1.2, +5.0 %], +0.12 [+0.05, +0.19] ms, p 0.003 (adjusted 0.02); equivalent: …".
func (e Effect) String() string {
	s := shortEffect(e)
	if e.Measured && e.Verdict != "" {
		s += "; " + marginText(e)
	}
	return s
}

// asked says who took part and, of the blocks, how many asked and how many times each.
func asked(r *run.Run) string {
	least, most, seldom, often := math.MaxInt, 0, math.MaxInt, 0
	for _, b := range r.Blocks {
		if p := b.Predicted; p != nil && p.Asked > 0 {
			least, most, seldom, often = min(least, p.Asked), max(most, p.Asked), min(seldom, p.Seldom), max(often, p.Often)
		}
	}
	text := r.Population.String()
	if most > 0 {
		text += fmt.Sprintf(". In a block of %s %s of %d asked, %s each", time.Duration(r.Blocks[0].Length), fromTo(least, most), r.Agents, timesText(seldom, often))
	}
	return text
}

func timesText(low, high int) string {
	if high == 1 {
		return "once"
	}
	return fromTo(low, high) + " times"
}

func fromTo(low, high int) string {
	if low == high {
		return strconv.Itoa(low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}

// Summarize writes one line for each variant on each server: what was measured, and not what follows from it.
func Summarize(w io.Writer, r *run.Run, result *Result) error {
	text, err := markdown("console", page{Run: r, Result: result})
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = table.Write(text)
	return cmp.Or(err, table.Flush())
}
