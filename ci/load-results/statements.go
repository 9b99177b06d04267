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
	section, quote, server string
	// variants are all that do what the sentence is about. Those that no run has measured are judged by the model.
	variants []string
	reviews  float64
	// against are scenarios that contradict the sentence and quote another one.
	against []string
}

// claims are those of the KEP. A request that is disallowed has no review of its own.
var claims = []claim{
	{"Scalability", "The existing impersonation mechanism will introduce 1 access review.", "gate-off", []string{"legacy-gate-off", "legacy-node", "legacy-serviceaccount", "deputy-legacy"}, 1 + 1, nil},
	{"Scalability", "2 access review check if the new access rule is passed.", "gate-on", []string{"associated-node-cold", "arbitrary-node", "serviceaccount", "user-alone", "user-in-groups", "deputy"}, 2 + 1, nil},
	{"Scalability", "3 access review check if the new access rule is not passed, and the legacy impersonate access rule is passed.", "gate-on", []string{"legacy-gate-on", "legacy-serviceaccount", "fallback", "deputy-legacy"}, 3 + 1, nil},
	{"Scalability", "When the check is disallowed, it will introduce 3 access review checks.", "gate-on", []string{"denied"}, 3, nil},
	{"Scalability, new API calls", "enabling the feature will result in two additional SAR checks when kube-apiserver receives an impersonation request", "gate-on", []string{"legacy-gate-on"}, 1 + 1 + 2, []string{"kep-5284/review-details/every-attribute-is-a-check"}},
}

