package deputy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// Conclude implements product.Plan.
func (p *plan) Conclude(results []reports.Result, view record.View) (*reports.Report, error) {
	r := &reports.Report{Subject: p.subject(), Groups: product.Group(p.cases, results)}
	for i, g := range p.groups {
		if err := describeGroup(&r.Groups[i], g.name, view); err != nil {
			return nil, err
		}
		r.Groups[i].Facts = append(r.Groups[i].Facts, p.options.clusterFacts()...)
	}
	cases := p.judgedCases(view)
	for _, j := range cases {
		// The case has failed, even if the rest of it cannot be concluded. Whether the report has failed too or is
		// invalid depends on whether a failure is certain (Report.Conclude).
		if j.out.inconclusive != "" && len(j.out.failures) > 0 {
			r.AddUnknown(fmt.Sprintf("%s: %s: %s", j.ref.group.name, j.name, j.out.inconclusive))
		}
	}
	r.Figures = newFigures(cases)
	r.Sections = slices.Concat(attacksSection(cases), outcomesSection(cases), pagesSection(cases))
	return r, nil
}

// subject returns what was tried.
func (p *plan) subject() reports.Subject {
	s := reports.Subject{Name: "the reference deputy and agent", Provider: local.Name}
	if len(p.options.clusters) > 0 {
		s.Name = "the reference hub, deputy and agents"
	}
	if p.options.proxy != nil {
		s.Name = "the proxy " + p.options.proxy.URL
	}
	if p.groups[0].isForeign() {
		s.Provider = existing.Name
	}
	return s
}

// describeGroup adds the control plane on which a group was tried, and what broke.
func describeGroup(out *reports.Group, name string, view record.View) error {
	if view.Has(targetKey(name)) {
		server, err := record.Read[reports.FoundTarget](view, targetKey(name))
		if err != nil {
			return err
		}
		out.Cell, out.Target, out.Witness = &server.Cell, &server.Facts, &server.Witness
	}
	if view.Has(problemKey(name)) {
		problem, err := record.Read[problemEvidence](view, problemKey(name))
		if err != nil {
			return err
		}
		out.Problem = problem.Problem
	}
	out.Facts = append(out.Facts, reports.Fact{Name: "impersonation", Value: describeWay(name)})
	return nil
}

// clusterFacts returns the names of the two clusters behind the proxy, or nothing if there is one cluster.
func (o options) clusterFacts() []reports.Fact {
	if len(o.clusters) == 0 {
		return nil
	}
	return []reports.Fact{{Name: "clusters", Value: strings.Join(o.clusters, " and ")}}
}

// describeWay says how the proxy identity may impersonate in a group.
func describeWay(name string) string {
	switch name {
	case legacy:
		return "the proxy identity has the verb impersonate"
	case constrained:
		return "the proxy identity has constrained impersonation (KEP-5284)"
	}
	return "as the cluster behind the proxy grants it"
}

// judgedCase is a case with its judgement.
type judgedCase struct {
	ref  caseRef
	name string
	out  *judgement
}

// judgedCases returns the cases for which there is evidence.
func (p *plan) judgedCases(view record.View) (cases []judgedCase) {
	for _, c := range p.cases {
		ref := p.refs[c.ID]
		if c.NotRun != nil || !view.Has(partKey(ref.group, ref.part)) {
			continue
		}
		part, err := p.judgePart(ref.group, ref.part, view)
		if err != nil {
			continue // the case is invalid, and its result says why
		}
		cases = append(cases, judgedCase{ref, c.Name, part[ref.kind]})
	}
	return cases
}

// newFigures counts the checks of all cases, and the attacks.
func newFigures(cases []judgedCase) []reports.Figure {
	checks, attackCount, successful := 0, 0, 0
	for _, j := range cases {
		checks += j.out.checks
		if j.ref.part == attacksPart {
			attackCount += j.out.checks
			successful += j.out.countSuccessfulAttacks()
		}
	}
	figures := []reports.Figure{{Name: "checks", Value: float64(checks)}}
	if attackCount > 0 {
		figures = append(figures,
			reports.Figure{Name: "attacks tried", Value: float64(attackCount)},
			reports.Figure{Name: "attacks that got through", Value: float64(successful)},
		)
	}
	return figures
}

