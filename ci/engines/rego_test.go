package engines

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/open-policy-agent/opa/v1/rego"
)

// loadRego has OPA see the spec of the review as its input.
func loadRego(t testing.TB, policy []byte) func(spec) (bool, error) {
	query, err := rego.New(rego.Query("data.authzconf.certification.allow"), rego.Module("policy.rego", string(policy)), rego.Strict(true)).PrepareForEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return func(s spec) (bool, error) {
		raw, err := json.Marshal(s)
		if err != nil {
			return false, err
		}
		var input any
		if err := json.Unmarshal(raw, &input); err != nil {
			return false, err
		}
		results, err := query.Eval(context.Background(), rego.EvalInput(input))
		return results.Allowed(), err
	}
}
