// Package conditions has the products for KEP-5681 (Conditional Authorization) besides certification. They check an
// authorizer, Kubernetes' library or an API server by the vectors.
package conditions

import (
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// referenceSubject is the subject of reports that are about nothing but the reference.
const referenceSubject = "the reference authorizer (by our reference only)"

// labels are the labels of all cases.
var labels = []string{"sig-auth", "KEP-5681"}

// cases are the cases of a plan. None has the level core: a draft requires nothing.
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
