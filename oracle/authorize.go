package oracle

import (
	"errors"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/authzconf/authzconf/scenarios"
)

// Authorizer is one link of the chain that access reviews go through.
type Authorizer struct {
	// Name stands before the reason in messages of 1.37 and later. An authorizer without a name gives reasons that
	// are whole already.
	Name string
	// Hidden says that webhooks of the chain do not see what it decides.
	Hidden bool
	// Authorize answers a review.
	Authorize func(authorizationv1.SubjectAccessReviewSpec) Answer
}

// Answer is what an authorizer says.
type Answer struct {
	Decision scenarios.Decision
	// Reason is the authorizer's text, Err the text of an error; both may be empty.
	Reason, Err string
	// Source says which grant allowed the review, where that is known.
	Source string
	// vague says that the text of the error is not known.
	vague bool
}

// authorize asks the chain, as unionAuthzHandler.Authorize does
// (k8s.io/apiserver/pkg/authorization/union/union.go): the first to allow or deny ends it, otherwise reasons and
// errors add up.
func (s *Server) authorize(spec authorizationv1.SubjectAccessReviewSpec) (a Answer, hidden bool) {
	var reasons, errs []string
	vague := false
	for _, link := range s.chain {
		answer := link.Authorize(spec)
		if answer.Decision != scenarios.NoOpinion {
			return answer, link.Hidden
		}
		if answer.Err != "" {
			errs, vague = append(errs, answer.Err), vague || answer.vague
		}
		if answer.Reason == "" {
			continue
		}
		if link.Name != "" && s.binary >= 37 {
			answer.Reason = link.Name + ": " + answer.Reason
		}
		reasons = append(reasons, answer.Reason)
	}
	return Answer{Decision: scenarios.NoOpinion, Reason: strings.Join(reasons, "\n"), Err: aggregate(errs), vague: vague}, false
}

// aggregate is the text of several errors.
func aggregate(texts []string) string {
	var errs []error
	for _, text := range texts {
		errs = append(errs, errors.New(text))
	}
	if len(errs) == 0 {
		return ""
	}
	return utilerrors.NewAggregate(errs).Error()
}

// ordinaryChain is that of every kube-apiserver: members of system:masters pass before it (NewPrivilegedGroups of
// pkg/authorization/authorizerfactory), then Node and RBAC.
func (s *Server) ordinaryChain() []Authorizer {
	return []Authorizer{
		{Hidden: true, Authorize: func(spec authorizationv1.SubjectAccessReviewSpec) Answer {
			if slices.Contains(spec.Groups, mastersGroup) {
				return Answer{Decision: scenarios.Allow, Source: "its group system:masters, before any authorizer is asked"}
			}
			return Answer{Decision: scenarios.NoOpinion}
		}},
		{Name: "node", Authorize: s.nodeAuthorizer},
		{Name: "rbac", Authorize: s.rbacAuthorizer},
	}
}

// rbacAuthorizer is RBACAuthorizer.Authorize (k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/rbac.go). Its
// reason tells of bindings of the subject whose role is not there, only when nothing allows.
func (s *Server) rbacAuthorizer(spec authorizationv1.SubjectAccessReviewSpec) Answer {
	for _, list := range [][]scenarios.Grant{s.policy.grants, s.grants, s.policy.defaults} {
		for _, g := range list {
			if g.Covers(spec) {
				return Answer{Decision: scenarios.Allow, Source: describeGrant(g)}
			}
		}
	}
	var errs []string
	for _, b := range s.policy.dangling {
		if b.applies(spec) {
			errs = append(errs, b.text())
		}
	}
	if len(errs) == 0 {
		return Answer{Decision: scenarios.NoOpinion}
	}
	return Answer{Decision: scenarios.NoOpinion, Reason: "RBAC: " + aggregate(errs)}
}

// describeGrant is a grant on one line: who may do what.
func describeGrant(g scenarios.Grant) string {
	text := who(g.Subject) + " may " + strings.Join(g.Verbs, ", ") + " "
	if len(g.NonResourceURLs) > 0 {
		return text + strings.Join(g.NonResourceURLs, ", ")
	}
	text += strings.Join(g.Resources, ", ")
	if groups := strings.Join(g.APIGroups, ", "); groups != "" {
		text += " in API group " + groups
	}
	if len(g.Names) > 0 {
		text += " named " + strings.Join(g.Names, ", ")
	}
	if g.Namespace != "" {
		text += " in namespace " + g.Namespace
	}
	return text
}

func who(s scenarios.Subject) string {
	if s.Group != "" {
		return "group " + s.Group
	}
	return "user " + s.User
}
