package library

import (
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	celauthz "k8s.io/apiserver/pkg/cel/library"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// TestSecondary evaluates the text of the conditions that ask for a check. ValidatingAdmissionPolicies have a function
// authorizer, which asks the library's union. Each condition must evaluate to what its vector says, and the authorizers
// that the vector names must be asked.
func TestSecondary(t *testing.T) {
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: environment.DefaultCompatibilityVersion(),
		EnvOptions:        []cel.EnvOption{cel.Variable("authorizer", celauthz.AuthorizerType), cel.Variable("object", cel.DynType)},
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, v := range all {
		if v.APIServer == nil || len(v.APIServer.Chain) == 0 || len(v.APIServer.Chain[0].Conditions) == 0 ||
			!v.APIServer.Chain[0].Conditions[0].Secondary {
			continue
		}
		found++
		c := v.APIServer.Chain[0].Conditions[0]
		compiled, issues := set.StoredExpressionsEnv().Compile(c.Condition.Condition)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", v.ID, issues.Err())
		}
		program, err := set.StoredExpressionsEnv().Program(compiled)
		if err != nil {
			t.Fatal(err)
		}
		run := &libraryRun{m: v.APIServer, want: &vectors.Want{}}
		run.asking = &run.want.AskedLater
		second, err := run.chain(v.APIServer.Compound)
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := program.Eval(map[string]any{
			"authorizer": celauthz.NewAuthorizerVal(&user.DefaultInfo{Name: "someone"}, second),
			"object":     map[string]any{"spec": map[string]any{"signerName": "example.com/mine"}},
		})
		if err != nil || out.Value() != (c.Is == vectors.True) {
			t.Errorf("%s: %v, %v, want %s", v.ID, out, err, c.Is)
		}
		got := vectors.Want{AskedLater: run.want.AskedLater}
		for _, d := range (&vectors.Want{AskedLater: v.APIServer.Want.AskedLater}).Differences(&got) {
			t.Errorf("%s: %s", v.ID, d)
		}
	}
	if found != 8 {
		t.Errorf("%d vectors ask for a check", found)
	}
}
