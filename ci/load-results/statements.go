package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
)

// Statement is one of the KEP, and what the runs say of it: in a word, in a figure, and in full.
type Statement struct {
	Quote, Section, Verdict, Measured string
	Figures                           []string
	From                              []string // the parts with the figures
}

// claim is a statement of the KEP about the reviews that variants cost, that of the request itself included.
type claim struct {
	quote, server string
	variants      []string
	reviews       float64
}

// ofNamesAlone restricts what the runs show: their agents send a node's name and no further headers, each of which would cost
// a review more.
const ofNamesAlone = " for a node's name alone"

// scalability are those of the KEP's section Scalability. A request that is disallowed has no review of its own.
var scalability = []claim{
	{"The existing impersonation mechanism will introduce 1 access review.", "gate-off", []string{"legacy-gate-off"}, 1 + 1},
	{"2 access review check if the new access rule is passed.", "gate-on", []string{"associated-node-cold", "arbitrary-node"}, 2 + 1},
	{"3 access review check if the new access rule is not passed, and the legacy impersonate access rule is passed.", "gate-on", []string{"legacy-gate-on", "fallback"}, 3 + 1},
	{"When the check is disallowed, it will introduce 3 access review checks.", "gate-on", []string{"denied"}, 3},
}

func makeStatements(parts []Part) (list []Statement) {
	list = seq.Map(scalability, func(c claim) Statement { return c.compare(parts) })
	return append(list, highVolume(parts), compareObjectives(parts), resources(parts))
}

// eachMeasured calls do with what runs have of a variant.
func eachMeasured(parts []Part, variant, server string, do func(part string, c *column, v *judge.Variant)) {
	for _, p := range parts {
		for i := range p.Columns {
			if v := p.Columns[i].Measured(judge.VariantKey{Variant: variant, Server: server}); v != nil {
				do(p.Name, &p.Columns[i], v)
			}
		}
	}
}

// reviewGroup is the reviews of some runs in one phase, as predicted or not.
type reviewGroup struct{ phase, verdict string }

// compare compares a claim with the runs in which nothing disturbed the counting, and nearly all answers were as expected:
// a request that fails costs fewer reviews. Reviews that are not as predicted refute it.
func (c claim) compare(parts []Part) Statement {
	out := Statement{Quote: c.quote, Section: "Scalability", Verdict: "not measured"}
	least, most, refuted := math.Inf(1), 0.0, false
	for _, variant := range c.variants {
		means, from := c.meanReviews(parts, variant)
		out.From = seq.AppendMissing(out.From, from...)
		for _, g := range slices.SortedFunc(maps.Keys(means), func(x, y reviewGroup) int {
			return cmp.Or(cmp.Compare(x.phase, y.phase), cmp.Compare(x.verdict, y.verdict))
		}) {
			low, high := slices.Min(means[g]), slices.Max(means[g])
			out.Figures = append(out.Figures, fmt.Sprintf("%s, %s: %s reviews per request in %s, %s", variant, g.phase, judge.Range{Low: low, High: high}, reports.Plural(len(means[g]), "run"), g.verdict))
			least, most, refuted = min(least, low), max(most, high), refuted || g.verdict == judge.NotPredicted
		}
	}
	if len(out.Figures) == 0 {
		return out
	}
	out.Measured = fmt.Sprintf("%s reviews per request; by the KEP %g", judge.Range{Low: least, High: most}, c.reviews)
	const exact = 0.0005
	switch {
	case refuted:
		out.Verdict = "not known: some is not as the model predicts"
	case most > c.reviews+exact:
		out.Verdict = "does not hold"
	case least < c.reviews-exact:
		out.Verdict = "an upper bound" + ofNamesAlone
	default:
		out.Verdict = "holds" + ofNamesAlone
	}
	return out
}

// meanReviews returns the reviews per request of a variant in each run that counts, and the parts that have them.
func (c claim) meanReviews(parts []Part, variant string) (means map[reviewGroup][]float64, from []string) {
	means = map[reviewGroup][]float64{}
	eachMeasured(parts, variant, c.server, func(part string, col *column, v *judge.Variant) {
		if !col.Result.Counted() || float64(v.Errors) > judge.ErrorsCompared*float64(v.Done) {
			return
		}
		for _, r := range []*judge.ReviewRate{v.FirstContact, &v.Reviews} {
			if r == nil || r.Of == judge.AllBlocks || !slices.Contains([]string{judge.AsPredicted, judge.NotPredicted}, r.Verdict) {
				continue
			}
			g := reviewGroup{r.Of, r.Verdict}
			means[g] = append(means[g], r.PerRequest.Estimate)
			from = seq.AppendMissing(from, part)
		}
	})
	return means, from
}

