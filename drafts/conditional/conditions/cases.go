// Package conditions has the product of KEP-5681 (Conditional Authorization) besides certification: vectors that are
// played against an authorizer, Kubernetes' library or an API server.
package conditions

import (
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// referenceSubject is the subject of reports that are about nothing but the reference.
const referenceSubject = "the reference authorizer (by our reference only)"

// labels are those of all cases.
var labels = []string{"sig-auth", "KEP-5681"}

// cases are those of a plan. None is of level core: nothing that is required follows from a draft.
type cases []product.Case

// Cases implements product.Plan.
func (all cases) Cases() []product.Case { return all }

// Select implements product.Plan.
func (all cases) Select(leaveOut func(product.Case) string) {
	for i, c := range all {
		if why := leaveOut(c); why != "" && c.NotRun == nil {
			all[i].NotRun = &product.NotRun{Cause: reports.CauseUser, Why: why}
		}
	}
}

// running returns the cases that are run.
func (all cases) running() []product.Case {
	return seq.Filter(all, func(c product.Case) bool { return c.NotRun == nil })
}

// invalid returns the result of a case that cannot be judged.
func invalid(err error) reports.Result {
	return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameEnvironment, Reason: err.Error()}
}
