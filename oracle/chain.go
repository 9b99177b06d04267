package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/cel"
	"sigs.k8s.io/yaml"

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

// Chain puts the authorizer chain of a chain file in the place of Node and RBAC. rules are what its scripted
// webhook answers.
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
				if err := w.condition(c.Expression); err != nil {
					return err
				}
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

// condition adds a match condition. The language is the server's own: what is modelled is what follows from it.
func (w *webhook) condition(expression string) error {
	compiled, err := cel.NewDefaultCompiler().CompileCELExpression(&cel.SubjectAccessReviewMatchCondition{Expression: expression})
	w.conditions.CompilationResults = append(w.conditions.CompilationResults, compiled)
	return err
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
