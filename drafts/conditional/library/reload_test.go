package library

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// TestReloadBetweenPhases checks conditions that one chain gave and another chain evaluates. kube-apiserver evaluates
// conditions by the chain that is configured at that time, not by the chain that answered (k8s.io/kubernetes
// pkg/kubeapiserver/authorizer/reload.go). The union of the library finds authorizers by name, and asks any authorizer
// with the right name. That conflicts with the goal that one state of the authorizer makes a decision (section "Goals":
// "evaluated against an atomic set of policies in the authorizer").
func TestReloadBetweenPhases(t *testing.T) {
	mayAllow, mayDeny := conditional("a", vectors.Allow, vectors.True), conditional("a", vectors.Deny, vectors.False)
	allow := vectors.Authorizer{Name: "b", Decision: vectors.Allow}
	renamed := mayAllow
	renamed.Name = "c"
	for _, c := range []struct {
		name          string
		before, after []vectors.Authorizer
		decision      authorizer.Decision
		problem       string
		evaluatedBy   []string // the authorizers of the chain after the reload
	}{
		{"control: nothing is changed", []vectors.Authorizer{mayAllow}, []vectors.Authorizer{mayAllow}, authorizer.DecisionAllow, "", []string{"a"}},
		// In this case the two authorizers with the same name evaluate the same condition differently.
		{"another under the same name", []vectors.Authorizer{conditional("a", vectors.Allow, vectors.False)}, []vectors.Authorizer{mayAllow}, authorizer.DecisionNoOpinion, "", []string{"a"}},
		{"who may have allowed is gone", []vectors.Authorizer{mayAllow}, []vectors.Authorizer{renamed}, authorizer.DecisionNoOpinion, `couldn't find authorizer with name: "a"`, []string{}},
		{"who may have denied is gone", []vectors.Authorizer{mayDeny, allow}, []vectors.Authorizer{allow}, authorizer.DecisionDeny, `couldn't find authorizer with name: "a"`, []string{}},
		{"one that denies is put before", []vectors.Authorizer{mayAllow}, []vectors.Authorizer{{Name: "b", Decision: vectors.Deny}, mayAllow}, authorizer.DecisionAllow, "", []string{"a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			chain := func(all []vectors.Authorizer) (authorizer.Authorizer, *libraryRun) {
				run := &libraryRun{m: &vectors.APIServer{Chain: all, Objects: 1}, want: &vectors.Want{EvaluatedBy: []string{}}}
				run.asking = &run.want.Asked
				built, err := run.chain(all)
				if err != nil {
					t.Fatal(err)
				}
				return built, run
			}
			old, oldRun := chain(c.before)
			d := old.ConditionsAwareAuthorize(t.Context(), authorizer.AttributesRecord{})
			reloaded, run := chain(c.after)
			got, _, err := reloaded.EvaluateConditions(t.Context(), d, record{})
			problem := ""
			if err != nil {
				problem = err.Error()
			}
			if got != c.decision || !strings.Contains(problem, c.problem) || (c.problem == "") != (err == nil) {
				t.Errorf("%s, %v; want %s, %q", got, err, c.decision, c.problem)
			}
			if !slices.Equal(run.want.EvaluatedBy, c.evaluatedBy) || len(oldRun.want.EvaluatedBy) > 0 || len(run.want.Asked) > 0 {
				t.Errorf(
					"evaluated by %v, before by %v, asked %v; want %v and nobody",
					run.want.EvaluatedBy,
					oldRun.want.EvaluatedBy,
					run.want.Asked,
					c.evaluatedBy,
				)
			}
		})
	}
}
