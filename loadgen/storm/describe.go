package storm

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/reports/load"
	"github.com/authzconf/authzconf/reports/load/run"
)

// Describe writes what a run would do, and what the oracle predicts.
func Describe(w io.Writer, o Options) error {
	p := o.Profile
	_, _ = fmt.Fprintf(w, "%s: %d agents on %d connections to each of %v, Kubernetes %s, %d shards\n", p.Name, p.Agents, p.Connections(), p.Servers(), o.Release.Version, o.Shards)
	_, _ = fmt.Fprintf(w, "arrivals: %s, about %.0f requests in a block of %s\n", p.Arrivals.Kind, p.Plan(0).Expected(), p.Block)
	_, _ = fmt.Fprintf(w, "%d comparisons, %d pairs each over %d starts of the servers: %d blocks, and %d for warming up, at least %s\n\n",
		len(p.Comparisons), p.Pairs, p.Starts, 2*p.Pairs*len(p.Comparisons), p.Starts*len(p.Servers()), p.Length().Round(time.Second))
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

// Thresholds are those of a profile. The pairs and starts that its file declares count, whatever a flag asked for: with
// fewer no claim about latency can be made.
func Thresholds(p *profile.Profile) load.Thresholds {
	// The objectives of Kubernetes are judged in every profile.
	t := load.Thresholds{Limits: load.Limits{SLOHeld: true}, Variants: map[string]load.Limits{}, Comparisons: map[string]load.Margins{}, MinPairs: p.Declared.Pairs, MinStarts: p.Declared.Starts}
	value := func(v *float64) float64 {
		if v == nil {
			return 0
		}
		return *v
	}
	for _, limit := range p.Thresholds {
		l := load.Limits{ErrorRate: limit.ErrorRate, ReviewsPerRequest: value(limit.ReviewsPerRequest), SLOHeld: true}
		if limit.P99 != nil {
			l.P99 = run.Duration(*limit.P99)
		}
		t.Variants[limit.Variant] = l
	}
	for _, c := range p.Comparisons {
		t.Comparisons[c.Name] = load.Margins(c.Margins)
	}
	return t
}
