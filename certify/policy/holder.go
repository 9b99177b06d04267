package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// Holder is a policy that can be replaced while it is asked.
type Holder struct{ now atomic.Pointer[Policy] }

// NewHolder holds a policy.
func NewHolder(p *Policy) *Holder {
	h := &Holder{}
	h.Set(p)
	return h
}

// Set replaces the policy.
func (h *Holder) Set(p *Policy) { h.now.Store(p) }

// Policy is the one that is in force.
func (h *Holder) Policy() *Policy { return h.now.Load() }

// Decide is what the policy in force says.
func (h *Holder) Decide(spec authorizationv1.SubjectAccessReviewSpec) scenarios.Decision {
	return h.Policy().Decide(spec)
}

// Without is the policy without any grant to a user.
func (p *Policy) Without(users ...string) *Policy {
	out := *p
	out.Grants = slices.DeleteFunc(slices.Clone(p.Grants), func(g scenarios.Grant) bool {
		return slices.Contains(users, g.Subject.User)
	})
	return out.Index()
}

// Parse reads a policy that JSON has written.
func Parse(raw []byte) (*Policy, error) {
	var read struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Seed       int64             `json:"seed"`
		Grants     []scenarios.Grant `json:"grants"`
		Deny       []scenarios.Grant `json:"deny"`
	}
	switch err := json.Unmarshal(raw, &read); {
	case err != nil:
		return nil, fmt.Errorf("it is no policy in JSON: %w", err)
	case read.APIVersion != Version || read.Kind != "CertificationPolicy":
		return nil, fmt.Errorf("it is no CertificationPolicy of %s", Version)
	}
	p := &Policy{Seed: read.Seed, Grants: read.Grants, Deny: read.Deny, Probe: newProbe(read.Seed)}
	return p.Index(), nil
}
