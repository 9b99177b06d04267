package conditions

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/authzconf/authzconf/drafts/conditional/library"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// libraryGroup is the only group of a libraryPlan.
const libraryGroup = "library"

// libraryPlan compares the library of k8s.io/apiserver with the API-server vectors.
type libraryPlan struct {
	vectorCases
	list *library.List
}

func newLibraryPlan(set *vectorSet) (*libraryPlan, error) {
	list, err := library.Known()
	if err != nil {
		return nil, err
	}
	p := &libraryPlan{vectorCases: newVectorCases(set), list: list}
	p.add(libraryGroup, func(v *vectors.Vector) string {
		if v.APIServer == nil {
			return "the library has no part for it"
		}
		return ""
	})
	return p, set.checkRuns(p.cases, library.Module())
}

// module is the evidence about the module that was judged: its version.
type module struct {
	Module string `json:"module"`
}

// Run implements product.Plan.
func (p *libraryPlan) Run(ctx context.Context, log *record.Log, o product.Observer) error {
	if err := log.Append(libraryGroup, module{library.Module()}); err != nil {
		return err
	}
	for _, c := range p.running() {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Execute records an interruption, and cases without evidence are invalid
		}
		got, err := library.Observe(ctx, p.byID[c.ID].APIServer)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if err := log.Append(c.ID, vectors.ResultJSON{Want: *got}); err != nil {
			return err
		}
		o.Done(c.ID)
	}
	return nil
}

// Judge implements product.Plan.
func (p *libraryPlan) Judge(id string, evidence record.View) reports.Result {
	got, err := record.Read[vectors.ResultJSON](evidence, id)
	if err != nil {
		return invalid(err)
	}
	v := p.byID[id]
	want := v.APIServer.WantIn(vectors.Lazy)
	return newResult(p.list.Compare(v, &got.Want).Result(), want.Stated(&got.Want), evidence, id)
}

// Conclude implements product.Plan.
func (p *libraryPlan) Conclude(results []reports.Result, evidence record.View) (*reports.Report, error) {
	subject, err := record.Read[module](evidence, libraryGroup)
	if err != nil {
		subject = &module{"k8s.io/apiserver"}
	}
	r, err := p.report(subject.Module, results)
	if err != nil {
		return nil, err
	}
	report, err := p.compareAll(evidence)
	if err != nil {
		return nil, err
	}
	r.Sections = append(r.Sections,
		reports.Section{ID: "sections", Title: "Sections of KEP-5681", Tables: []reports.Table{countSections(report)}},
		reports.Section{ID: "divergences", Title: "What is known of the library", Tables: []reports.Table{
			listDivergences("divergence", report.Divergences), listDivergences("absent", report.Absent),
		}},
	)
	if p.isComplete(evidence) {
		for _, stale := range report.Stale {
			r.AddFailure(stale)
		}
	}
	return r, nil
}

// compareAll compares all vectors that have evidence, and counts them by section.
func (p *libraryPlan) compareAll(evidence record.View) (*library.Report, error) {
	list, err := library.Known() // which is counted in
	if err != nil {
		return nil, err
	}
	findings := map[string]library.Finding{}
	var all []*vectors.Vector
	for _, c := range p.cases {
		v := p.byID[c.ID]
		all = append(all, v)
		if got, err := record.Read[vectors.ResultJSON](evidence, c.ID); err == nil && c.NotRun == nil {
			findings[v.ID] = list.Compare(v, &got.Want)
		}
	}
	return library.NewReport(all, list, findings), nil
}

// isComplete reports whether all vectors that come with authzconf were compared. Only then every entry of the list of
// known divergences must be seen.
func (p *libraryPlan) isComplete(evidence record.View) bool {
	isMissing := func(c product.Case) bool { return p.byID[c.ID].APIServer != nil && !evidence.Has(c.ID) }
	return p.set.folder == "" && !slices.ContainsFunc(p.cases, isMissing)
}

// countSections returns a table of the sections of the KEP, with the results of their vectors.
func countSections(report *library.Report) reports.Table {
	t := reports.Table{
		Columns: []string{"section", "agree", "divergent", "in part", "our model only", "failed", "for webhooks"},
		Numeric: []int{1, 2, 3, 4, 5, 6},
	}
	for _, s := range report.Sections {
		if s.Total() == 0 {
			continue
		}
		row := reports.Row{Cells: []string{s.Name}}
		for _, n := range []int{s.Agree, s.Divergent, s.Part, s.Absent, s.Failed, s.Webhook} {
			row.Cells = append(row.Cells, strconv.Itoa(n))
		}
		if s.Failed > 0 {
			row.Verdict = verdicts.Failed
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// listDivergences returns a table of known divergences that were seen.
func listDivergences(what string, all []library.Divergence) reports.Table {
	t := reports.Table{Columns: []string{what, "vectors", "the KEP", "the library", "where"}, Numeric: []int{1}}
	for _, d := range all {
		if d.Seen > 0 {
			t.Rows = append(t.Rows, reports.Row{Cells: []string{d.Name, strconv.Itoa(d.Seen), d.Says, d.Instead, d.Upstream}})
		}
	}
	return t
}
