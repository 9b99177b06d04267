package verdicts

import "testing"

// TestIsCertain checks that failures which only the API server explains are told apart from those that a busy machine
// may cause.
func TestIsCertain(t *testing.T) {
	failed := func(list ...Difference) Result { return Result{Verdict: Failed, Differences: list} }
	at := func(field, want, got string) Difference {
		return Difference{Step: 1, Field: field, Want: want, Got: got}
	}
	for name, c := range map[string]struct {
		r    Result
		want bool
	}{
		"somebody else in the final review":    {failed(at(finalUserField, "bob", "carol")), true},
		"no final review":                      {failed(at(finalUserField, "bob", noFinalReview), at("reviews", "2", "1")), false},
		"somebody else in the audit event":     {failed(at(auditUserField, "bob", "carol")), true},
		"nobody in the audit event":            {failed(at(auditUserField, "bob", noImpersonation)), false},
		"allowed":                              {failed(at(outcomeField, "requestForbidden", "allowed"), at("reviews", "2", "1")), true},
		"refused, with other reviews":          {failed(at(outcomeField, "allowed", "requestForbidden"), at("reviews", "2", "1")), false},
		"refused, with all reviews as wanted":  {failed(at(outcomeField, "allowed", "requestForbidden")), true},
		"the same question about another user": {failed(at("reviews[2].user", `"bob"`, `"alice"`), at("reviews[2].decision", "allow", "noOpinion")), true},
		"another question in its place":        {failed(at("reviews[2].user", `"bob"`, `"alice"`), at("reviews[2].verb", `"list"`, `"impersonate"`)), false},
		"a counter":                            {failed(at("metrics.attempts", "1", "2")), false},
		"a message alone":                      {failed(at("message", "a", "b")), false},
		"passed":                               {Result{Verdict: Passed}, false},
	} {
		if got := c.r.IsCertain(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
