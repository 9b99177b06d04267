package loadgen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
)

// Conclude implements product.Plan.
func (p *plan) Conclude(results []reports.Result, evidence record.View) (*reports.Report, error) {
	r := &reports.Report{
		Subject: reports.Subject{Name: "kube-apiserver", Provider: p.options.Provider},
		Groups:  product.Group(p.Cases(), results),
	}
	server.NoteVersions(r, server.Options{Release: p.options.Release})
	if !run.Recorded(evidence) {
		return r, nil
	}
	if p.judgeAll(evidence); p.unjudged != nil {
		return nil, p.unjudged
	}
	p.addFacts(r.Groups)
	if len(p.run.Servers) > 0 {
		r.Subject.Version = p.run.Servers[0].GitVersion
	}
	if len(p.result.Limits) == 0 {
		r.AddUnknown(judge.NothingJudged)
	}
	for _, l := range p.unclaimedLimits() {
		text := fmt.Sprintf("%s: %s: %s", l.Of, l.Name, l.Detail)
		if l.State == judge.Broken {
			r.AddFailure(text)
		} else {
			r.AddUnknown(text)
		}
	}
	r.Answers = makeAnswers(p.run, &p.result)
	r.Figures = makeFigures(p.result.Variants)
	r.Sections = makeSections(p.run, &p.result)
	return r, nil
}

// unclaimedLimits returns the limits that the judge finds broken or unknown and that no case is about. There are none
// unless the run has other variants than the plan.
func (p *plan) unclaimedLimits() (limits []judge.LimitResult) {
	for _, l := range p.result.Limits {
		key := limitKey{l.Of, l.Name}
		isClaimed := slices.ContainsFunc(p.cases, func(c plannedCase) bool { return slices.Contains(c.limits, key) })
		if l.Name == judge.ThresholdsUnused { // the cases of the variant's sides say so
			isClaimed = slices.Contains(p.options.Profile.Used(), l.Of)
		}
		if l.State != judge.Holds && !isClaimed {
			limits = append(limits, l)
		}
	}
	return limits
}

// addFacts adds to each group what a reader should know. For a comparison that is its sides and their reviews.
func (p *plan) addFacts(groups []reports.Group) {
	for i := range groups {
		g := &groups[i]
		if g.Name == measuringGroup {
			g.Facts = p.describeMeasuring()
			continue
		}
		at := slices.IndexFunc(p.options.Profile.Comparisons, func(c profile.Comparison) bool { return c.Name == g.Name })
		if at >= 0 {
			g.Facts = p.describeComparison(p.options.Profile.Comparisons[at])
		}
	}
}

func (p *plan) describeMeasuring() []reports.Fact {
	r := p.run
	facts := []reports.Fact{
		{Name: "profile", Value: r.Profile},
		{Name: "who asked", Value: r.DescribeAgents()},
		{Name: "authorizer", Value: r.Authorizer},
		{Name: "blocks", Value: fmt.Sprintf("%d of %s, %d for warming up", len(r.Blocks), p.options.Profile.Block, r.WarmUps)},
		{Name: "machine", Value: fmt.Sprintf("%d CPUs, %d MiB, %s, %s", r.Machine.CPUs, r.Machine.MemoryBytes>>20, r.Machine.OS, r.Machine.Go)},
		{Name: "load average before and after", Value: fmt.Sprintf("%.1f, %.1f", r.Machine.LoadBefore, r.Machine.LoadAfter)},
	}
	if pressure := r.DescribePressure(); pressure != "" {
		facts = append(facts, reports.Fact{Name: "others on the machine", Value: pressure})
	}
	return facts
}

