package verdicts

import (
	"bytes"
	"slices"
	"testing"
)

// TestConcurrentWithoutStatedReviews judges two requests that were sent at the same time and state no reviews. What the
// recorder saw and what the API server counted must agree nevertheless.
func TestConcurrentWithoutStatedReviews(t *testing.T) {
	for name, c := range map[string]struct {
		change func(e *Evidence)
		field  string
	}{
		"as many as counted": {func(*Evidence) {}, ""},
		"fewer counted": {func(e *Evidence) {
			for i := range e.Steps[0].Metrics {
				e.Steps[0].Metrics[i].Delta--
			}
		}, countedField},
		"one review more": {func(e *Evidence) {
			e.Steps[0].Reviews = append(e.Steps[0].Reviews, e.Steps[0].Reviews[0])
		}, countedField},
		"the second refused": {func(e *Evidence) { e.Steps[1].Response.Code = 403 }, "code"},
	} {
		t.Run(name, func(t *testing.T) {
			s, e := listAsBob(), newEvidence()
			s.Steps[0].Expect.Reviews, s.Steps[0].Expect.Metrics = nil, nil
			second := s.Steps[0]
			second.Beside = true
			s.Steps = append(s.Steps, second)
			e.Steps = append(e.Steps, newEvidence().Steps[0])
			first, other := &e.Steps[0], &e.Steps[1]
			other.Step, other.Response.AuditID = 1, "id2"
			other.Audit = bytes.ReplaceAll(other.Audit, []byte("id1"), []byte("id2"))
			first.Reviews = append(first.Reviews, other.Reviews...)
			for i := range first.Metrics {
				first.Metrics[i].Delta *= 2
			}
			other.Reviews, other.Metrics = nil, nil
			c.change(e)
			r := Judge(s, e)
			isFound := slices.ContainsFunc(r.Differences, func(d Difference) bool { return d.Field == c.field })
			if isPassed := r.Verdict == Passed; isPassed != (c.field == "") {
				t.Errorf("verdict %s: %s", r.Verdict, r.Reason)
			}
			if c.field != "" && !isFound {
				t.Errorf("%s is not among the differences: %v", c.field, r.Differences)
			}
		})
	}
}
