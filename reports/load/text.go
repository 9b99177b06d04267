package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/authzconf/authzconf/reports/load/histogram"
	"github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

func kindsOf(blocks []*run.Block) []string {
	kinds := map[string]bool{}
	for _, b := range blocks {
		for k := range b.Kinds {
			kinds[k] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

func mergedKind(blocks []*run.Block, kind string) histogram.Histogram {
	var merged histogram.Histogram
	for _, b := range blocks {
		h := b.Kinds[kind]
		merged.Merge(&h)
	}
	return merged
}

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

// againText is "12 × 429, 20 × refused", or a dash.
func againText(again map[string]int64) string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(again)) {
		parts = append(parts, fmt.Sprintf("%d × %s", again[status], status))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
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

func predictedText(r ReviewRate) string {
	if r.Predicted == nil {
		return r.Verdict
	}
	return fmt.Sprintf("%g to %g: %s", r.Predicted.Warm, r.Predicted.Cold, r.Verdict)
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

// Summarize writes one line for each variant on each server: what was measured, and not what follows from it.
func Summarize(w io.Writer, r *run.Run, result *Result) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "VARIANT\tSERVER\tBLOCKS\tREQUESTS\tREVIEWS PER REQUEST\tPREDICTED\tP50 MS\tP99 MS\tSERVER CPU MS PER REQUEST\tASKED AGAIN\tERRORS\tLATE\tDROPPED\t")
	for _, v := range result.Variants {
		predicted := "-"
		if p := v.Reviews.Predicted; p != nil {
			predicted = fmt.Sprintf("%.3g to %.3g", p.Warm, p.Cold)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%.3f\t%s\t%.2f\t%.2f\t%.2f\t%s\t%d\t%d\t%d\t\n", v.Variant, v.Server, v.Blocks, v.Sent, v.Reviews.PerRequest.Estimate,
			predicted, v.P50.Milliseconds, v.P99.Milliseconds, v.ServerCPU, againText(v.Again), v.Errors, v.Late, v.Dropped)
	}
	_ = table.Flush()
	printUsage(w, result.Variants)
	for _, p := range r.Problems {
		_, _ = fmt.Fprintf(w, "problem: %s\n", p.Text)
	}
}
