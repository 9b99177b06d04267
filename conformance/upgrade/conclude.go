package upgrade

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Conclude makes the report: the stages with their witnesses, the path as tables, and where documents and servers differ.
func (p *Plan) Conclude(results []reports.Result, view record.View) (*reports.Report, error) {
	r := &reports.Report{Subject: conformance.NewSubject(p.stages[0].Target.Cell.Provider), Groups: product.Group(p.Cases(), results)}
	server.NoteVersions(r, seq.Map(p.stages, func(s *StagePlan) server.Options { return s.Target })...)
	var cells []conformance.CellPlan
	for i, stage := range p.stages {
		conformance.DescribeGroup(&r.Groups[i], stage.CellPlan, view)
		r.Groups[i].Facts = stage.describeArrival()
		cells = append(cells, stage.CellPlan)
	}
	r.Figures = conformance.MedianFigure(cells, view)
	r.Sections = append(r.Sections, p.describePath(r.Groups, view))
	r.Sections = append(r.Sections, conformance.DescribeDivergences(r.Groups, p.texts.Set, view)...)
	return r, nil
}

// describeArrival says how the stage is reached, and what is made on it.
func (s *StagePlan) describeArrival() (facts []reports.Fact) {
	if s.Fault != "" {
		facts = append(facts, reports.Fact{Name: "on the way here", Value: strings.ReplaceAll(string(s.Fault), "-", " ")})
	}
	if len(s.Made) > 0 {
		facts = append(facts, reports.Fact{Name: "made here", Value: strings.Join(s.Made, ", ")})
	}
	return facts
}

// PathSection is the ID of the section that shows the path.
const PathSection = "path"

// describePath shows the stages, the permissions on each of them, and what is said about each as a whole.
func (p *Plan) describePath(groups []reports.Group, view record.View) reports.Section {
	section := reports.Section{ID: PathSection, Title: "The upgrade path"}
	if p.path.Description != "" {
		section.Text = append(section.Text, strings.Join(strings.Fields(p.path.Description), " "))
	}
	how := "one kube-apiserver"
	switch {
	case p.hasBalancer():
		how = fmt.Sprintf(
			"%d kube-apiservers behind the cluster's own balancer, replaced one after the other while requests went to that,",
			p.serverCount(),
		)
	case p.path.HighAvailability:
		how = "two kube-apiservers behind a balancer, replaced one after the other while requests flowed,"
	}
	section.Text = append(section.Text,
		fmt.Sprintf("It took %s and one etcd along %s. Roles, bindings, service accounts and tokens were made once and kept.",
			how, reports.Plural(len(p.stages), "stage")),
	)
	section.Tables = []reports.Table{p.tabulateStages(groups, view), p.tabulateSetups(groups, view), p.tabulateClaims(groups)}
	return section
}

// constrainedColumn counts the access reviews with verbs of KEP-5284, which are of no interest to a path about another gate.
const constrainedColumn = "Of them constrained"

// tabulateStages has a row for each stage.
func (p *Plan) tabulateStages(groups []reports.Group, view record.View) reports.Table {
	t := reports.Table{
		Title: "Stages",
		Columns: []string{
			"Stage",
			"kube-apiserver",
			"Emulates",
			p.path.Gate(),
			"On the way here",
			"Passed",
			"Objects",
			"Away for",
			"Access reviews",
		},
		Numeric: []int{5, 6, 7, 8},
	}
	if !p.path.HasOtherGate() {
		t.Columns, t.Numeric = append(t.Columns, constrainedColumn), append(t.Numeric, len(t.Columns))
	}
	for i, stage := range p.stages {
		passed := seq.Count(groups[i].Cases, func(r reports.Result) bool { return r.Verdict == verdicts.Passed })
		row := []string{
			stage.Name(), describeVersion(&groups[i]), stage.Target.Cell.Emulated, describeGate(&groups[i]),
			strings.ReplaceAll(string(stage.Fault), "-", " "), fmt.Sprintf("%d of %d", passed, len(groups[i].Cases)), "", "", "", "",
		}
		if e, err := readStage(view, stage.Name()); err == nil {
			reviews, constrained := countReviews(e)
			row = append(
				row[:6],
				fmt.Sprint(len(e.Objects)),
				fmt.Sprintf("%.1f s", e.DownSeconds),
				fmt.Sprint(reviews),
				fmt.Sprint(constrained),
			)
		}
		t.Rows = append(t.Rows, reports.Row{Cells: row[:len(t.Columns)]})
	}
	return t
}

