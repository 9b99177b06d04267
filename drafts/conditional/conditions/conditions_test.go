package conditions

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/drafts/conditional/gate"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// execute runs a plan as the command line does.
func execute(t *testing.T, plan product.Plan) *product.RunResult {
	t.Helper()
	made, err := product.Execute(t.Context(), product.Run{
		PreparedRun: &product.PreparedRun{Product: Run, Plan: plan}, Invocation: product.NewInvocation(nil, "v0", io.Discard),
		Command: []string{"authzconf"}, Say: func(string) {}, Status: func(string) {}, Judged: func(product.Case, reports.Result) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func builtinSet(t *testing.T) *vectorSet {
	t.Helper()
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return &vectorSet{all: all}
}

// TestLibraryPlan checks that the list of known divergences must be true if all built-in vectors run, and that it is
// not checked if only some of them run.
func TestLibraryPlan(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*libraryPlan)
		want   verdicts.Verdict
	}{
		"as known":                       {func(*libraryPlan) {}, verdicts.Passed},
		"a divergence that is not known": {func(p *libraryPlan) { p.list.Divergences = p.list.Divergences[1:] }, verdicts.Failed},
		"some of them": {func(p *libraryPlan) {
			p.Select(func(c product.Case) string {
				return map[bool]string{false: "not in --focus"}[strings.Contains(c.Name, "condition-set/")]
			})
		}, verdicts.Passed},
		"none for a section": {func(p *libraryPlan) {
			p.set.all = slices.DeleteFunc(p.set.all, func(v *vectors.Vector) bool { return v.Source.Section == "Glossary" })
			p.cases = slices.DeleteFunc(p.cases, func(c product.Case) bool { return p.byID[c.ID].Source.Section == "Glossary" })
		}, verdicts.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := newLibraryPlan(builtinSet(t))
			if err != nil {
				t.Fatal(err)
			}
			c.change(plan)
			if o := execute(t, plan).Report.Outcome; o.Result != c.want {
				t.Errorf("%s, want %s: %q", o.Result, c.want, o.Reasons)
			}
		})
	}
}

const denied = `
description: A deny is a deny.
source: {document: KEP-5681, section: Proposal}
level: must
apiServer: {chain: [{decision: Deny}], want: {authorized: Deny}}
`

// TestServerPlan checks that a vector that did not run has not passed, and that the report names the reading of chains.
func TestServerPlan(t *testing.T) {
	all, err := vectors.Parse("v.vector.yaml", []byte(denied))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := newServerPlan(&vectorSet{all: all, folder: "mine"}, gate.Options{Wire: wire.Merged})
	if err != nil {
		t.Fatal(err)
	}
	log := record.New()
	id := plan.Cases()[0].ID
	if r := plan.Judge(id, log.View()); r.Verdict != verdicts.Invalid {
		t.Errorf("not vectorCases: %+v", r)
	}
	refused := &gate.Sent{Code: http.StatusForbidden, Events: []string{"asked a0"}}
	seen := gate.VectorEvidence{
		Vector:  "v",
		Starts:  true,
		Request: refused,
		Alone:   refused,
		Behind:  refused,
		Review:  &vectors.SubjectAccessReviewStatus{Denied: true},
	}
	if err := log.Append(id, seen); err != nil {
		t.Fatal(err)
	}
	r := plan.Judge(id, log.View())
	if r.Verdict != verdicts.Passed || r.Judged == 0 {
		t.Errorf("vectorCases: %+v", r)
	}
	report, err := plan.Conclude([]reports.Result{r}, log.View())
	if err != nil || !slices.Contains(report.Groups[0].Facts, reports.Fact{Name: "how it reads chains", Value: "lazy"}) {
		t.Errorf("%v, %+v", err, report.Groups[0].Facts)
	}
}

// TestAuthorizerPlan checks that a vector that was not asked has not passed.
func TestAuthorizerPlan(t *testing.T) {
	set := builtinSet(t)
	set.all = slices.DeleteFunc(set.all, func(v *vectors.Vector) bool { return !strings.Contains(v.ID, "/authorizer/prune") })
	plan, err := newReferencePlan(set, 5, wire.Newest())
	if err != nil {
		t.Fatal(err)
	}
	made := execute(t, plan)
	if o := made.Report.Outcome; o.Result != verdicts.Passed {
		t.Errorf("%+v", o)
	}
	log := record.New()
	id := plan.Cases()[0].ID
	if err := log.Append(id, vectorSeen{}); err != nil {
		t.Fatal(err)
	}
	r := plan.Judge(id, log.View())
	if r.Verdict != verdicts.Invalid || !strings.HasPrefix(r.Reason, "it was not asked, or not all of it") {
		t.Errorf("%+v", r)
	}
}
