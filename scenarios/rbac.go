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

// Covers reports whether the grant allows what a SubjectAccessReview asks for. The rules are those of RBAC in
// kube-apiserver (RuleAllows and its helpers), because grants are rendered as RBAC there and must mean the same
// elsewhere.
func (g Grant) Covers(spec authorizationv1.SubjectAccessReviewSpec) bool {
	if !g.Subject.Is(spec.User, spec.Groups) {
		return false
	}
	if a := spec.NonResourceAttributes; a != nil {
		return g.Namespace == "" && matches(g.Verbs, a.Verb) && matchesPath(g.NonResourceURLs, a.Path)
	}
	a := spec.ResourceAttributes
	if a == nil {
		return false
	}
	isInNamespace := g.Namespace == "" || g.Namespace == a.Namespace
	// A grant with names never matches a request without a name, such as a list, because the empty name is not among
	// them.
	isNamed := len(g.Names) == 0 || slices.Contains(g.Names, a.Name)
	return isInNamespace && isNamed && matches(g.Verbs, a.Verb) && matches(g.APIGroups, a.Group) &&
		matchesResource(g.Resources, a.Resource, a.Subresource)
}

// FullResource returns a resource with its subresource in the form of RBAC rules.
func FullResource(resource, subresource string) string {
	if subresource == "" {
		return resource
	}
	return resource + "/" + subresource
}

// Is reports whether a user with these groups is the subject.
func (s Subject) Is(user string, groups []string) bool {
	if s.User != "" {
		return s.User == user
	}
	return s.Group != "" && slices.Contains(groups, s.Group)
}

// matches reports whether a list has "*" or exactly the string, as VerbMatches and APIGroupMatches do.
func matches(list []string, s string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, s)
}

// matchesResource reports whether a list has "*", the resource, or "*" with the subresource, as ResourceMatches does.
func matchesResource(list []string, resource, subresource string) bool {
	full := FullResource(resource, subresource)
	return slices.ContainsFunc(list, func(r string) bool {
		isAnyWithSubresource := subresource != "" && r == "*/"+subresource
		return isAnyWithSubresource || r == "*" || r == full
	})
}

// matchesPath reports whether a list has the path, or a beginning of the path followed by "*", as NonResourceURLMatches
// does.
func matchesPath(list []string, path string) bool {
	return slices.ContainsFunc(list, func(u string) bool {
		isBeginning := strings.HasSuffix(u, "*") && strings.HasPrefix(path, strings.TrimRight(u, "*"))
		return isBeginning || u == path // every path begins with what precedes "*"
	})
}

// Covered reports whether at least one of the grants allows what a review asks for.
func Covered(grants []Grant, spec authorizationv1.SubjectAccessReviewSpec) bool {
	return slices.ContainsFunc(grants, func(g Grant) bool { return g.Covers(spec) })
}

// AllowedBy returns the reasons that RBAC can give if one of the scenario's bindings allows what a review asks for.
// Bindings of the whole cluster come first, and if one of them allows, no other binding is reached (VisitRulesFor and
// the describers in k8s.io/kubernetes/pkg/registry/rbac/validation/rule.go). A role that the scenario does not define,
// such as view, may allow anything, because its rules are not known here.
func (s *Scenario) AllowedBy(spec authorizationv1.SubjectAccessReviewSpec) []string {
	objects := slices.Concat(s.Manifests, s.Objects)
	for _, o := range slices.Concat(seq.Map(RenderRBAC(s), RBACObject.Objects)...) {
		if m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o); err == nil {
			objects = append(objects, m)
		}
	}
	rules, dangling := BoundRules(objects)
	reasons := map[string][]string{} // by the kind of the binding
	isNamed := map[string]bool{}     // the bindings whose reason is known: it names the first subject that matches the user
	for _, r := range append(rules, Unknown(dangling)...) {
		kind, binding := Text(r.Binding, "kind"), r.bindingName()
		if key := kind + " " + binding; r.Covers(spec) && !isNamed[key] {
			isNamed[key] = true
			reasons[kind] = append(reasons[kind], fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q",
				kind, binding, Text(r.Binding, "roleRef", "kind"), Text(r.Binding, "roleRef", "name"), r.Bound.Kind, r.subjectName()))
		}
	}
	if cluster := reasons["ClusterRoleBinding"]; len(cluster) > 0 {
		return cluster
	}
	return reasons["RoleBinding"]
}

// bindingName returns the name of the rule's binding as it occurs in RBAC's reasons.
func (r BoundRule) bindingName() string {
	name := Text(r.Binding, "metadata", "name")
	if Text(r.Binding, "kind") == "RoleBinding" {
		return name + "/" + r.Namespace
	}
	return name
}

// subjectName returns the name of the rule's subject as it occurs in RBAC's reasons.
func (r BoundRule) subjectName() string {
	if r.Bound.Kind == rbacv1.ServiceAccountKind {
		return r.Bound.Name + "/" + cmp.Or(r.Bound.Namespace, r.Namespace)
	}
	return r.Bound.Name
}

// BoundRule is a rule of a role that a binding gives to one subject.
type BoundRule struct {
	Grant
	// Role and Binding are the rule's origin. Rule is the number of the rule in the role, beginning with 1.
	Role, Binding map[string]any
	Rule          int
	Bound         rbacv1.Subject // the subject as the binding names it
}

