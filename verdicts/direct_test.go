package verdicts

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// TestAuthorizersAreAskedAboutRequestor checks that the authorizers must be asked about a request that impersonates nobody, and about its
// requestor with all attributes, even where a scenario states no reviews.
func TestAuthorizersAreAskedAboutRequestor(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Observation)
		ok     bool
	}{
		"asked":         {func(*Observation) {}, true},
		"more is asked": {func(o *Observation) { o.Reviews = append(o.Reviews, review("alice-"+suffix, "get", "", "pods", "")) }, true},
		"not asked":     {func(o *Observation) { o.Reviews = nil }, false},
		"about another": {func(o *Observation) { o.Reviews[0].Spec.ResourceAttributes.Subresource = "log" }, false},
		"of no version": {func(o *Observation) { o.Reviews[0].Spec.ResourceAttributes.Version = "" }, false},
		"without group": {func(o *Observation) { o.Reviews[0].Spec.Groups = nil }, false},
		"another UID":   {func(o *Observation) { o.Reviews[0].Spec.UID = "7" }, false},
		"with an extra": {func(o *Observation) {
			o.Reviews[0].Spec.Extra = map[string]authorizationv1.ExtraValue{"k": {"v"}}
		}, false},
		"open to all": {func(o *Observation) { o.Reviews, o.Request.URL = nil, "/readyz" }, true},
		"no further than authentication": {func(o *Observation) {
			o.Reviews = nil
			o.Audit = []byte(`{"annotations":{}}`)
		}, true},
	} {
		e := newEvidence()
		o := &e.Steps[0]
		o.Request.Headers, o.Reviews = nil, []Review{review("alice-"+suffix, "list", "", "pods", "")}
		c.change(o)
		s := listAsBob()
		bound, _ := s.BindOn(suffix, nil)
		v := &stepJudge{
			judge:     &judge{s: bound, e: e},
			o:         o,
			request:   &scenarios.Request{},
			expect:    &scenarios.Expect{},
			requestor: bound.Requestors["alice"],
			event:     AuditOf(o),
		}
		v.decided, _ = DeriveDecisions(o.Reviews)
		v.checkReviews()
		if ok := len(v.result.Differences) == 0; ok != c.ok {
			t.Errorf("%s: %v", name, v.result.Differences)
		}
	}
}
