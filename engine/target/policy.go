package target

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/scenarios"
)

// silence is longer than the timeout of any webhook in fixtures/chains.
const silence = 30 * time.Second

// policy is what the scripted webhook answers: the rules of all scenarios that
// run on the target, whose names are unique. It is safe for concurrent use.
type policy struct {
	mu    sync.RWMutex
	rules []scenarios.PolicyRule

	down atomic.Bool // every answer is 503
}

// SetPolicy adds the rules of a bound scenario to what the scripted webhook
// answers. The first rule that matches a review decides.
func (t *Target) SetPolicy(rules []scenarios.PolicyRule) {
	t.policy.mu.Lock()
	defer t.policy.mu.Unlock()
	t.policy.rules = append(t.policy.rules, rules...)
}

// answer implements recorder.Script.
func (p *policy) answer(spec authorizationv1.SubjectAccessReviewSpec) recorder.Answer {
	if p.down.Load() {
		return recorder.Answer{Code: http.StatusServiceUnavailable}
	}
	p.mu.RLock()
	i := slices.IndexFunc(p.rules, func(r scenarios.PolicyRule) bool { return r.For.Covers(spec) })
	var rule scenarios.PolicyRule
	if i >= 0 {
		rule = p.rules[i]
	}
	p.mu.RUnlock()
	switch rule.Answer {
	case scenarios.AnswerAllow:
		return recorder.Answer{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: rule.Reason}}
	case scenarios.AnswerDeny:
		return recorder.Answer{Status: authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: rule.Reason}}
	case scenarios.AnswerBoth:
		return recorder.Answer{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true, Reason: rule.Reason}}
	case scenarios.AnswerError:
		return recorder.Answer{Code: http.StatusInternalServerError, Body: rule.Reason}
	case scenarios.AnswerForbidden:
		return recorder.Answer{Code: http.StatusForbidden, Body: rule.Reason}
	case scenarios.AnswerGarbage:
		return recorder.Answer{Code: http.StatusOK, Body: "<html>" + rule.Reason}
	case scenarios.AnswerSilence:
		return recorder.Answer{Delay: silence}
	}
	return recorder.Answer{Status: authorizationv1.SubjectAccessReviewStatus{Reason: rule.Reason}}
}