// highVolume is at the most agents that were measured.
func highVolume(parts []Part) Statement {
	out, highest := Statement{Quote: "… could put load on the authorization chain.", Section: "Risks", Verdict: "not measured"}, 0.0
	for _, key := range []judge.VariantKey{{Variant: "none", Server: "gate-off"}, {Variant: "legacy-gate-off", Server: "gate-off"}, {Variant: "associated-node-cold", Server: "gate-on"}, {Variant: "fallback", Server: "gate-on"}} {
		var best *judge.Variant
		var title, from string
		eachMeasured(parts, key.Variant, key.Server, func(part string, c *column, v *judge.Variant) {
			if best == nil || v.Agents > best.Agents {
				best, title, from = v, c.Title, part
			}
		})
		if best != nil {
			out.From, out.Verdict = seq.AppendMissing(out.From, from), "measured"
			out.Figures = append(out.Figures, fmt.Sprintf("%s: %.1f reviews/s at %.1f requests/s (%s)", key.Variant, best.ReviewsPerSecond, best.Rate, title))
			if most := fmt.Sprintf("%.0f reviews/s of %d agents, %s", best.ReviewsPerSecond, best.Agents, key.Variant); best.ReviewsPerSecond > highest {
				highest, out.Measured = best.ReviewsPerSecond, "up to "+most
			}
		}
	}
	return out
}

// objectiveCounts counts the judgements of the API's objectives.
type objectiveCounts struct {
	states map[judge.State]int
	// changed says that the feature breaks one, open that one is broken where too few pairs tell the feature from the machine.
	changed, open bool
}

// compareObjectives counts the judgements of the API's objectives. One that is broken on the server without the gate, too,
// is not broken by the feature.
func compareObjectives(parts []Part) Statement {
	out := Statement{Quote: "Use of this feature should not change existing API SLOs.", Section: "SLOs"}
	counts := objectiveCounts{states: map[judge.State]int{}}
	for _, p := range parts {
		for _, c := range p.Columns {
			objectives := slices.DeleteFunc(slices.Clone(c.Result.Limits), func(l judge.LimitResult) bool { return !strings.HasPrefix(string(l.Name), judge.ObjectivePrefix) })
			if len(objectives) > 0 {
				out.From = seq.AppendMissing(out.From, p.Name)
			}
			out.Figures = append(out.Figures, counts.add(c, objectives)...)
		}
	}
	out.Verdict = counts.verdict()
	holds, broken, unknown := counts.states[judge.Holds], counts.states[judge.Broken], counts.states[judge.Unknown]
	if all := holds + broken + unknown; all > 0 {
		out.Measured = fmt.Sprintf("of %d p99, by variant and kind of request, %d held, %d broken, %d not known", all, holds, broken, unknown)
	}
	return out
}

// add counts the objectives of a run, and returns a text for each that does not hold.
func (o *objectiveCounts) add(c column, objectives []judge.LimitResult) (figures []string) {
	for _, l := range objectives {
		o.states[l.State]++
		if l.State == judge.Holds {
			continue
		}
		figures = append(figures, fmt.Sprintf("%s, %s: %s", c.Title, l.Of, l.Detail))
		without := slices.ContainsFunc(objectives, func(x judge.LimitResult) bool {
			return x.State == judge.Broken && x.Name == l.Name && strings.Contains(x.Of, "gate-off")
		})
		if l.State != judge.Broken || without {
			continue
		}
		if slices.ContainsFunc(c.Result.Comparisons, func(x judge.Comparison) bool { return x.P99.Measured }) {
			o.changed = true
		} else {
			o.open = true
		}
	}
	return figures
}

func (o *objectiveCounts) verdict() string {
	switch {
	case o.changed:
		return "broken"
	case o.open:
		return "not known: broken where too few pairs tell the feature from the machine"
	case o.states[judge.Broken] > 0:
		return "broken without the feature as well, where it is"
	case o.states[judge.Holds] == 0:
		return "not judged"
	case o.states[judge.Unknown] > 0:
		return "held wherever it could be judged"
	}
	return "held"
}

// resources has what the processor time of the API server is worth saying.
func resources(parts []Part) Statement {
	out := Statement{Quote: "NA", Section: "Resource usage", Verdict: "not judged: no comparison has the pairs and starts that a claim needs"}
	for _, p := range parts {
		for _, c := range p.Columns {
			for _, x := range c.Result.Comparisons {
				if x.CPU.Measured {
					out.Verdict, out.From = "measured", []string{p.Name}
					out.addCPU(x)
				}
			}
		}
	}
	return out
}

func (s *Statement) addCPU(x judge.Comparison) {
	if s.Measured == "" && !x.AA {
		s.Measured = fmt.Sprintf("%s (p %s) of the %s's CPU above idle per request, %s against %s", x.CPU.DescribeChange(), judge.FormatP(x.CPU.P), run.APIServer, x.B, x.A)
	}
	s.Figures = append(s.Figures, fmt.Sprintf("%s, B %s against A %s: %s", x.Name, x.B, x.A, x.CPU.DescribeDifference()))
}
