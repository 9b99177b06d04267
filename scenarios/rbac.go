package scenarios

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/authzconf/authzconf/internal/seq"
)

// Covers tells whether the grant allows what a SubjectAccessReview asks. The rules are those of RBAC in kube-apiserver
// (RuleAllows and its helpers), because grants are given as RBAC there and must mean the same elsewhere.
func (g Grant) Covers(spec authorizationv1.SubjectAccessReviewSpec) bool {
	if !g.Subject.Is(spec.User, spec.Groups) {
		return false
	}
	if spec.NonResourceAttributes != nil {
		a := spec.NonResourceAttributes
		return g.Namespace == "" && matches(g.Verbs, a.Verb) && matchesPath(g.NonResourceURLs, a.Path)
	}
	a := spec.ResourceAttributes
	if a == nil || g.Namespace != "" && g.Namespace != a.Namespace {
		return false
	}
	// A grant with names never matches a request without one, such as a list: the empty name is not among them.
	return matches(g.Verbs, a.Verb) && matches(g.APIGroups, a.Group) &&
		matchesResource(g.Resources, a.Resource, a.Subresource) &&
		(len(g.Names) == 0 || slices.Contains(g.Names, a.Name))
}

// FullResource is a resource with its subresource, as rules have it.
func FullResource(resource, subresource string) string {
	if subresource == "" {
		return resource
	}
	return resource + "/" + subresource
}

// Is tells whether a user with these groups is the subject.
func (s Subject) Is(user string, groups []string) bool {
	if s.User != "" {
		return s.User == user
	}
	return s.Group != "" && slices.Contains(groups, s.Group)
}

// matches is VerbMatches and APIGroupMatches: "*" or the very string.
func matches(list []string, s string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, s)
}

// matchesResource is ResourceMatches.
func matchesResource(list []string, resource, subresource string) bool {
	full := FullResource(resource, subresource)
	return slices.ContainsFunc(list, func(r string) bool {
		return r == "*" || r == full || subresource != "" && r == "*/"+subresource
	})
}

// matchesPath is NonResourceURLMatches.
func matchesPath(list []string, path string) bool {
	return slices.ContainsFunc(list, func(u string) bool {
		return u == "*" || u == path || strings.HasSuffix(u, "*") && strings.HasPrefix(path, strings.TrimRight(u, "*"))
	})
}

// Covered tells whether one of the grants allows what a review asks.
func Covered(grants []Grant, spec authorizationv1.SubjectAccessReviewSpec) bool {
	return slices.ContainsFunc(grants, func(g Grant) bool { return g.Covers(spec) })
}

// AllowedBy are the reasons that RBAC can give for allowing what a review asks, by one of the scenario's bindings:
// those of the whole cluster come first, and where there are any no other is reached (VisitRulesFor and the describers in
// k8s.io/kubernetes/pkg/registry/rbac/validation/rule.go). Of a role that the scenario does not have, such as view, it
// is not known what it allows.
func (s *Scenario) AllowedBy(spec authorizationv1.SubjectAccessReviewSpec) (reasons []string) {
	objects := slices.Concat(s.Manifests, s.Objects)
	for _, o := range slices.Concat(seq.Map(RenderRBAC(s), RBACObject.Objects)...) {
		if m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o); err == nil {
			objects = append(objects, m)
		}
	}
	rules, dangling := BoundRules(objects)
	of, named := map[string][]string{}, map[string]bool{}
	for _, r := range append(rules, Unknown(dangling)...) {
		kind, name := Text(r.Binding, "kind"), Text(r.Binding, "metadata", "name")
		if kind == "RoleBinding" {
			name += "/" + r.Namespace
		}
		if key := kind + " " + name; r.Covers(spec) && !named[key] { // the first subject that is the user
			named[key] = true
			who := r.Bound.Name
			if r.Bound.Kind == rbacv1.ServiceAccountKind {
				who += "/" + cmp.Or(r.Bound.Namespace, r.Namespace)
			}
			of[kind] = append(of[kind], fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", kind, name, Text(r.Binding, "roleRef", "kind"), Text(r.Binding, "roleRef", "name"), r.Bound.Kind, who))
		}
	}
	if cluster := of["ClusterRoleBinding"]; len(cluster) > 0 {
		return cluster
	}
	return of["RoleBinding"]
}

// BoundRule is a rule of a role as a binding gives it to one subject.
type BoundRule struct {
	Grant
	// Role and Binding are where it comes from, Rule the number of the rule in the role, from 1.
	Role, Binding map[string]any
	Rule          int
	Bound         rbacv1.Subject // the subject as the binding names it
}

