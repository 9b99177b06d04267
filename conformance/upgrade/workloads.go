package upgrade

import (
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// judgeWorkloads judges whether everybody who worked before a stage was entered goes on working on it: each workload was
// answered rightly by the stage's API server. Its permissions may lead to a refusal there, which is right then.
func (f *flowJudgement) judgeWorkloads(stage *StagePlan) (v verdicts.Verdict, detail string) {
	working := map[string]bool{}
	for _, a := range f.Answers {
		if a.Cell == stage.Name() && a.Verdict == verdicts.Passed {
			working[a.Setup] = true
		}
	}
	stopped := seq.Filter(stage.Workloads, func(setup string) bool { return !working[setup] })
	sent := seq.Filter(stage.Workloads, func(setup string) bool {
		return slices.ContainsFunc(f.record.Samples, func(s FlowSample) bool { return s.Setup == setup })
	})
	switch {
	case len(sent) < len(stage.Workloads):
		return verdicts.Invalid, fmt.Sprintf("%d of %s sent no request", len(stage.Workloads)-len(sent), reports.Plural(len(stage.Workloads), "workload"))
	case len(stopped) > 0:
		return verdicts.Failed, fmt.Sprintf("%d of %s had no right answer of this API server: %s",
			len(stopped), reports.Plural(len(stage.Workloads), "workload"), strings.Join(stopped, ", "))
	}
	return verdicts.Passed, fmt.Sprintf("%s that worked before it, and on this API server: %s", reports.Plural(len(working), "workload"), strings.Join(stage.Workloads, ", "))
}