func (p *plan) describeComparison(c profile.Comparison) (facts []reports.Fact) {
	describe := func(s profile.Side) string { return fmt.Sprintf("%s on %s", s.Variant, s.Server) }
	facts = append(facts, reports.Fact{Name: "A", Value: describe(c.A)}, reports.Fact{Name: "B", Value: describe(c.B)})
	i := slices.IndexFunc(p.result.Comparisons, func(r judge.Comparison) bool { return r.Name == c.Name })
	if i < 0 {
		return facts
	}
	r := p.result.Comparisons[i]
	if len(r.Twins) > 0 {
		facts[0].Value = r.Baseline()
	}
	if r.Disturbed > 0 {
		facts = append(facts,
			reports.Fact{
				Name:  "left out of times",
				Value: fmt.Sprintf("%s, because others used the machine", reports.Plural(r.Disturbed, "pair")),
			},
		)
	}
	return append(facts,
		reports.Fact{Name: "pairs", Value: fmt.Sprintf("%d in %s of the servers", r.Pairs, reports.Plural(r.Starts, "start"))},
		reports.Fact{Name: "reviews per request", Value: fmt.Sprintf("A %.3f, B %.3f", r.ReviewsA, r.ReviewsB)},
		reports.Fact{
			Name:  "priority levels",
			Value: fmt.Sprintf("A %s, B %s", cmp.Or(r.LevelA, "not known"), cmp.Or(r.LevelB, "not known")),
		},
		reports.Fact{Name: "p50 of B against A", Value: r.P50.DescribeDifference()},
		reports.Fact{Name: "p99 of B against A", Value: r.P99.DescribeDifference()},
		reports.Fact{Name: "API server's CPU per request", Value: r.CPU.DescribeDifference()},
	)
}

// makeFigures returns the reviews per request of each variant, as they are worth quoting.
func makeFigures(variants []judge.Variant) (figures []reports.Figure) {
	add := func(name string, rate judge.ReviewRate) {
		text := fmt.Sprintf("%s, %s", name, rate.Of)
		figures = append(figures, reports.Figure{Name: text, Value: rate.PerRequest.Estimate, Unit: "reviews per request"})
	}
	for _, v := range variants {
		if v.FirstContact != nil {
			add(v.Name, *v.FirstContact)
		}
		add(v.Name, v.Reviews)
	}
	return figures
}

// makeSections returns what a storm has to say in addition to verdicts.
func makeSections(r *run.Run, result *judge.Result) []reports.Section {
	groups := judge.GroupVariants(r)
	all := []reports.Section{
		variantsSection(result, groups),
		reviewsSection(result, groups),
		comparisonsSection(result),
		usageSection(result),
		flowControlSection(result),
		servedSection(groups),
		serversSection(r),
		notesSection(r, result),
	}
	return slices.DeleteFunc(all, func(s reports.Section) bool { return len(s.Text)+len(s.Tables)+len(s.Plots) == 0 })
}

func serversSection(r *run.Run) reports.Section {
	t := reports.Table{Columns: []string{"server", "Kubernetes", "emulates", "ConstrainedImpersonation", "webhook delay"}}
	for _, s := range r.Servers {
		t.Rows = append(t.Rows,
			reports.Row{Cells: []string{s.Name, s.GitVersion, s.Emulated, string(s.Gate), time.Duration(s.WebhookDelay).String()}},
		)
	}
	return withTable(reports.Section{ID: "servers", Title: "Servers"}, t)
}

// notesSection has all problems of the run, and what should be known although it changes nothing.
func notesSection(r *run.Run, result *judge.Result) reports.Section {
	problems := seq.Map(r.Problems, func(p run.Problem) string {
		if p.Block < 0 {
			return "Problem: " + p.Text
		}
		return fmt.Sprintf("Problem in block %d: %s", p.Block, p.Text)
	})
	return reports.Section{ID: "notes", Title: "Problems and notes", Text: append(problems, seq.Map(result.Notes, capitalize)...)}
}

func capitalize(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// withTable adds a table that has rows.
func withTable(s reports.Section, t reports.Table) reports.Section {
	if len(t.Rows) > 0 {
		s.Tables = append(s.Tables, t)
	}
	return s
}
