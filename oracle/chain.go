package oracle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authorization/cel"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// chainFile is a file of fixtures/chains, as far as decisions depend on it.
type chainFile struct {
	Authorizers []chainLink
	ABACPolicy  string
}

type chainLink struct {
	Type, Name string
	Webhook    *struct {
		FailurePolicy   string
		MatchConditions []struct{ Expression string }
	}
}

// Chain puts the authorizers of a chain file in place of Node and RBAC. rules are what its scripted webhook answers.
func (s *Server) Chain(file []byte, rules []scenarios.PolicyRule) error {
	var f chainFile
	if err := yaml.Unmarshal(file, &f); err != nil {
		return err
	}
	chain := s.ordinaryChain()[:1] // what comes before every other
	for _, a := range f.Authorizers {
		authorize, err := s.newAuthorizer(a, f.ABACPolicy, rules)
		if err != nil {
			return err
		}
		chain = append(chain, Authorizer{Name: a.Name, Authorize: authorize})
	}
	s.chain = chain
	return nil
}

// newAuthorizer returns the function of an authorizer of a chain file.
func (s *Server) newAuthorizer(
	a chainLink,
	abacPolicy string,
	rules []scenarios.PolicyRule,
) (func(authorizationv1.SubjectAccessReviewSpec) AuthorizerDecision, error) {
	switch a.Type {
	case "Node":
		return s.nodeAuthorizer, nil
	case "RBAC":
		return s.rbacAuthorizer, nil
	case "ABAC":
		policies, err := decodeABAC(abacPolicy)
		return policies.authorize, err
	case "Webhook":
		w, err := newWebhook(a, rules)
		return w.authorize, err
	}
	return nil, fmt.Errorf("the model knows no authorizer of type %q", a.Type)
}

// webhook is a webhook that answers by rules (k8s.io/apiserver/plugin/pkg/authorizer/webhook/webhook.go).
type webhook struct {
	rules      []scenarios.PolicyRule
	failed     scenarios.Decision // what its failure policy makes of no answer
	conditions cel.CELMatcher
}

// newWebhook returns the webhook of a chain file, which answers by these rules. The language of its conditions is the
// server's own: what is modelled is what follows from it.
func newWebhook(a chainLink, rules []scenarios.PolicyRule) (webhook, error) {
	w := webhook{rules: rules, failed: scenarios.NoOpinion}
	if a.Webhook.FailurePolicy == "Deny" {
		w.failed = scenarios.Deny
	}
	for _, c := range a.Webhook.MatchConditions {
		compiled, err := cel.NewDefaultCompiler().CompileCELExpression(&cel.SubjectAccessReviewMatchCondition{Expression: c.Expression})
		if err != nil {
			return w, err
		}
		w.conditions.CompilationResults = append(w.conditions.CompilationResults, compiled)
	}
	return w, nil
}

func (w webhook) authorize(spec authorizationv1.SubjectAccessReviewSpec) AuthorizerDecision {
	if len(w.conditions.CompilationResults) > 0 {
		matches, err := w.conditions.Eval(context.Background(), &authorizationv1.SubjectAccessReview{Spec: spec})
		if err != nil {
			return AuthorizerDecision{Decision: w.failed, Err: err.Error()}
		}
		if !matches {
			return AuthorizerDecision{Decision: scenarios.NoOpinion}
		}
	}
	for _, r := range w.rules {
		if !r.For.Covers(spec) {
			continue
		}
		switch r.Answer {
		case scenarios.AnswerAllow, scenarios.AnswerDeny, scenarios.AnswerNoOpinion:
			return AuthorizerDecision{Decision: scenarios.Decision(r.Answer), Reason: r.Reason, Source: "the webhook"}
		}
		return AuthorizerDecision{Decision: w.failed, Err: "the webhook failed: " + string(r.Answer), vague: true}
	}
	return AuthorizerDecision{Decision: scenarios.NoOpinion}
}

// abacList is an ABAC policy file (k8s.io/kubernetes/pkg/auth/authorizer/abac).
type abacList []abacPolicy

type abacPolicy struct {
	Spec struct {
		User, Group, Namespace, Resource, APIGroup, NonResourcePath string
		Readonly                                                    bool
	}
}

