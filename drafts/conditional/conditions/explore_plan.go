package conditions

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/drafts/conditional/model"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// blockBatches is how many batches of generated cases are one case of the report: about 10,000 generated cases.
const blockBatches = 160

// explorePlan has a case for each block of generated cases, in one group: the revision of the wire.
type explorePlan struct {
	cases
	exploration model.Exploration
	blocks      map[string]block // by the IDs of cases
	// subject is who is asked: tests name others.
	subject model.Subject
	// judged has what came of blocks, by their IDs: a block is judged once.
	judged sync.Map
}

// block is the numbers of batches: first, and the one after the last.
type block struct{ first, end int }

func newExplorePlan(e model.Exploration) *explorePlan {
	p := &explorePlan{exploration: e, blocks: map[string]block{}, subject: reference.Subject(e.Wire)}
	for first := 0; first < e.Batches(); first += blockBatches {
		b := block{first, min(first+blockBatches, e.Batches())}
		from, to := e.Range(b.first, b.end)
		c := product.NewCase(e.Wire.Name, fmt.Sprintf("cases-%06d-%06d", from, to), scenarios.Extended, labels...)
		p.cases = append(p.cases, c)
		p.blocks[c.ID] = b
	}
	return p
}

// blockSeen is what was answered about the cases of a block.
type blockSeen struct {
	Batches []*model.Batch `json:"batches"`
}

// Run implements product.Plan. It ends when there are too many disagreements: those that follow would say the same.
func (p *explorePlan) Run(ctx context.Context, log *record.Log, o product.Observer) error {
	began, done, found := time.Now(), &atomic.Int64{}, 0
	progress := func(n int) {
		tried := done.Add(int64(n))
		o.Status(fmt.Sprintf("%d/%d cases, %.0f cases/s", tried, p.exploration.Cases, float64(tried)/time.Since(began).Seconds()))
	}
	for _, c := range p.running() {
		if ctx.Err() != nil || found >= model.MaxDisagreements {
			return nil //nolint:nilerr // Execute records an interruption, and disagreements are in the record already
		}
		seen, err := p.observe(ctx, p.blocks[c.ID], progress)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Execute records an interruption; the block is not whole, so it is left out
		}
		if found, err = p.record(log, c.ID, seen, found); err != nil {
			return err
		}
		o.Done(c.ID)
	}
	return nil
}

// observe asks about the cases of a block, several batches at once.
func (p *explorePlan) observe(ctx context.Context, b block, progress func(cases int)) (*blockSeen, error) {
	seen := &blockSeen{Batches: make([]*model.Batch, b.end-b.first)}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for n := b.first; n < b.end && ctx.Err() == nil; n++ {
		group.Go(func() error {
			batch, err := p.exploration.Observe(p.subject, n)
			seen.Batches[n-b.first] = batch
			from, to := p.exploration.Range(n, n+1)
			progress(to - from + 1)
			return err
		})
	}
	return seen, group.Wait()
}

// record stores what was seen of a block, and the vectors of cases that were made small. It returns how many there are,
// with those before.
func (p *explorePlan) record(log *record.Log, id string, seen *blockSeen, found int) (int, error) {
	if err := log.Append(id, seen); err != nil {
		return found, err
	}
	for _, b := range seen.Batches {
		if b.Smaller == nil {
			continue
		}
		found++
		name := fmt.Sprintf("scenarios/case-%06d%s", b.Smaller.Case, vectors.Suffix)
		if err := log.AppendFile(name, []byte(b.Smaller.Vector)); err != nil {
			return found, err
		}
	}
	return found, nil
}

// blockJudged is what came of a block.
type blockJudged struct {
	counts        model.Counts
	disagreements []model.Disagreement
}

func (p *explorePlan) judgeBlock(id string, evidence record.View) (*blockJudged, error) {
	if known, ok := p.judged.Load(id); ok {
		return known.(*blockJudged), nil
	}
	seen, err := record.Read[blockSeen](evidence, id)
	if err != nil {
		return nil, err
	}
	b, judged := p.blocks[id], &blockJudged{counts: model.NewCounts()}
	if len(seen.Batches) != b.end-b.first {
		return nil, fmt.Errorf("there are answers to %d batches of cases, and there are %d", len(seen.Batches), b.end-b.first)
	}
	for i, batch := range seen.Batches {
		one, err := p.exploration.Judge(b.first+i, batch)
		if err != nil {
			return nil, err
		}
		judged.counts.Add(one.Counts)
		if one.Disagreement != nil {
			judged.disagreements = append(judged.disagreements, *one.Disagreement)
		}
	}
	p.judged.Store(id, judged)
	return judged, nil
}

// Judge implements product.Plan.
func (p *explorePlan) Judge(id string, evidence record.View) reports.Result {
	judged, err := p.judgeBlock(id, evidence)
	if err != nil {
		return invalid(err)
	}
	r := reports.Result{Verdict: verdicts.Passed, Judged: judged.counts.Cases, Evidence: []string{evidence.EvidenceFile(id)}}
	for _, d := range judged.disagreements {
		r.Details = append(r.Details, fmt.Sprintf("case %d: %s\n%s", d.Case, d.Reason, d.Vector))
	}
	if len(judged.disagreements) > 0 {
		first := judged.disagreements[0]
		r.Verdict, r.Reason = verdicts.Failed, fmt.Sprintf("%s disagree, the first: case %d: %s", reports.Plural(len(judged.disagreements), "case"), first.Case, first.Reason)
	}
	return r
}

// Conclude implements product.Plan.
func (p *explorePlan) Conclude(results []reports.Result, evidence record.View) (*reports.Report, error) {
	all, disagreements := model.NewCounts(), 0
	for _, c := range p.running() {
		if judged, err := p.judgeBlock(c.ID, evidence); err == nil {
			all.Add(judged.counts)
			disagreements += len(judged.disagreements)
		}
	}
	return &reports.Report{
		Subject: reports.Subject{Name: referenceSubject},
		Groups:  product.Group(p.cases, results),
		Figures: []reports.Figure{
			{Name: "generated cases", Value: float64(all.Cases)},
			{Name: "disagreements", Value: float64(disagreements)},
		},
		Sections: []reports.Section{{ID: "answers", Title: "What was answered", Tables: []reports.Table{
			countTable("first phase", all.ByAnswer), countTable("in the end", all.ByDecision), countTable("a Deny policy in error counts as", all.ByFailureMode),
		}}},
	}, nil
}
