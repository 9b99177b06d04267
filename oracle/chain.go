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
	Authorizers []struct {
		Type, Name string
		Webhook    *struct {
			FailurePolicy   string
			MatchConditions []struct{ Expression string }
		}
	}
	ABACPolicy string
}

// Chain puts the authorizers of a chain file in place of Node and RBAC. rules are what its scripted webhook answers.
func (s *Server) Chain(file []byte, rules []scenarios.PolicyRule) error {
	var f chainFile
	if err := yaml.Unmarshal(file, &f); err != nil {
		return err
	}
	ordinary := s.ordinaryChain()
	chain := ordinary[:1] // before every other
	for _, a := range f.Authorizers {
		link := Authorizer{Name: a.Name}
		switch a.Type {
		case "Node":
			link.Authorize = s.nodeAuthorizer
		case "RBAC":
			link.Authorize = s.rbacAuthorizer
		case "ABAC":
			policies, err := abacPolicies(f.ABACPolicy)
			if err != nil {
				return err
			}
			link.Authorize = policies.authorize
		case "Webhook":
			w := webhook{rules: rules, failed: scenarios.NoOpinion}
			if a.Webhook.FailurePolicy == "Deny" {
				w.failed = scenarios.Deny
			}
			for _, c := range a.Webhook.MatchConditions {
				// The language is the server's own: what is modelled is what follows from it.
				compiled, err := cel.NewDefaultCompiler().CompileCELExpression(&cel.SubjectAccessReviewMatchCondition{Expression: c.Expression})
				if err != nil {
					return err
				}
				w.conditions.CompilationResults = append(w.conditions.CompilationResults, compiled)
			}
			link.Authorize = w.authorize
		default:
			return fmt.Errorf("the model knows no authorizer of type %q", a.Type)
		}
		chain = append(chain, link)
	}
	s.chain = chain
	return nil
}

// webhook is a webhook that answers by rules (k8s.io/apiserver/plugin/pkg/authorizer/webhook/webhook.go).
type webhook struct {
	rules      []scenarios.PolicyRule
	failed     scenarios.Decision // what its failure policy makes of no answer
	conditions cel.CELMatcher
}

func (w webhook) authorize(spec authorizationv1.SubjectAccessReviewSpec) Answer {
	if len(w.conditions.CompilationResults) > 0 {
		matches, err := w.conditions.Eval(context.Background(), &authorizationv1.SubjectAccessReview{Spec: spec})
		if err != nil {
			return Answer{Decision: w.failed, Err: err.Error()}
		}
		if !matches {
			return Answer{Decision: scenarios.NoOpinion}
		}
	}
	for _, r := range w.rules {
		if !r.For.Covers(spec) {
			continue
		}
		switch r.Answer {
		case scenarios.AnswerAllow, scenarios.AnswerDeny, scenarios.AnswerNoOpinion:
			return Answer{Decision: scenarios.Decision(r.Answer), Reason: r.Reason, Source: "the webhook"}
		}
		return Answer{Decision: w.failed, Err: "the webhook failed: " + string(r.Answer), vague: true}
	}
	return Answer{Decision: scenarios.NoOpinion}
}

// abacList is an ABAC policy file (k8s.io/kubernetes/pkg/auth/authorizer/abac).
type abacList []abacPolicy

type abacPolicy struct {
	Spec struct {
		User, Group, Namespace, Resource, APIGroup, NonResourcePath string
		Readonly                                                    bool
	}
}

func abacPolicies(file string) (list abacList, err error) {
	for lines := json.NewDecoder(strings.NewReader(file)); lines.More(); {
		var p abacPolicy
		if err := lines.Decode(&p); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

func (l abacList) authorize(spec authorizationv1.SubjectAccessReviewSpec) Answer {
	if slices.ContainsFunc(l, func(p abacPolicy) bool { return p.matches(spec) }) {
		return Answer{Decision: scenarios.Allow, Source: "the ABAC policy"}
	}
	return Answer{Decision: scenarios.NoOpinion, Reason: "No policy matched."}
}

// matches knows of verbs only whether they read: an action check reads if the request does, because IsReadOnly of
// the attributes is that of the request; an identity check never does.
func (p abacPolicy) matches(spec authorizationv1.SubjectAccessReviewSpec) bool {
	star := func(have, want string) bool { return have == "*" || have == want }
	if p.Spec.User == "" && p.Spec.Group == "" || p.Spec.User != "" && !star(p.Spec.User, spec.User) ||
		p.Spec.Group != "" && p.Spec.Group != "*" && !slices.Contains(spec.Groups, p.Spec.Group) {
		return false
	}
	var verb string
	if a := spec.ResourceAttributes; a != nil {
		verb = a.Verb
		if !star(p.Spec.Namespace, a.Namespace) || !star(p.Spec.Resource, a.Resource) || !star(p.Spec.APIGroup, a.Group) {
			return false
		}
	} else {
		verb = spec.NonResourceAttributes.Verb
		path, rest := spec.NonResourceAttributes.Path, p.Spec.NonResourcePath
		if !star(rest, path) && (!strings.HasSuffix(rest, "*") || !strings.HasPrefix(path, strings.TrimRight(rest, "*"))) {
			return false
		}
	}
	if action, ok := strings.CutPrefix(verb, "impersonate-on:"); ok {
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

// authorize asks the chain, as unionAuthzHandler.Authorize does (k8s.io/apiserver/pkg/authorization/union/union.go):
// the first to allow or deny ends it, otherwise reasons and errors add up.
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

func aggregate(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return utilerrors.NewAggregate(seq.Map(texts, errors.New)).Error()
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
	for _, r := range s.policy.dangling { // cluster-wide bindings first, then those of the namespace
		if r.Covers(spec) {
			kind, name := strings.ToLower(scenarios.Text(r.Binding, "roleRef", "kind")), scenarios.Text(r.Binding, "roleRef", "name")
			errs = append(errs, fmt.Sprintf("%s.rbac.authorization.k8s.io %q not found", kind, name))
		}
	}
	if len(errs) == 0 {
		return Answer{Decision: scenarios.NoOpinion}
	}
	return Answer{Decision: scenarios.NoOpinion, Reason: "RBAC: " + aggregate(errs)}
}

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
