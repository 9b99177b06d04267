package storm

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// Describe writes what a run would do, and what the oracle predicts for its schedules: for the first block of a variant
// on a server, and for one when all have asked before, each after Settle. Requests that are open at the same time may
// cost more.
func Describe(w io.Writer, o Options) error {
	p := o.Profile
	_, _ = fmt.Fprintf(
		w,
		"%s: %s; %d connections to each of %v, Kubernetes %s, %d shards\n",
		p.Name,
		describePopulation(p),
		p.Connections(),
		p.Servers(),
		o.Release.Version,
		o.Shards,
	)
	_, _ = fmt.Fprintf(w, "about %.0f requests in a block of %s\n", p.Plan(0).Expected(), p.Block)
	design := fmt.Sprintf("%d pairs each", p.Pairs)
	if p.Rounds {
		design = fmt.Sprintf("%d rounds of %d sides", p.Pairs, len(p.Sides()))
	}
	_, _ = fmt.Fprintf(
		w,
		"%d comparisons, %s over %d starts of the servers: %d blocks of %s, and %d for warming up, at least %s; %d tokens\n\n",
		len(p.Comparisons),
		design,
		p.Starts,
		p.Blocks(),
		p.Block,
		p.Starts*len(p.Servers()),
		p.Length().Round(time.Second),
		p.Minted(),
	)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "COMPARISON\tSIDE\tVARIANT\tSERVER\tREVIEWS PER REQUEST, FIRST BLOCK\tLATER")
	known := map[profile.Side]string{}
	for _, c := range p.Comparisons {
		for i, side := range []profile.Side{c.A, c.B} {
			if known[side] == "" {
				var err error
				if known[side], err = predictSide(o, side); err != nil {
					return err
				}
			}
			_, _ = fmt.Fprintf(
				table,
				"%s\t%s\t%s\t%s\t%s\n",
				[]string{c.Name, ""}[i],
				[]string{"A", "B"}[i],
				side.Variant,
				side.Server,
				known[side],
			)
		}
	}
	return table.Flush()
}

// previewTook is how long a request takes in a preview. A question that is asked just when a check has been remembered
// for its life may or may not find it.
const previewTook = time.Millisecond

// mostPreviewed is how many requests a block may have that is predicted before it is run. More would take minutes, and
// load predict answers at once.
const mostPreviewed = 50_000

// predictSide predicts two blocks of a side, with the length of a block between them.
func predictSide(o Options, side profile.Side) (string, error) {
	p := o.Profile
	followsServer := p.Reflectors || p.SelfReviews > 0
	if followsServer || !p.Predictable() || p.Plan(0).Expected() > mostPreviewed {
		return "-\t-", nil
	}
	history, err := population.NewHistory(o.Profile, side.Server, o.Release.Version)
	if err != nil {
		return "", err
	}
	var texts []string
	for i := range 2 {
		sends := o.Profile.Plan(uint64(o.Seed)).Stripe(0, 1)
		settled := &run.SettledPart{After: run.Duration(o.Profile.Settle)}
		began := time.Time{}.Add(time.Second + time.Duration(i)*2*o.Profile.Block)
		if _, err := history.PredictSettled(side.Does(), began, population.Planned(sends, previewTook), settled); err != nil {
			return "", err
		}
		texts = append(texts, judge.PredictedRate(settled.Checks, settled.Sent).String())
	}
	return strings.Join(texts, "\t"), nil
}
