package deputy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/deputy/dashboard"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// dashboardPlan has a group for each way of impersonation. Each group has a case for each request in a dashboard's
// file, and one for the dashboard's own audit trail.
type dashboardPlan struct {
	options options
	file    *dashboard.File
	cases   []product.Case
	refs    map[string]dashboardCase // by the IDs of cases
}

// dashboardCase is the subject of a case: a request by its number, or the audit trail.
type dashboardCase struct {
	group   string
	request int
	isTrail bool
}

const (
	requestsPrefix = "requests/"
	trailCase      = "trail"
	// dashboardAccount is a dashboard's account on a control plane of ours. The audit policy logs the content of its
	// reviews.
	dashboardAccount = "system:serviceaccount:dashboards:dashboard"
)

// dashboardServiceAccount returns the ServiceAccount with the name dashboardAccount.
func dashboardServiceAccount() scenarios.ServiceAccount {
	return scenarios.ServiceAccount{Namespace: "dashboards", Name: "dashboard"}
}

// dashboardKey returns the key of the evidence of a group.
func dashboardKey(group string) string { return group + "/requests" }

// newDashboardPlan reads the file with a dashboard's requests.
func newDashboardPlan(o options, i *product.Invocation) (*dashboardPlan, error) {
	path := o.proxy.Requests
	data, err := i.ReadInput(path)
	if err != nil {
		return nil, fmt.Errorf("--requests: %w", err)
	}
	p := &dashboardPlan{options: o, refs: map[string]dashboardCase{}}
	names := seq.Map(o.proxy.People, func(person *Identity) string { return person.Name })
	if p.file, err = dashboard.Parse(path, data, names, o.clusters...); err != nil {
		return nil, err
	}
	isExisting := o.proxy.Kubeconfig != ""
	switch {
	case isExisting && p.file.Account == "":
		return nil, fmt.Errorf(
			"%s: expected account: who the dashboard is at the API server of --kubeconfig, such as system:serviceaccount:dashboards:dashboard",
			path,
		)
	case o.proxy.Trail != "" && p.file.Trail == nil:
		return nil, fmt.Errorf("%s: expected trail: how the rows of --trail are read", path)
	}
	for _, group := range o.ways() {
		for n, r := range p.file.Requests {
			p.addCase(dashboardCase{group: group, request: n}, requestsPrefix+r.Name)
		}
		if o.proxy.Trail != "" {
			p.addCase(dashboardCase{group: group, isTrail: true}, trailCase)
		}
	}
	return p, nil
}

func (p *dashboardPlan) addCase(ref dashboardCase, name string) {
	c := product.NewCase(ref.group, name, scenarios.Core, "sig-auth", "dashboard")
	p.cases = append(p.cases, c)
	p.refs[c.ID] = ref
}

// account returns the dashboard's account at the API server.
func (p *dashboardPlan) account(group string) string {
	if group == existingCluster {
		return p.file.Account
	}
	return dashboardAccount
}

// Cases implements product.Plan.
func (p *dashboardPlan) Cases() []product.Case { return p.cases }

// Select implements product.Plan. All requests are sent even if a case is left out, because one may need the reviews of
// those before it.
func (p *dashboardPlan) Select(leaveOut func(product.Case) string) {
	for i, c := range p.cases {
		if why := leaveOut(c); why != "" {
			p.cases[i].NotRun = &product.NotRun{Cause: reports.CauseUser, Why: why}
		}
	}
}

// casesOf returns the IDs of the cases of a group that are run.
func (p *dashboardPlan) casesOf(group string) (ids []string) {
	for _, c := range p.cases {
		if c.Group == group && c.NotRun == nil {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Judge implements product.Plan.
func (p *dashboardPlan) Judge(id string, view record.View) reports.Result {
	ref := p.refs[id]
	key := dashboardKey(ref.group)
	if !view.Has(key) {
		return missingEvidence(ref.group, view)
	}
	findings, err := p.judgeCase(ref, view)
	if err != nil {
		return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameHarness, Reason: err.Error()}
	}
	r := newDashboardJudgement(findings).result()
	r.Evidence = []string{view.EvidenceFile(key)}
	return r
}

// judgeCase judges one case by the evidence of its group.
func (p *dashboardPlan) judgeCase(ref dashboardCase, view record.View) (*dashboard.Findings, error) {
	e, err := record.Read[dashboard.Evidence](view, dashboardKey(ref.group))
	if err != nil {
		return nil, err
	}
	groups := map[string][]string{}
	for _, person := range p.options.proxy.People {
		groups[person.Name] = person.Groups
	}
	j, err := dashboard.NewJudge(p.file, e, p.account(ref.group), groups)
	if err != nil {
		return nil, err
	}
	if ref.isTrail {
		return j.JudgeTrail(), nil
	}
	return j.JudgeRequest(ref.request), nil
}

// newDashboardJudgement turns findings into a judgement, as the other parts have it.
func newDashboardJudgement(findings *dashboard.Findings) *judgement {
	out := newJudgement()
	out.checks, out.inconclusive = findings.Checks, findings.Unknown
	for what, n := range findings.Notes {
		out.outcomes[what] = n
	}
	for _, f := range findings.Failures {
		out.fail(f.What, f.Want, "%s", f.Got)
	}
	return out
}

// Conclude implements product.Plan.
func (p *dashboardPlan) Conclude(results []reports.Result, view record.View) (*reports.Report, error) {
	provider := local.Name
	if p.options.proxy.Kubeconfig != "" {
		provider = existing.Name
	}
	r := &reports.Report{
		Subject: reports.Subject{Name: "the dashboard " + p.options.proxy.URL, Provider: provider},
		Groups:  product.Group(p.cases, results),
	}
	for i, group := range p.options.ways() {
		if err := describeGroup(&r.Groups[i], group, view); err != nil {
			return nil, err
		}
		r.Groups[i].Facts = append(r.Groups[i].Facts, p.options.clusterFacts()...)
	}
	r.Figures = []reports.Figure{{Name: "requests", Value: float64(len(p.file.Requests) * len(p.options.ways()))}}
	r.Sections = []reports.Section{p.requestsSection()}
	return r, nil
}

// requestsSection lists what was sent, and what had to arrive.
func (p *dashboardPlan) requestsSection() reports.Section {
	t := reports.Table{Columns: []string{"request", "as", "sent", "must arrive", "review before", "must be asked"}}
	for _, r := range p.file.Requests {
		arrives := strings.Join(seq.Map(r.Arrives, dashboard.Attributes.String), "; ")
		reviews := seq.Map(r.Arrives, func(a dashboard.Attributes) string { return string(r.ReviewOf(a)) })
		if r.Refused {
			arrives += ", or nothing: it is refused"
		}
		t.Rows = append(t.Rows, reports.Row{Cells: []string{
			r.Name, r.As, r.Method + " " + r.Path, cmp.Or(arrives, "nothing"), strings.Join(slices.Compact(reviews), ", "),
			strings.Join(seq.Map(r.Asks, dashboard.Attributes.String), "; "),
		}})
	}
	return reports.Section{
		ID:    "requests",
		Title: "The dashboard's requests",
		Text: []string{
			"Each request of the dashboard's own HTTP interface, and what must arrive at the API server for it, as the person who sent it.",
		},
		Tables: []reports.Table{t},
	}
}