// countSuccessfulAttacks returns how many attacks have a finding.
func (j *judgement) countSuccessfulAttacks() int {
	return len(seq.UniqueBy(j.findings, func(f finding) string { return f.attack }))
}

// attacksSection lists which attacks were tried, and which of them got through.
func attacksSection(cases []judgedCase) []reports.Section {
	descriptions := map[string]string{}
	for _, k := range attackKinds() {
		descriptions[k.Kind] = k.About
	}
	t := reports.Table{
		Columns: []string{"impersonation", "kind", "about", "tried", asPerson, "as nobody or refused", "not tried", "got through"},
		Numeric: []int{3, 4, 5, 6, 7},
	}
	for _, j := range cases {
		if j.ref.part != attacksPart {
			continue
		}
		successful := j.out.countSuccessfulAttacks()
		refused := j.out.outcomes[asNobody] + j.out.outcomes[refusedByProxy] + j.out.outcomes[refusedByServer]
		notTried, _ := j.out.notTried()
		row := reports.Row{Cells: []string{j.ref.group.name, j.ref.kind, descriptions[j.ref.kind]}}
		for _, n := range []int{j.out.checks, j.out.outcomes[asPerson], refused, notTried, successful} {
			row.Cells = append(row.Cells, strconv.Itoa(n))
		}
		if successful > 0 {
			row.Verdict = verdicts.Failed
		}
		t.Rows = append(t.Rows, row)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return []reports.Section{{
		ID: "attacks", Title: "Attacks",
		Text:   []string{"An attack got through if, by the API server's audit log, anybody arrived but the person whose credentials were sent."},
		Tables: []reports.Table{t},
	}}
}

// outcomesSection counts what became of the requests.
func outcomesSection(cases []judgedCase) []reports.Section {
	t := reports.Table{Columns: []string{"impersonation", "case", "what", "how often"}, Numeric: []int{3}}
	for _, j := range cases {
		add := func(counts map[string]int, prefix string) {
			for _, what := range slices.Sorted(maps.Keys(counts)) {
				t.Rows = append(t.Rows, reports.Row{Cells: []string{j.ref.group.name, j.name, prefix + what, strconv.Itoa(counts[what])}})
			}
		}
		add(j.out.outcomes, "")
		add(j.out.foundBy, "audit event found by ")
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return []reports.Section{{ID: "outcomes", Title: "What became of the requests", Tables: []reports.Table{t}}}
}

// pagesSection lists what the pages of a dashboard cost.
func pagesSection(cases []judgedCase) []reports.Section {
	t := reports.Table{
		Columns: []string{
			"impersonation",
			"page",
			"reviews",
			"ms",
			"median ms",
			"slowest ms",
			"ms all at once",
			"authorizer asked",
			"asked again",
			"rules",
		},
		Numeric: []int{2, 3, 4, 5, 6, 7, 8},
	}
	for _, j := range cases {
		for _, cost := range j.out.pages {
			if j.ref.kind != "" {
				cost.page += ", at the cluster " + j.ref.kind
			}
			t.Rows = append(t.Rows, reports.Row{Cells: append([]string{j.ref.group.name}, cost.cells()...)})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return []reports.Section{{
		ID: "pages", Title: "What a page costs",
		Text: []string{"A page of a dashboard asks what a person may do before it is shown: one review after another, the same again, and all at once. " +
			"The authorizer is asked for each review, and about the impersonation. Times are reported, and not judged."},
		Tables: []reports.Table{t},
	}}
}

// cells returns the cost of a page as cells of a table. The way of impersonation is not among them.
func (c pageCost) cells() []string {
	first, again, rules := "", "", ""
	if len(c.authorizerReviews) > 1 {
		first, again = strconv.Itoa(c.authorizerReviews[0]), strconv.Itoa(c.authorizerReviews[1])
	}
	switch {
	case c.rules && c.incomplete:
		rules = "incomplete: an authorizer of the chain lists no rules"
	case c.rules:
		rules = "complete"
	}
	return []string{
		c.page, strconv.Itoa(c.reviews), milliseconds(c.took[0]), milliseconds(c.each[len(c.each)/2]), milliseconds(c.each[len(c.each)-1]),
		milliseconds(c.took[allAtOnce]), first, again, rules,
	}
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
}
