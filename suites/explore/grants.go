package explore

import (
	"slices"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/scenarios"
)

// grantList is what the recorder's first point allows: the grants of the case
// that is being sent, no others. It is safe for concurrent use.
type grantList struct {
	mu     sync.RWMutex
	grants []scenarios.Grant
}

// answer implements recorder.Script: what no grant covers is left to the authorizers behind.
func (l *grantList) answer(spec authorizationv1.SubjectAccessReviewSpec) recorder.Answer {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return recorder.Answer{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: scenarios.Covered(l.grants, spec)}}
}

// begin brings the grants of a bound scenario into force that hold before its first step.
func (l *grantList) begin(s *scenarios.Scenario) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = s.StartGrants()
}

// change carries out a step that grants or revokes.
func (l *grantList) change(s *scenarios.Scenario, st *scenarios.Step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range s.Grants {
		if st.Grant != "" && g.ID == st.Grant {
			l.grants = append(l.grants, g)
		}
	}
	l.grants = slices.DeleteFunc(l.grants, func(g scenarios.Grant) bool { return st.Revoke != "" && g.ID == st.Revoke })
}

// end takes all grants away.
func (l *grantList) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = nil
}