func countReviews(e *StageRecord) (all, constrained int) {
	for verb, n := range e.Verbs {
		all += n
		if isConstrained(verb) {
			constrained += n
		}
	}
	return all, constrained
}

func describeVersion(g *reports.Group) string {
	if g.Witness == nil {
		return "not reached"
	}
	return cmp.Or(g.Witness.GitVersion, "not reached")
}

func describeGate(g *reports.Group) string {
	switch {
	case g.Cell.FeatureGate.Name != "":
		return describeOtherGate(g)
	case g.Witness != nil && g.Witness.GateMetric == scenarios.GateAbsent:
		return "not there"
	case g.Cell.Gate == scenarios.GateDefault:
		return string(g.Target.Gate) + " (default)"
	}
	return string(g.Target.Gate)
}

// describeOtherGate says in which state the gate of a path is that is about another one than ConstrainedImpersonation.
func describeOtherGate(g *reports.Group) string {
	gate := g.Cell.FeatureGate
	state := string(g.Target.FeatureGates[gate.Name])
	switch {
	case g.Witness != nil && g.Witness.FeatureGate != nil && g.Witness.FeatureGate.Metric == scenarios.GateAbsent:
		return "not there"
	case gate.Gate == scenarios.GateDefault:
		return state + " (default)"
	}
	return state
}

// noAnswer stands where a setup has no scenario for a stage.
const noAnswer = "–"

// tabulateSetups has a row for each setup with what became of its request on each stage.
func (p *Plan) tabulateSetups(groups []reports.Group, view record.View) reports.Table {
	t := reports.Table{Title: "Permissions", Columns: append([]string{"Permissions"}, seq.Map(p.stages, (*StagePlan).Name)...)}
	for _, setup := range p.texts.Set.Setups() {
		row := reports.Row{Cells: []string{setup}}
		for i, stage := range p.stages {
			row.Cells = append(row.Cells, stage.answerTo(setup, &groups[i], view))
		}
		if slices.ContainsFunc(row.Cells[1:], func(answer string) bool { return answer != noAnswer }) {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// answerTo says what was seen of a setup's last request on the stage.
func (s *StagePlan) answerTo(setup string, g *reports.Group, view record.View) string {
	scenario := s.scenario[setup]
	if scenario == nil {
		return noAnswer
	}
	i := slices.IndexFunc(g.Cases, func(r reports.Result) bool { return r.Case == scenario.ID })
	if i < 0 {
		return noAnswer
	}
	text := describeAnswer(s.Name(), scenario, view)
	if v := g.Cases[i].Verdict; v != verdicts.Passed {
		text = strings.TrimSpace(text + " (" + string(v) + ")")
	}
	return text
}

func describeAnswer(stage string, s *scenarios.Scenario, view record.View) string {
	e, err := conformance.ReadEvidence(view, stage, s.ID)
	if err != nil || len(e.Steps) == 0 {
		return ""
	}
	o := &e.Steps[len(e.Steps)-1]
	if event := verdicts.AuditOf(o); event != nil && event.ImpersonatedUser != nil {
		return "allowed by " + cmp.Or(scenarios.ConstraintOf(event), "impersonate")
	}
	if o.Response.Code < http.StatusBadRequest {
		return fmt.Sprintf("allowed (%d)", o.Response.Code)
	}
	return fmt.Sprintf("refused (%d)", o.Response.Code)
}

// tabulateClaims has a row for each claim about a stage.
func (p *Plan) tabulateClaims(groups []reports.Group) reports.Table {
	t := reports.Table{
		Title:   "What has to be true of a stage as a whole",
		Columns: []string{"Stage", "Claim", "Verdict", "What was compared, or what is wrong"},
	}
	for i, stage := range p.stages {
		names := map[string]bool{}
		for _, item := range stage.Claims {
			names[item.name(stage.Name())] = true
		}
		for _, r := range groups[i].Cases {
			if names[r.Case] {
				what := cmp.Or(r.Reason, strings.Join(r.Details, "; "))
				t.Rows = append(t.Rows,
					reports.Row{
						Verdict: r.Verdict,
						Cells:   []string{stage.Name(), strings.TrimPrefix(r.Case, claimsFolder), string(r.Verdict), what},
					},
				)
			}
		}
	}
	return t
}
