package storm

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/utils/ptr"

	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/reports/load"
	"github.com/authzconf/authzconf/reports/load/run"
)

// Describe writes what a run would do, and what the oracle predicts of its schedules: of the first block of a variant
// on a server, and of one when all have asked before. Requests that are under way at once may cost more.
func Describe(w io.Writer, o Options) error {
	p := o.Profile
	_, _ = fmt.Fprintf(w, "%s: %s; %d connections to each of %v, Kubernetes %s, %d shards\n", p.Name, who(p), p.Connections(), p.Servers(), o.Release.Version, o.Shards)
	_, _ = fmt.Fprintf(w, "about %.0f requests in a block of %s\n", p.Plan(0).Expected(), p.Block)
	_, _ = fmt.Fprintf(w, "%d comparisons, %d pairs each over %d starts of the servers: %d blocks of %s, and %d for warming up, at least %s; %d tokens\n\n",
		len(p.Comparisons), p.Pairs, p.Starts, 2*p.Pairs*len(p.Comparisons), p.Block, p.Starts*len(p.Servers()), p.Length().Round(time.Second), p.Minted())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "COMPARISON\tSIDE\tVARIANT\tSERVER\tREVIEWS PER REQUEST, FIRST BLOCK\tLATER")
	known := map[profile.Side]string{}
	for _, c := range p.Comparisons {
		for i, side := range []profile.Side{c.A, c.B} {
			if known[side] == "" {
				var err error
				if known[side], err = foretell(o, side); err != nil {
					return err
				}
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", []string{c.Name, ""}[i], []string{"A", "B"}[i], side.Variant, side.Server, known[side])
		}
	}
	return table.Flush()
}

// foretell predicts two blocks of a side, with a block's length between them.
func foretell(o Options, side profile.Side) (string, error) {
	if p := o.Profile; p.Reflectors || p.SelfReviews > 0 || !p.Predictable() {
		return "-\t-", nil // it follows from the server's answers, too
	}
	history, err := population.NewHistory(o.Profile, side.Server, o.Release.Version)
	if err != nil {
		return "", err
	}
	var texts []string
	for i := range 2 {
		sends := o.Profile.Plan(uint64(o.Seed)).Stripe(0, 1)
		predicted, err := history.Predict(side.Does(), time.Time{}.Add(time.Second+time.Duration(i)*2*o.Profile.Block), population.Planned(sends, 0))
		if err != nil {
			return "", err
		}
		low, high := predicted.Range()
		n := float64(max(1, predicted.Requests))
		texts = append(texts, load.Range{Low: float64(low) / n, High: float64(high) / n}.String())
	}
	return strings.Join(texts, "\t"), nil
}

func who(p *profile.Profile) run.Population {
	every := p.Arrivals.Every
	if p.Once() {
		every = 0
	}
	return run.Population{
		Nodes: p.Nodes, PodsPerNode: p.PodsPerNode, DaemonSets: p.DaemonSets, Requestors: p.Requestors,
		ServiceAccounts: p.Accounts(), Arrivals: string(p.Arrivals.Kind), Every: run.Duration(every),
	}
}

// Thresholds are those of a profile. The pairs and starts that its file declares count, whatever a flag asked for: with
// fewer no claim about latency can be made.
func Thresholds(p *profile.Profile) load.Thresholds {
	// The objectives of Kubernetes are judged in every profile.
	t := load.Thresholds{Limits: load.Limits{SLOHeld: true}, Variants: map[string]load.Limits{}, Comparisons: map[string]load.Margins{}, MinPairs: p.Declared.Pairs, MinStarts: p.Declared.Starts}
	for _, limit := range p.Thresholds {
		t.Variants[limit.Variant] = load.Limits{ErrorRate: limit.ErrorRate, ReviewsPerRequest: ptr.Deref(limit.ReviewsPerRequest, 0), P99: run.Duration(ptr.Deref(limit.P99, 0)), SLOHeld: true}
	}
	for _, c := range p.Comparisons {
		t.Comparisons[c.Name] = load.Margins(c.Margins)
	}
	return t
}
