package storm

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/reports/load/run"
)

// Describe writes what a run would do, and what the oracle predicts.
func Describe(w io.Writer, o Options) error {
	p := o.Profile
	_, _ = fmt.Fprintf(w, "%s: %d agents on %d connections to each of %v, Kubernetes %s, %d shards\n", p.Name, p.Agents, p.Connections(), p.Servers(), o.Release.Version, o.Shards)
	if !p.Arrivals.Closed {
		_, _ = fmt.Fprintf(w, "arrivals: %s, about %.0f requests in a block of %s\n", p.Arrivals.Kind, p.Plan(0).Expected(), p.Block)
	} else {
		_, _ = fmt.Fprintf(w, "arrivals: closed loop, agents think for %s; blocks of %s\n", p.Arrivals.Think, p.Block)
	}
	_, _ = fmt.Fprintf(w, "%d comparisons, %d pairs each: %d blocks, at least %s\n\n", len(p.Comparisons), p.Pairs, 2*p.Pairs*len(p.Comparisons), p.Length().Round(time.Second))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "COMPARISON\tSIDE\tVARIANT\tSERVER\tREVIEWS PER REQUEST, COLD\tWARM")
	for _, c := range p.Comparisons {
		if err := errors.Join(row(table, o, c.Name, "A", c.A), row(table, o, "", "B", c.B)); err != nil {
			return err
		}
	}
	return table.Flush()
}

func row(table io.Writer, o Options, name, role string, side profile.Side) error {
	predicted, err := population.Predict(o.Profile, side, o.Release.Version)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.4g\t%.4g\n", name, role, side.Variant, side.Server, predicted.Cold, predicted.Warm)
	return err
}

// sums are what all blocks of a variant on a server come to.
type sums struct {
	variant, server string
	blocks          int
	block           run.Block
	reviews         int64
	predicted       *run.Prediction
	serverCPU       time.Duration
}

// Summarize writes one line for each variant on each server: what was measured, and
// not what follows from it.
func Summarize(w io.Writer, r *run.Run) {
	var list []*sums
	for i := range r.Blocks {
		b := &r.Blocks[i]
		var s *sums
		for _, known := range list {
			if known.variant == b.Variant && known.server == b.Server {
				s = known
			}
		}
		if s == nil {
			s = &sums{variant: b.Variant, server: b.Server}
			list = append(list, s)
		}
		s.blocks++
		s.block.Merge(b)
		s.predicted = b.Predicted
		s.serverCPU += time.Duration(b.ServerCPU)
		for _, n := range b.Reviews {
			s.reviews += n.Count
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "VARIANT\tSERVER\tBLOCKS\tREQUESTS\tREVIEWS PER REQUEST\tPREDICTED\tP50 MS\tP99 MS\tSERVER CPU MS PER REQUEST\tWRONG\tLATE\tDROPPED\t")
	for _, s := range list {
		b, wrong := &s.block, int64(0)
		for _, n := range b.Wrong {
			wrong += n
		}
		predicted := "-"
		if s.predicted != nil {
			predicted = fmt.Sprintf("%.3g to %.3g", s.predicted.Warm, s.predicted.Cold)
		}
		per := max(float64(b.Sent), 1)
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%.3f\t%s\t%.2f\t%.2f\t%.2f\t%d\t%d\t%d\t\n", s.variant, s.server, s.blocks, b.Sent, float64(s.reviews)/per, predicted,
			ms(b.Latency.Quantile(0.5)), ms(b.Latency.Quantile(0.99)), ms(s.serverCPU)/per, wrong, b.Late, b.Dropped)
	}
	_ = table.Flush()
	for _, p := range r.Problems {
		_, _ = fmt.Fprintf(w, "problem: %s\n", p.Text)
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
