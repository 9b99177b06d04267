package suites

import (
	"context"
	"fmt"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/pages"
	"github.com/authzconf/authzconf/verdicts"
)

// casesFile is the name under which the record has the cases that Ginkgo's filters select.
const casesFile = "ginkgo-cases.txt"

// verdict is the verdict on one case, once it is known.
type verdict struct {
	known  chan struct{} // closed when the result is there
	result reports.Result
}

// Describe adds a container with the plan of a run to the spec tree. It has a container for each group, and a spec for
// each case that waits for its verdict. The run starts before the first spec and ends after the last one, even on
// failure or interrupt; then the report is written. Call it at the top level of a test or of a package, before
// RunSpecs.
func Describe(text string, r *Run) bool {
	// What Ginkgo's filters exclude from the plan is still a spec, which Ginkgo skips.
	groups := groupCases(r.prepared.Plan.Cases())
	return ginkgo.Describe(text, ginkgo.Ordered, ginkgo.ContinueOnFailure, func() {
		ginkgo.BeforeAll(func() {
			r.begin()
			ginkgo.DeferCleanup(r.finish)
		})
		for _, g := range groups {
			ginkgo.Context(g.name, func() {
				for _, c := range g.cases {
					describeCase(r, c)
				}
			})
		}
	})
}

// caseGroup is a group of a plan with its cases.
type caseGroup struct {
	name  string
	cases []product.Case
}

func groupCases(cases []product.Case) (groups []caseGroup) {
	at := map[string]int{}
	for _, c := range cases {
		i, known := at[c.Group]
		if !known {
			i = len(groups)
			at[c.Group] = i
			groups = append(groups, caseGroup{name: c.Group})
		}
		groups[i].cases = append(groups[i].cases, c)
	}
	return groups
}

// describeCase adds the spec of a case. There is no spec for a case that is for another version or gate.
func describeCase(r *Run, c product.Case) {
	if c.NotRun == nil {
		ginkgo.It(c.Name, ginkgo.Label(c.Labels...), func(ctx ginkgo.SpecContext) { r.expectPass(ctx, c) })
		return
	}
	if c.NotRun.Cause == reports.CauseTargetLacks {
		ginkgo.It(c.Name, ginkgo.Label(c.Labels...), func() { ginkgo.Skip(c.NotRun.Why) })
	}
}

// selectPreviewed leaves out of the plan what Ginkgo's filters exclude.
func (r *Run) selectPreviewed(preview ginkgo.Report) error {
	left := map[string]bool{}
	total := 0
	for _, spec := range preview.SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		total++
		if spec.State.Is(types.SpecStateSkipped | types.SpecStatePending) {
			continue
		}
		containers := spec.ContainerHierarchyTexts
		left[containers[len(containers)-1]+"/"+spec.LeafNodeText] = true
	}
	if len(left) == total {
		return nil
	}
	return r.selectCases(left)
}

func (r *Run) selectCases(left map[string]bool) error {
	var names []string
	for _, c := range r.prepared.Plan.Cases() {
		if c.NotRun == nil && left[c.ID] {
			names = append(names, c.ID)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: Ginkgo's filters leave no case of the plan", product.ErrNothingSelected)
	}
	r.prepared.Plan.Select(func(c product.Case) string {
		if left[c.ID] {
			return ""
		}
		return "not in --case-list"
	})
	r.invocation.AddInput(casesFile, strings.Join(names, "\n")+"\n")
	r.command = append(r.command, "--"+product.CaseListFlag+"="+casesFile)
	return nil
}

// begin starts the run in the background.
func (r *Run) begin() {
	r.start.Do(func() {
		// Cases continue in the background after the node that starts them, so they must not end with its context.
		ctx, cancel := context.WithCancel(context.Background())
		r.stop = cancel
		go func() {
			defer close(r.done)
			r.result, r.err = product.Execute(ctx, product.Run{
				PreparedRun: r.prepared, Invocation: r.invocation, Command: r.command,
				Say:    func(text string) { _, _ = fmt.Fprintln(ginkgo.GinkgoWriter, text) },
				Status: func(string) {},
				Judged: r.addResult,
			})
		}()
	})
}

func (r *Run) addResult(c product.Case, result reports.Result) {
	v := r.verdicts[c.ID]
	v.result = result
	close(v.known)
}

// expectPass waits for the verdict on a case, and fails the spec unless it is passed.
func (r *Run) expectPass(ctx context.Context, c product.Case) {
	result, err := r.wait(ctx, c)
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	switch result.Verdict {
	case verdicts.Passed:
	case verdicts.Skipped, verdicts.NotSupported:
		ginkgo.Skip(result.Reason)
	default:
		for _, table := range result.Tables {
			ginkgo.AddReportEntry(table.Title, pages.TableText(table), ginkgo.ReportEntryVisibilityFailureOrVerbose)
		}
		ginkgo.Fail(result.Describe())
	}
}

// wait waits for the verdict on a case. A case that is judged only at the end of the whole run has its verdict then.
func (r *Run) wait(ctx context.Context, c product.Case) (reports.Result, error) {
	v := r.verdicts[c.ID]
	select {
	case <-v.known:
		return v.result, nil
	case <-r.done:
	case <-ctx.Done():
		return reports.Result{}, context.Cause(ctx)
	}
	if r.err != nil {
		return reports.Result{}, r.err
	}
	for _, g := range r.result.Report.Groups {
		for _, result := range g.Cases {
			if g.Name == c.Group && result.Case == c.Name {
				return result, nil
			}
		}
	}
	return reports.Result{}, fmt.Errorf("the report has no verdict on %s", c.ID)
}

// finish ends the run and writes the report. It fails unless everything that is required passed, so that a green run
// has looked at something.
func (r *Run) finish(ctx ginkgo.SpecContext) {
	if ctx.Err() != nil {
		r.stop()
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		r.stop()
		<-r.done
	}
	r.stop()
	if r.err != nil {
		ginkgo.Fail(r.err.Error())
	}
	if err := r.output.Save(r.result); err != nil {
		ginkgo.Fail(err.Error())
	}
	_, _ = fmt.Fprintf(ginkgo.GinkgoWriter, "outcome: %s\n", pages.Line(r.result.Report))
	r.output.Announce(ginkgo.GinkgoWriter)
	if outcome := r.result.Report.Outcome; outcome.ExitCode != 0 {
		ginkgo.Fail(fmt.Sprintf("the outcome is %s: %s", pages.Line(r.result.Report), strings.Join(outcome.Reasons, "; ")))
	}
}

// report returns the report of a run that has ended, or nil if there is none.
func (r *Run) report() *reports.Report {
	if r.result == nil {
		return nil
	}
	return r.result.Report
}