// decodeABAC reads an ABAC policy file, a JSON document a line.
func decodeABAC(file string) (list abacList, err error) {
	for lines := json.NewDecoder(strings.NewReader(file)); lines.More(); {
		var p abacPolicy
		if err := lines.Decode(&p); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

func (l abacList) authorize(spec authorizationv1.SubjectAccessReviewSpec) AuthorizerDecision {
	if slices.ContainsFunc(l, func(p abacPolicy) bool { return p.matches(spec) }) {
		return AuthorizerDecision{Decision: scenarios.Allow, Source: "the ABAC policy"}
	}
	return AuthorizerDecision{Decision: scenarios.NoOpinion, Reason: "No policy matched."}
}

// matches reports whether a policy allows what a review asks for. Of verbs it knows only whether they read: an action check
// reads if the request does, because IsReadOnly of the attributes is that of the request; an identity check never does.
func (p abacPolicy) matches(spec authorizationv1.SubjectAccessReviewSpec) bool {
	if !p.isAbout(spec.User, spec.Groups) {
		return false
	}
	if a := spec.ResourceAttributes; a != nil {
		isResource := isOrStar(p.Spec.Namespace, a.Namespace) && isOrStar(p.Spec.Resource, a.Resource) && isOrStar(p.Spec.APIGroup, a.Group)
		return isResource && p.allowsVerb(a.Verb)
	}
	a := spec.NonResourceAttributes
	return p.isForPath(a.Path) && p.allowsVerb(a.Verb)
}

func isOrStar(have, want string) bool { return have == "*" || have == want }

// isAbout reports whether a policy is about a user. One that names both a user and a group is about that user in that group.
func (p abacPolicy) isAbout(name string, groups []string) bool {
	if p.Spec.User == "" && p.Spec.Group == "" {
		return false
	}
	isUser := p.Spec.User == "" || isOrStar(p.Spec.User, name)
	isGroup := p.Spec.Group == "" || p.Spec.Group == "*" || slices.Contains(groups, p.Spec.Group)
	return isUser && isGroup
}

// isForPath reports whether a policy's path, which may end with a star, is that path or a beginning of it.
func (p abacPolicy) isForPath(path string) bool {
	pattern := p.Spec.NonResourcePath
	isBeginning := strings.HasSuffix(pattern, "*") && strings.HasPrefix(path, strings.TrimRight(pattern, "*"))
	return isBeginning || pattern == path
}

func (p abacPolicy) allowsVerb(verb string) bool {
	if action, isAction := strings.CutPrefix(verb, "impersonate-on:"); isAction {
		_, verb, _ = strings.Cut(action, ":")
	}
	return !p.Spec.Readonly || slices.Contains([]string{"get", "list", "watch"}, verb)
}

// Authorizer is one link of the chain that access reviews go through.
type Authorizer struct {
	// Name stands before the reason in messages since 1.37. An authorizer without a name gives whole reasons.
	Name string
	// Hidden says that webhooks of the chain do not see what it decides.
	Hidden bool
	// Authorize answers a review.
	Authorize func(authorizationv1.SubjectAccessReviewSpec) AuthorizerDecision
}

// AuthorizerDecision is what an authorizer says.
type AuthorizerDecision struct {
	Decision scenarios.Decision
	// Reason is the authorizer's text, Err the text of an error; both may be empty.
	Reason, Err string
	// Source says which grant allowed the review, where that is known.
	Source string
	// vague says that the text of the error is not known.
	vague bool
}

// authorize asks the chain, as unionAuthzHandler.Authorize does (k8s.io/apiserver/pkg/authorization/union/union.go):
// the first to allow or deny ends it, otherwise reasons and errors add up.
func (s *Server) authorize(spec authorizationv1.SubjectAccessReviewSpec) (a AuthorizerDecision, hidden bool) {
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
	return AuthorizerDecision{Decision: scenarios.NoOpinion, Reason: strings.Join(reasons, "\n"), Err: aggregate(errs), vague: vague}, false
}

func aggregate(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return utilerrors.NewAggregate(seq.Map(texts, errors.New)).Error()
}

// ordinaryChain returns the authorizers of every kube-apiserver: members of system:masters pass before it (NewPrivilegedGroups of
// pkg/authorization/authorizerfactory), then Node and RBAC.
func (s *Server) ordinaryChain() []Authorizer {
	return []Authorizer{
		{Hidden: true, Authorize: func(spec authorizationv1.SubjectAccessReviewSpec) AuthorizerDecision {
			if slices.Contains(spec.Groups, mastersGroup) {
				return AuthorizerDecision{Decision: scenarios.Allow, Source: "its group system:masters, before any authorizer is asked"}
			}
			return AuthorizerDecision{Decision: scenarios.NoOpinion}
		}},
		{Name: "node", Authorize: s.nodeAuthorizer},
		{Name: "rbac", Authorize: s.rbacAuthorizer},
	}
}

// rbacAuthorizer decides as RBACAuthorizer.Authorize does (k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/rbac.go). Its
// reason tells of bindings of the subject whose role is not there, only when nothing allows.
func (s *Server) rbacAuthorizer(spec authorizationv1.SubjectAccessReviewSpec) AuthorizerDecision {
	for _, list := range [][]scenarios.Grant{s.policy.grants, s.grants, s.policy.defaults} {
		for _, g := range list {
			if g.Covers(spec) {
				return AuthorizerDecision{Decision: scenarios.Allow, Source: describeGrant(g)}
			}
		}
	}
	var errs []string
	for _, r := range s.policy.dangling { // cluster-wide bindings first, then those of the namespace
		if r.Covers(spec) {
			kind, name := strings.ToLower(scenarios.Text(r.Binding, "roleRef", "kind")), scenarios.Text(r.Binding, "roleRef", "name")
			errs = append(errs, fmt.Sprintf("%s.rbac.authorization.k8s.io %q not found", kind, name))
		}
	}
	if len(errs) == 0 {
		return AuthorizerDecision{Decision: scenarios.NoOpinion}
	}
	return AuthorizerDecision{Decision: scenarios.NoOpinion, Reason: "RBAC: " + aggregate(errs)}
}

func describeGrant(g scenarios.Grant) string {
	text := nameSubject(g.Subject) + " may " + strings.Join(g.Verbs, ", ") + " "
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

func nameSubject(s scenarios.Subject) string {
	if s.Group != "" {
		return "group " + s.Group
	}
	return "user " + s.User
}