// RulesFromManifests turns the roles and bindings among the manifests into neutral grants, one for each rule and
// subject. Bindings to roles that are not among them, such as cluster-admin, give no grants. Other objects are ignored.
func RulesFromManifests(manifests []map[string]any) []Grant {
	rules, _ := BoundRules(manifests)
	return seq.Map(rules, func(r BoundRule) Grant { return r.Grant })
}

// BoundRules returns the same grants as RulesFromManifests with their origin. dangling are the bindings to roles that
// are not among the manifests.
func BoundRules(manifests []map[string]any) (out []BoundRule, dangling []map[string]any) {
	roles := map[roleKey][]BoundRule{}
	for _, m := range manifests {
		if isRole(m) {
			roles[keyOfRole(m)] = numberRules(m)
		}
	}
	for _, m := range manifests {
		if !isBinding(m) || isRefusedBinding(m) {
			continue
		}
		rules, known := roles[keyOfRef(m)]
		if !known {
			dangling = append(dangling, m)
		}
		out = append(out, bindRules(m, rules)...)
	}
	return out, dangling
}

// roleKey identifies a role to which a binding refers. namespace is empty for a ClusterRole.
type roleKey struct{ kind, namespace, name string }

func isRole(m map[string]any) bool {
	return isRBAC(m) && slices.Contains([]string{"Role", "ClusterRole"}, Text(m, "kind"))
}

func isBinding(m map[string]any) bool {
	return isRBAC(m) && slices.Contains([]string{"RoleBinding", "ClusterRoleBinding"}, Text(m, "kind"))
}

// isRefusedBinding reports whether an API server refuses a binding, because a Role cannot be bound for all namespaces.
func isRefusedBinding(m map[string]any) bool {
	return Text(m, "kind") == "ClusterRoleBinding" && Text(m, "roleRef", "kind") != "ClusterRole"
}

// keyOfRole returns the key by which bindings refer to a role. A ClusterRole has no namespace, whatever a manifest
// says.
func keyOfRole(m map[string]any) roleKey {
	key := roleKey{Text(m, "kind"), Text(m, "metadata", "namespace"), Text(m, "metadata", "name")}
	if key.kind == "ClusterRole" {
		key.namespace = ""
	}
	return key
}

// keyOfRef returns the key of the role to which a binding refers.
func keyOfRef(m map[string]any) roleKey {
	key := roleKey{Text(m, "roleRef", "kind"), "", Text(m, "roleRef", "name")}
	if key.kind == "Role" {
		key.namespace = Text(m, "metadata", "namespace")
	}
	return key
}

// Unknown returns rules that give their subjects everything. They replace those of roles that are not among the
// manifests.
func Unknown(dangling []map[string]any) (out []BoundRule) {
	all := []string{"*"}
	for _, m := range dangling {
		out = append(out, bindRules(m, []BoundRule{{Grant: Grant{Verbs: all, APIGroups: all, Resources: all, NonResourceURLs: all}}})...)
	}
	return out
}

// bindRules returns the rules that a binding gives to its subjects. A RoleBinding gives no access to paths.
func bindRules(m map[string]any, rules []BoundRule) (out []BoundRule) {
	namespace := ""
	if Text(m, "kind") == "RoleBinding" {
		namespace = Text(m, "metadata", "namespace")
	}
	for _, r := range rules {
		isForPaths := len(r.NonResourceURLs) > 0 && len(r.Resources) == 0
		if isForPaths && namespace != "" {
			continue
		}
		for _, bound := range subjectsOf(m) {
			subject := subjectOf(bound, namespace)
			if subject == (Subject{}) {
				continue
			}
			r.Subject, r.Namespace, r.Binding, r.Bound = subject, namespace, m, bound
			out = append(out, r)
		}
	}
	return out
}

// RulesOf returns the rules of a role as grants without subject and namespace. A rule about resources and paths becomes
// two grants.
func RulesOf(m map[string]any) []Grant {
	if !isRBAC(m) {
		return nil
	}
	return seq.Map(numberRules(m), func(r BoundRule) Grant { return r.Grant })
}

// numberRules returns the rules of a role with their numbers.
func numberRules(m map[string]any) (out []BoundRule) {
	var role rbacv1.ClusterRole
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"rules": m["rules"]}, &role) // what cannot be read grants nothing
	for i, r := range role.Rules {
		if len(r.NonResourceURLs) > 0 {
			out = append(out, BoundRule{Grant: Grant{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs}, Role: m, Rule: i + 1})
		}
		if len(r.Resources) > 0 || len(r.NonResourceURLs) == 0 {
			out = append(out,
				BoundRule{
					Grant: Grant{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, Names: r.ResourceNames},
					Role:  m,
					Rule:  i + 1,
				},
			)
		}
	}
	return out
}

// subjectsOf returns the subjects of a binding.
func subjectsOf(m map[string]any) []rbacv1.Subject {
	var binding rbacv1.ClusterRoleBinding
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"subjects": m["subjects"]}, &binding) // what cannot be read grants nothing
	return binding.Subjects
}

// subjectOf returns the subject of a binding, or an empty one if its kind is unknown. The default namespace of a
// service account is that of the binding.
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