func makeStatements(parts []Part) (list []Statement, err error) {
	for _, c := range claims {
		s, err := c.compare(parts)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return append(list, highVolume(parts), compareObjectives(parts), resources(parts)), nil
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

// evidence is what is known of a claim: reviews per request at least and at most.
type evidence struct {
	least, most float64
	// refuted says that something is not as the model predicts.
	refuted bool
}

func (e *evidence) add(low, high float64) {
	e.least, e.most = min(e.least, low), max(e.most, high)
}

// compare compares a claim with the runs in which nothing disturbed the counting, and nearly all answers were as expected: a
// request that fails costs fewer reviews. Reviews that are not as predicted refute it; variants that no run has measured are
// compared by the model; and what a scenario shows that quotes the sentence contradicts it.
func (c claim) compare(parts []Part) (out Statement, err error) {
	out = Statement{Quote: c.quote, Section: c.section}
	facts := evidence{least: math.Inf(1)}
	var modelled []string
	for _, variant := range c.variants {
		if c.addMeasured(&out, &facts, parts, variant) {
			continue
		}
		text, err := c.addModelled(&facts, variant)
		if err != nil {
			return out, err
		}
		modelled = append(modelled, text)
	}
	if len(modelled) > 0 {
		out.Figures = append(out.Figures, "not stormed, by the model, at first contact and later: "+strings.Join(modelled, ", "))
	}
	objection, err := findContradiction(c.quote, c.against...)
	if err != nil {
		return out, err
	}
	out.Measured = fmt.Sprintf("%s reviews per request; by the KEP %g", judge.Range{Low: facts.least, High: facts.most}, c.reviews)
	if len(objection.scenarios) > 0 {
		out.Measured += "; " + objection.String()
	}
	out.Verdict = c.verdict(facts, objection)
	return out, nil
}

// verdict says how a claim stands.
func (c claim) verdict(facts evidence, objection contradiction) string {
	const exact = 0.0005
	switch {
	case facts.refuted:
		return "not known: some is not as the model predicts"
	case len(objection.scenarios) > 0, facts.most > c.reviews+exact:
		return "does not hold"
	case facts.least < c.reviews-exact:
		return "an upper bound"
	}
	return "holds"
}

// addMeasured adds what runs have of a variant, and reports whether there is anything.
func (c claim) addMeasured(out *Statement, facts *evidence, parts []Part, variant string) bool {
	means, from := c.meanReviews(parts, variant)
	out.From = seq.AppendMissing(out.From, from...)
	for _, g := range slices.SortedFunc(maps.Keys(means), func(x, y reviewGroup) int {
		return cmp.Or(cmp.Compare(x.phase, y.phase), cmp.Compare(x.verdict, y.verdict))
	}) {
		low, high := slices.Min(means[g]), slices.Max(means[g])
		out.Figures = append(out.Figures,
			fmt.Sprintf(
				"%s, %s: %s reviews per request in %s, %s",
				variant,
				g.phase,
				judge.Range{Low: low, High: high},
				reports.Plural(len(means[g]), "run"),
				g.verdict,
			),
		)
		facts.add(low, high)
		facts.refuted = facts.refuted || g.verdict == judge.NotPredicted
	}
	return len(means) > 0
}

// addModelled adds what a variant costs by the model, and returns it as a text.
func (c claim) addModelled(facts *evidence, variant string) (text string, err error) {
	first, later, err := modelReviews(variant, c.server)
	if err != nil {
		return "", fmt.Errorf("%s on %s: %w", variant, c.server, err)
	}
	facts.add(min(first, later), max(first, later))
	return fmt.Sprintf("%s %.0f and %.0f", variant, first, later), nil
}

// meanReviews returns the reviews per request of a variant in each run that counts, and the parts that have them.
func (c claim) meanReviews(parts []Part, variant string) (means map[reviewGroup][]float64, from []string) {
	means = map[reviewGroup][]float64{}
	eachMeasured(parts, variant, c.server, func(part string, col *column, v *judge.Variant) {
		if !col.Result.Counted() || failsOften(v) {
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

// shownVolumes is how many runs are named by their most reviews in a second, those with the most.
const shownVolumes = 5

// volume is the most reviews in one second of a comparison.
type volume struct {
	part, text string
	most       int64
}

// highVolume has the most reviews in one second with the gate on, beside those of the same agents without it, of the runs in
// which nothing disturbed the counting and nearly all answers were as expected.
func highVolume(parts []Part) Statement {
	out := Statement{Quote: "… could put load on the authorization chain.", Section: "Risks", Verdict: "not measured"}
	volumes := findVolumes(parts)
	if len(volumes) == 0 {
		return out
	}
	out.Verdict = "measured"
	out.Measured = "most reviews in a second, which is what the machine can do and not what is asked: " + volumes[0].text
	for _, v := range volumes[:min(shownVolumes, len(volumes))] {
		out.Figures, out.From = append(out.Figures, v.text), seq.AppendMissing(out.From, v.part)
	}
	if further := len(volumes) - shownVolumes; further > 0 {
		out.Figures = append(out.Figures,
			fmt.Sprintf("%s with fewer, which their pages have", reports.Plural(further, "further comparison")),
		)
	}
	return out
}

// findVolumes returns the comparisons whose seconds were counted, that with the most reviews in a second first.
func findVolumes(parts []Part) (volumes []volume) {
	for _, p := range parts {
		for i := range p.Columns {
			c := &p.Columns[i]
			for _, x := range c.Result.Comparisons {
				a, b := c.findVariant(x.A), c.findVariant(x.B)
				if !c.Result.Counted() || !showsFeature(a, b) || b.MostReviews == 0 {
					continue
				}
				text := fmt.Sprintf("%d of %s, %d of %s (%s)", b.MostReviews, b.Name, a.MostReviews, a.Name, c.Title)
				volumes = append(volumes, volume{p.Name, text, b.MostReviews})
			}
		}
	}
	slices.SortStableFunc(volumes, func(x, y volume) int { return cmp.Compare(y.most, x.most) })
	return volumes
}

// findVariant returns what the run has of a variant by its name, nil if it has nothing.
func (c *column) findVariant(name string) *judge.Variant {
	i := slices.IndexFunc(c.Result.Variants, func(v judge.Variant) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Result.Variants[i]
}

// showsFeature reports whether two variants are impersonation without the gate and with it, with nearly no errors.
func showsFeature(a, b *judge.Variant) bool {
	if a == nil || b == nil {
		return false
	}
	isComparison := a.Variant != "none" && a.Server == "gate-off" && b.Server == "gate-on"
	return isComparison && !failsOften(a) && !failsOften(b)
}

func failsOften(v *judge.Variant) bool {
	return float64(v.Errors) > judge.ErrorsCompared*float64(v.Done)
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
	var served servedCounts
	for _, p := range parts {
		for _, c := range p.Columns {
			out.Figures = append(out.Figures, served.add(c)...)
			objectives := slices.DeleteFunc(slices.Clone(c.Result.Limits), func(l judge.LimitResult) bool {
				return !strings.HasPrefix(string(l.Name), judge.ObjectivePrefix)
			})
			if len(objectives) > 0 {
				out.From = seq.AppendMissing(out.From, p.Name)
			}
			out.Figures = append(out.Figures, counts.add(c, objectives)...)
		}
	}
	counts.open = counts.open || served.byGate
	out.Verdict = counts.verdict()
	holds, broken, unknown := counts.states[judge.Holds], counts.states[judge.Broken], counts.states[judge.Unknown]
	if all := holds + broken + unknown; all > 0 {
		out.Measured = fmt.Sprintf(
			"by the API server's own indicator %s; of %d p99 of clients %d broken and %d not known",
			served,
			all,
			broken,
			unknown,
		)
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
	out := Statement{
		Quote:   "NA",
		Section: "Resource usage",
		Verdict: "not judged: no comparison has the pairs and starts that a claim needs",
	}
	for _, p := range parts {
		for _, c := range p.Columns {
			for _, x := range c.Result.Comparisons {
				if x.CPU.Measured {
					out.From = []string{p.Name}
					out.addCPU(x, c.Result)
				}
			}
		}
	}
	return out
}

// notAlike says why nothing follows from a run's differences in time.
const notAlike = "two servers that are the same were not shown to be alike"

// serversAreAlike reports whether a run has shown that two servers that are the same are alike.
func serversAreAlike(r judge.Result) bool {
	return slices.ContainsFunc(r.Checks, func(c judge.Check) bool { return c.Name == judge.SameServers && c.State == judge.Holds })
}

// addCPU adds a comparison. Nothing follows from it unless two servers that are the same were shown to be alike in the run.
func (s *Statement) addCPU(x judge.Comparison, r judge.Result) {
	s.Figures = append(s.Figures, fmt.Sprintf("%s, B %s against A %s: %s", x.Name, x.B, x.A, x.CPU.DescribeDifference()))
	switch {
	case x.AA:
	case !serversAreAlike(r):
		s.Verdict = "not known: " + notAlike
	case s.Measured == "":
		s.Verdict = "measured"
		s.Measured = fmt.Sprintf(
			"%s (p %s) of the %s's CPU above idle per request, %s against %s",
			x.CPU.DescribeChange(),
			judge.FormatP(x.CPU.PHolm),
			run.APIServer,
			x.B,
			x.A,
		)
	}
}
