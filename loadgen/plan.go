package loadgen

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/storm"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// plan is a storm that is about to be run, or was.
type plan struct {
	options    storm.Options
	thresholds judge.Thresholds
	cases      []plannedCase

	judging  sync.Once
	run      *run.Run
	result   judge.Result
	unjudged error // why there is no result
}

func newPlan(o storm.Options) *plan {
	t := judge.ThresholdsOf(o.Profile)
	return &plan{options: o, thresholds: t, cases: planCases(o.Profile, t)}
}

// Cases implements product.Plan.
func (p *plan) Cases() []product.Case {
	return seq.Map(p.cases, func(c plannedCase) product.Case { return c.Case })
}

// Select implements product.Plan. A comparison without any case does not run. The checks of the measuring are kept as
// long as any other case is.
func (p *plan) Select(leaveOut func(product.Case) string) {
	left := 0
	for i := range p.cases {
		c := &p.cases[i]
		if len(c.comparisons) == 0 {
			continue
		}
		if why := leaveOut(c.Case); why != "" {
			c.NotRun = &product.NotRun{Cause: reports.CauseUser, Why: why}
		} else {
			left++
		}
	}
	if left == 0 {
		p.leaveOutChecks()
		return
	}
	p.dropComparisons()
}

func (p *plan) leaveOutChecks() {
	for i := range p.cases {
		if c := &p.cases[i]; c.NotRun == nil {
			c.NotRun = &product.NotRun{Cause: reports.CauseUser, Why: "there is nothing to measure"}
		}
	}
}

// dropComparisons removes the comparisons that no case needs.
func (p *plan) dropComparisons() {
	needed := map[string]bool{}
	for _, c := range p.cases {
		if c.NotRun == nil {
			for _, name := range c.comparisons {
				needed[name] = true
			}
		}
	}
	narrowed := *p.options.Profile
	narrowed.Comparisons = slices.DeleteFunc(slices.Clone(narrowed.Comparisons), func(c profile.Comparison) bool { return !needed[c.Name] && !c.AA() })
	variants := narrowed.Used()
	narrowed.Thresholds = slices.DeleteFunc(slices.Clone(narrowed.Thresholds), func(t profile.Threshold) bool {
		return !slices.Contains(variants, t.Variant)
	})
	p.options.Profile = &narrowed
	p.thresholds = judge.ThresholdsOf(&narrowed)
}

// Describe implements product.Describer. It shows what would run, and the reviews that the oracle predicts.
func (p *plan) Describe(w io.Writer) error { return storm.Describe(w, p.options) }

// Run implements product.Plan.
func (p *plan) Run(ctx context.Context, log *record.Log, observer product.Observer) error {
	o, show := p.options, newProgress(observer.Status)
	o.Say, o.Progress, o.Created = observer.Say, show.showBlock, show.showCreated
	o.Block = func(number int, b *run.Block) error { return run.AppendBlock(log, number, b) }
	if storm.IsForeign(o.Provider) {
		if err := log.Append(clusterKey, o.Existing.Cell); err != nil {
			return err
		}
	}
	out, err := storm.Execute(ctx, o)
	if err != nil {
		return err
	}
	return p.finish(log, out, observer)
}

// finish records the circumstances of a run. From then on all cases can be judged.
func (p *plan) finish(log *record.Log, r *run.Run, observer product.Observer) error {
	if err := run.AppendRun(log, r); err != nil {
		return err
	}
	for _, c := range p.cases {
		if c.NotRun == nil {
			observer.Done(c.ID)
		}
	}
	return nil
}

// Judge implements product.Plan.
func (p *plan) Judge(id string, evidence record.View) reports.Result {
	if !run.Recorded(evidence) {
		return reports.Result{
			Verdict: verdicts.Invalid,
			Blame:   verdicts.BlameEnvironment,
			Reason:  "the storm did not come to an end that could be recorded",
		}
	}
	p.judgeAll(evidence)
	if p.unjudged != nil {
		return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameHarness, Reason: p.unjudged.Error()}
	}
	i := slices.IndexFunc(p.cases, func(c plannedCase) bool { return c.ID == id })
	result := p.cases[i].result(&p.result)
	if result.Verdict != verdicts.Passed {
		result.Evidence = p.listEvidence(p.cases[i], evidence)
	}
	return result
}

// judgeAll judges the whole run once, because all cases follow from the same judgement.
func (p *plan) judgeAll(evidence record.View) {
	p.judging.Do(func() {
		if p.run, p.unjudged = run.Read(evidence); p.unjudged == nil {
			p.result = judge.Judge(*p.run, p.thresholds)
		}
	})
}

// listEvidence returns the files from which a case follows: the circumstances of the run, and the blocks of the
// comparisons that it is about.
func (p *plan) listEvidence(c plannedCase, evidence record.View) []string {
	files := []string{run.RunFile(evidence)}
	for i, b := range p.run.Blocks {
		if slices.ContainsFunc(c.comparisons, b.Is) {
			files = append(files, run.BlockFile(evidence, i))
		}
	}
	return files
}
