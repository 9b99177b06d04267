package cost

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/authzconf/authzconf/reports/statistics"
)

// magnitude is by how much a time may exceed another that is "of the same magnitude".
const magnitude = 10

// Row compares a variant with the one that it is measured against.
type Row struct {
	Name string
	// Median is that of the blocks, in the unit of the table.
	Median float64
	// Ratio is how many times the other variant's it is, with its 95 % interval, and P the p-value of there being no
	// difference: both by Student's t over rounds.
	Ratio statistics.Interval
	P     float64
}

// compare makes a row of each variant: blocks of the same round are a pair.
func compare(blocks map[string][]float64, against string, names ...string) (out []Row, err error) {
	for _, name := range names {
		ratios, err := statistics.LogRatios(blocks[against], blocks[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(ratios) == 0 {
			return nil, fmt.Errorf("%s: nothing was measured", name)
		}
		ratio, _ := statistics.MeanInterval(ratios, 0.95)
		out = append(out, Row{Name: name, Median: median(blocks[name]), P: statistics.TTest(ratios), Ratio: ratio.Map(math.Exp)})
	}
	return out, nil
}

func median(in []float64) float64 {
	x := slices.Sorted(slices.Values(in))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// Print writes the tables.
func (c *Cost) Print(to io.Writer) error {
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(t, format+"\n", args...) }
	line("webhook calls per request\tanswers cached\tauthorizer\tadmission webhook\tas expected")
	for _, row := range c.Calls {
		line("over-grant and admission webhook\t%t\t%.2f\t%.2f\t%t", row.Cached, row.Reviews, row.Judged, row.Agrees())
	}
	for _, e := range expressions {
		rows, err := compare(c.Evaluations[e.name], variantVAP, variantVAP, variantCompiled, variantText, variantWebhook)
		if err != nil {
			return err
		}
		line("\t\t\t\t\n%s: %s\tmedian, µs\ttimes the policy's (95 %%)\tp\tsame magnitude", e.name, e.text)
		line("%s\t%.1f\t\t\t", variantVAP, rows[0].Median)
		for _, r := range rows[1:] {
			same := "no"
			if r.Ratio.Low > 1.0/magnitude && r.Ratio.High < magnitude {
				same = "yes"
			}
			line("%s\t%.1f\t%.2f (%.2f to %.2f)\t%.4f\t%s", r.Name, r.Median, r.Ratio.Estimate, r.Ratio.Low, r.Ratio.High, r.P, same)
		}
	}
	rows, err := compare(c.Latencies, variantPlain, variantPlain, variantVAP, variantToday)
	if err != nil {
		return err
	}
	line("\t\t\t\t\na create, answered by the API server\tmedian, ms\ttimes that without policy (95 %%)\tp\t")
	line("%s\t%.2f\t\t\t", variantPlain, rows[0].Median)
	for _, r := range rows[1:] {
		line("%s\t%.2f\t%.2f (%.2f to %.2f)\t%.4f\t", r.Name, r.Median, r.Ratio.Estimate, r.Ratio.Low, r.Ratio.High, r.P)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(to, "\n%d rounds of interleaved blocks, %d requests each, seed %d; same magnitude: the interval lies within %d times\n",
		c.Options.Rounds, c.Options.Requests, c.Options.Seed, magnitude)
	return err
}
