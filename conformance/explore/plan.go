package explore

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const (
	batchSize = 200 // how many cases the server's metrics are read once for
	// rbacShare is one in how many cases has RBAC objects as grants. It shares no factor with a number of sequences.
	rbacShare = 13
	// maxDisagreements ends a sequence: so many mean that one thing is wrong, and each takes seconds to make small.
	maxDisagreements = 10
	maxSequences     = 4 // how many control planes there are at most for one cell
)

// Options are what to explore.
type Options struct {
	Cells []server.Options // explored one after the other
	Cases int              // how many cases each cell gets, the same ones
	Seed  int64

	// Sent, if given, is called after every request, and may say which statements of the server it reached; there is one
	// sequence then.
	Sent func(number int, choice cases.Choice)

	// tamper changes what is predicted, for a test to see that it is noticed.
	tamper func(*scenarios.Scenario)
}

// plan has a group for each cell, and in it a case for each batch of generated cases.
type plan struct {
	o     Options
	cells []*cell
	cases []product.Case
	refs  map[string]batchRef // by the IDs of cases
	index map[string]int      // of cases, by their IDs

	mu     sync.Mutex
	judged map[string]*batchResult // by the IDs of cases
}

// cell is explored in sequences: requests are sent one at a time to each server, and one server and one sender that wait
// for each other cannot keep two processors busy. Each sequence has a control plane of its own, so that none sees anything
// of another.
type cell struct {
	plan      *plan
	options   server.Options
	sequences []*sequence
}

// batchRef names a batch: its sequence, its number in it, and what is special about it.
type batchRef struct {
	sequence *sequence
	number   int
	special  string
	// isRepeat means that it is sent once more, under other names.
	isRepeat bool
}

// name returns the name of the batch in its cell.
func (r batchRef) name() string {
	return fmt.Sprintf("%s/batch-%04d%s", r.sequence.name(), r.number, r.special)
}

// NewPlan plans generated cases.
func NewPlan(o Options) product.Plan {
	p := &plan{o: o, refs: map[string]batchRef{}, index: map[string]int{}, judged: map[string]*batchResult{}}
	count := max(1, min(maxSequences, o.Cases/batchSize))
	if o.Sent != nil {
		count = 1
	}
	for _, options := range o.Cells {
		c := &cell{plan: p, options: options}
		p.cells = append(p.cells, c)
		for i := range count {
			s := newSequence(c, i, count)
			c.sequences = append(c.sequences, s)
			for _, ref := range s.batches() {
				p.addCase(ref)
			}
		}
	}
	return p
}

// addCase adds the case of a batch. None is of level core: a disagreement has failed, whatever broke beside it.
func (p *plan) addCase(ref batchRef) {
	labels := []string{"sig-auth", "FeatureGate:" + server.GateName}
	if ref.special != "" {
		labels = append(labels, strings.TrimPrefix(ref.special, "-"))
	}
	c := product.NewCase(ref.sequence.cell.options.Cell.Name, ref.name(), scenarios.Extended, labels...)
	p.refs[c.ID], p.index[c.ID] = ref, len(p.cases)
	p.cases = append(p.cases, c)
}

// id returns the ID of a batch's case, which is the key of its evidence as well.
func (r batchRef) id() string { return r.sequence.cell.options.Cell.Name + "/" + r.name() }

// Cases implements product.Plan.
func (p *plan) Cases() []product.Case { return p.cases }

// Select implements product.Plan.
func (p *plan) Select(leaveOut func(product.Case) string) {
	for i, c := range p.cases {
		if why := leaveOut(c); why != "" && c.NotRun == nil {
			p.cases[i].NotRun = &product.NotRun{Cause: reports.CauseUser, Why: why}
		}
	}
}

// runs reports whether a batch is sent.
func (p *plan) runs(ref batchRef) bool { return p.cases[p.index[ref.id()]].NotRun == nil }

// Judge implements product.Plan. A batch that was judged while it was sent is not judged again: that was by the same
// evidence.
func (p *plan) Judge(id string, view record.View) reports.Result {
	ref := p.refs[id]
	if !view.Has(id) {
		return missingEvidence(ref.sequence, view)
	}
	result, err := p.judgeBatch(ref, view)
	if err != nil {
		return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameHarness, Reason: err.Error()}
	}
	r := result.result()
	r.Evidence = []string{view.EvidenceFile(id)}
	for _, d := range result.disagreements {
		r.Evidence = append(r.Evidence, d.file)
	}
	return r
}

// remember keeps what came out of a batch.
func (p *plan) remember(ref batchRef, r *batchResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judged[ref.id()] = r
}

func (p *plan) findResult(ref batchRef) *batchResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.judged[ref.id()]
}

// missingEvidence returns the verdict on a batch that was not sent: its sequence was stopped, or something broke.
func missingEvidence(s *sequence, view record.View) reports.Result {
	r := reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameEnvironment, Reason: "there is no evidence of it"}
	e, err := record.Read[sequenceEvidence](view, s.key())
	switch {
	case err != nil:
	case e.Stopped:
		r.Verdict, r.Blame = verdicts.Skipped, ""
		r.Reason = fmt.Sprintf("the sequence was stopped after %d disagreements", maxDisagreements)
	default:
		r.Reason = cmp.Or(strings.Join(e.Problems, "; "), r.Reason)
	}
	return r
}
