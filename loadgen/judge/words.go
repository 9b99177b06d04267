package judge

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// Figures in words: with their intervals, or why there is none.

// String returns the effect on one line: "+3.1 % [+1.2, +5.0 %], +0.12 ms, p 0.003 (adjusted 0.02); equivalent: …".
func (e Effect) String() string {
	if !e.Measured || e.Verdict == "" {
		return e.DescribeDifference()
	}
	return e.DescribeDifference() + "; " + e.DescribeMargin()
}

// DescribeDifference returns the change, in percent and in ms, with its p.
func (e Effect) DescribeDifference() string {
	if !e.Measured {
		return e.DescribeChange()
	}
	return e.DescribeChange() + ", " + e.DescribeMilliseconds() + ", p " + e.DescribeP()
}

// DescribeChange returns the change in percent, or why it is not known.
func (e Effect) DescribeChange() string {
	if !e.Measured {
		return fmt.Sprintf("unknown (%s)", e.Why)
	}
	return FormatChange(e.Change.Estimate) + " " + formatInterval(e.Change)
}

// DescribeInterval returns the 95 % interval of the change, or "" if it is unknown.
func (e Effect) DescribeInterval() string {
	if !e.Measured {
		return ""
	}
	return formatInterval(e.Change)
}

// DescribeMilliseconds returns the mean difference in ms, or "" if it is unknown. It has no interval in addition to
// that of the change: of two intervals of one comparison one could exclude 0 and the other not, and p belongs to one of
// them.
func (e Effect) DescribeMilliseconds() string {
	if !e.Measured {
		return ""
	}
	return fmt.Sprintf("%+.3f ms", e.Milliseconds.Estimate)
}

// DescribeP returns the p that belongs to the interval, and the adjusted one, or "" if it is unknown.
func (e Effect) DescribeP() string {
	if !e.Measured {
		return ""
	}
	return fmt.Sprintf("%s (adjusted %s)", FormatP(e.P), FormatP(e.PHolm))
}

// DescribeMargin returns where the difference lies against the margin that was declared.
func (e Effect) DescribeMargin() string {
	switch {
	case e.Verdict == "":
		return "not asked"
	case !e.Measured:
		return "unknown"
	}
	text := fmt.Sprintf("%s: 90 %% interval %s, margin %s", e.Verdict, formatInterval(e.Ninety), FormatPart(e.Margin))
	if n := e.StartsToDecide(); n > 0 {
		text += fmt.Sprintf("; by the scatter of these %d starts it would take some %d to decide", len(e.Starts), n)
	}
	return text
}

// String returns "12.30 ms [11.02, 13.40]", or the reason why there are no bounds.
func (q QuantileBound) String() string {
	if !q.Bounded {
		return fmt.Sprintf("%.2f ms (no bounds: %d answers)", q.Milliseconds, q.Samples)
	}
	if q.Low == q.High { // one bucket of the histogram
		return fmt.Sprintf("%.2f ms", q.Milliseconds)
	}
	return fmt.Sprintf("%.2f ms [%.2f, %.2f]", q.Milliseconds, q.Low, q.High)
}

// String returns "2.050 [2.010, 2.090]".
func (r ReviewRate) String() string {
	text := fmt.Sprintf("%.3f", r.PerRequest.Estimate)
	if r.Bounded {
		text += fmt.Sprintf(" [%.3f, %.3f]", r.PerRequest.Low, r.PerRequest.High)
	}
	return text
}

// String returns "2.05", or "2.05 to 2.07".
func (r Range) String() string {
	low, high := fmt.Sprintf("%.3f", r.Low), fmt.Sprintf("%.3f", r.High)
	if low == high {
		return low
	}
	return low + " to " + high
}

// String returns "12.3 %, then 14.0 %".
func (s FunctionShare) String() string { return fmt.Sprintf("%.1f %%, then %.1f %%", 100*s.A, 100*s.B) }

func describeDuration(d run.Duration) string { return time.Duration(d).String() }

// FormatChange returns a change in percent, with its sign.
func FormatChange(part float64) string {
	if math.Abs(part) < 0.0005 {
		return "0.0 %"
	}
	return fmt.Sprintf("%+.1f %%", 100*part)
}

// FormatPart returns a part in percent.
func FormatPart(part float64) string { return fmt.Sprintf("%g %%", 100*part) }

// FormatP returns a p-value.
func FormatP(p float64) string {
	if p < 0.0005 {
		return "< 0.001"
	}
	return fmt.Sprintf("%.3f", p)
}

func formatInterval(i statistics.Interval) string {
	return fmt.Sprintf("[%s, %s]", strings.TrimSuffix(FormatChange(i.Low), " %"), FormatChange(i.High))
}