// RulesFromManifests turns the roles and bindings among the manifests into neutral grants, one for each rule and
// subject. Bindings to roles that are not among them, such as cluster-admin, give none; other objects are passed over.
func RulesFromManifests(manifests []map[string]any) []Grant {
	rules, _ := BoundRules(manifests)
	return seq.Map(rules, func(r BoundRule) Grant { return r.Grant })
}

// BoundRules are the grants of RulesFromManifests with their source. dangling are bindings to roles that are not there.
func BoundRules(manifests []map[string]any) (out []BoundRule, dangling []map[string]any) {
	type roleKey struct{ kind, namespace, name string }
	roles := map[roleKey][]BoundRule{}
	for _, m := range manifests {
		if k := Text(m, "kind"); isRBAC(m) && (k == "Role" || k == "ClusterRole") {
			role := roleKey{k, Text(m, "metadata", "namespace"), Text(m, "metadata", "name")}
			if k == "ClusterRole" { // whatever a manifest says: it is not namespaced
				role.namespace = ""
			}
			roles[role] = numberedRules(m)
		}
	}
	for _, m := range manifests {
		kind := Text(m, "kind")
		if !isRBAC(m) || kind != "RoleBinding" && kind != "ClusterRoleBinding" {
			continue
		}
		refKind := Text(m, "roleRef", "kind")
		if kind == "ClusterRoleBinding" && refKind != "ClusterRole" {
			continue // refused by the API server
		}
		key := roleKey{refKind, "", Text(m, "roleRef", "name")}
		if refKind == "Role" {
			key.namespace = Text(m, "metadata", "namespace")
		}
		rules, known := roles[key]
		if !known {
			dangling = append(dangling, m)
		}
		out = append(out, boundTo(m, rules)...)
	}
	return out, dangling
}

// Unknown are rules that give their subjects everything, in place of those of roles that are not there.
func Unknown(dangling []map[string]any) (out []BoundRule) {
	all := []string{"*"}
	for _, m := range dangling {
		out = append(out, boundTo(m, []BoundRule{{Grant: Grant{Verbs: all, APIGroups: all, Resources: all, NonResourceURLs: all}}})...)
	}
	return out
}

// boundTo are rules as a binding gives them to its subjects. A RoleBinding gives no access to paths.
func boundTo(m map[string]any, rules []BoundRule) (out []BoundRule) {
	namespace := ""
	if Text(m, "kind") == "RoleBinding" {
		namespace = Text(m, "metadata", "namespace")
	}
	for _, r := range rules {
		for _, bound := range subjectsOf(m) {
			if r.Subject = subjectOf(bound, namespace); r.Subject == (Subject{}) || namespace != "" && len(r.NonResourceURLs) > 0 && len(r.Resources) == 0 {
				continue
			}
			r.Namespace, r.Binding, r.Bound = namespace, m, bound
			out = append(out, r)
		}
	}
	return out
}

// RulesOf are the rules of a role as grants without subject and namespace. A rule about resources and paths gives two.
func RulesOf(m map[string]any) []Grant {
	if !isRBAC(m) {
		return nil
	}
	return seq.Map(numberedRules(m), func(r BoundRule) Grant { return r.Grant })
}

func numberedRules(m map[string]any) (out []BoundRule) {
	var role rbacv1.ClusterRole
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"rules": m["rules"]}, &role) // what cannot be read gives nothing
	for i, r := range role.Rules {
		if len(r.NonResourceURLs) > 0 {
			out = append(out, BoundRule{Grant: Grant{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs}, Role: m, Rule: i + 1})
		}
		if len(r.Resources) > 0 || len(r.NonResourceURLs) == 0 {
			out = append(out, BoundRule{Grant: Grant{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, Names: r.ResourceNames}, Role: m, Rule: i + 1})
		}
	}
	return out
}

func subjectsOf(m map[string]any) []rbacv1.Subject {
	var binding rbacv1.ClusterRoleBinding
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"subjects": m["subjects"]}, &binding) // what cannot be read gives nothing
	return binding.Subjects
}

// subjectOf is the subject of a binding, if of a known kind. A service account's namespace is the binding's by default.
func subjectOf(bound rbacv1.Subject, namespace string) Subject {
	switch ns := cmp.Or(bound.Namespace, namespace); {
	case bound.Kind == rbacv1.UserKind:
		return Subject{User: bound.Name}
	case bound.Kind == rbacv1.GroupKind:
		return Subject{Group: bound.Name}
	case bound.Kind == rbacv1.ServiceAccountKind && ns != "":
		return Subject{User: serviceaccount.MakeUsername(ns, bound.Name)}
	}
	return Subject{}
}
