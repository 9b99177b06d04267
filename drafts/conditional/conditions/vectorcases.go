package conditions

import (
	"strings"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// vectorCases has the cases of a plan: one for each vector in each group.
type vectorCases struct {
	cases
	set *vectorSet
	// byID are the vectors, by the IDs of cases.
	byID map[string]*vectors.Vector
}

func newVectorCases(set *vectorSet) vectorCases {
	return vectorCases{set: set, byID: map[string]*vectors.Vector{}}
}

// add adds a case for each vector. cannot says why a vector is not about the subject.
func (p *vectorCases) add(group string, cannot func(*vectors.Vector) string) {
	for _, v := range p.set.all {
		c := product.NewCase(group, v.ID, scenarios.Extended, append([]string{string(v.Level)}, labels...)...)
		if why := cannot(v); why != "" {
			c.NotRun = &product.NotRun{Cause: reports.CauseTarget, Why: why}
		}
		p.cases = append(p.cases, c)
		p.byID[c.ID] = v
	}
}

// runningIn returns the vectors that are run in a group, in order.
func (p *vectorCases) runningIn(group string) (all []*vectors.Vector) {
	for _, c := range p.running() {
		if c.Group == group {
			all = append(all, p.byID[c.ID])
		}
	}
	return all
}

// newResult makes the result of a case from the result of a vector. comparisons is the number of expectations that were
// compared.
func newResult(r vectors.Result, comparisons int, evidence record.View, id string) reports.Result {
	out := reports.Result{Verdict: r.Verdict, Judged: comparisons, Evidence: []string{evidence.EvidenceFile(id)}}
	if r.Verdict == verdicts.Invalid {
		out.Blame = verdicts.BlameEnvironment
	}
	why := r.Why
	if r.Verdict != verdicts.Passed && len(why) > 0 {
		out.Reason, why = strings.ReplaceAll(why[0], "\n  ", "; "), why[1:]
	}
	for _, text := range why {
		out.Details = append(out.Details, strings.Split(text, "\n")...)
	}
	return out
}

// report makes the report that all these products have in common.
func (p *vectorCases) report(subject string, results []reports.Result) (*reports.Report, error) {
	files, err := p.set.describe()
	if err != nil {
		return nil, err
	}
	r := &reports.Report{Subject: reports.Subject{Name: subject}, Groups: product.Group(p.cases, results)}
	for i := range r.Groups {
		r.Groups[i].Facts = []reports.Fact{{Name: "vectors", Value: files}}
	}
	return r, nil
}
