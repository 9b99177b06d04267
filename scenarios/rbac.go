package scenarios

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
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
	for _, rendered := range RenderRBAC(s) {
		for _, o := range rendered.Objects() {
			if m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o); err == nil {
				objects = append(objects, m)
			}
		}
	}
	roles := slices.DeleteFunc(slices.Clone(objects), func(m map[string]any) bool { return !strings.HasSuffix(Text(m, "kind"), "Role") })
	of := map[string][]string{}
	for _, m := range objects {
		kind, name, namespace := Text(m, "kind"), Text(m, "metadata", "name"), Text(m, "metadata", "namespace")
		if !isRBAC(m) || !strings.HasSuffix(kind, "RoleBinding") || kind == "RoleBinding" && spec.ResourceAttributes != nil && namespace != spec.ResourceAttributes.Namespace {
			continue
		}
		if kind == "RoleBinding" {
			name += "/" + namespace
		}
		refKind, refName := Text(m, "roleRef", "kind"), Text(m, "roleRef", "name")
		unknown := !slices.ContainsFunc(roles, func(o map[string]any) bool {
			return Text(o, "kind") == refKind && Text(o, "metadata", "name") == refName
		})
		subjects, _ := m["subjects"].([]any)
		for _, subject := range subjects {
			one := maps.Clone(m)
			one["subjects"] = []any{subject}
			is := slices.ContainsFunc(subjectsOf(one, namespace), func(s Subject) bool { return s.Is(spec.User, spec.Groups) })
			if !is || !unknown && !Covered(RulesFromManifests(append(slices.Clone(roles), one)), spec) {
				continue
			}
			text, _ := subject.(map[string]any)
			who := Text(text, "name")
			if Text(text, "kind") == "ServiceAccount" {
				who += "/" + cmp.Or(Text(text, "namespace"), namespace)
			}
			of[kind] = append(of[kind], fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", kind, name, refKind, refName, Text(text, "kind"), who))
			break // the first subject that is the user
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
}

// RulesFromManifests turns the roles and bindings among the manifests into neutral grants, one for each rule and
// subject. Bindings to roles that are not among them, such as cluster-admin, give none; other objects are passed over.
func RulesFromManifests(manifests []map[string]any) []Grant {
	rules, _ := BoundRules(manifests)
	return Each(rules, func(r BoundRule) Grant { return r.Grant })
}

// BoundRules are the grants of RulesFromManifests with where they come from. dangling are the bindings to roles that
// are not there.
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
		namespace := ""
		if kind == "RoleBinding" {
			namespace = Text(m, "metadata", "namespace")
		}
		refKind := Text(m, "roleRef", "kind")
		if kind == "ClusterRoleBinding" && refKind != "ClusterRole" {
			continue // refused by the API server
		}
		key := roleKey{refKind, "", Text(m, "roleRef", "name")}
		if refKind == "Role" {
			key.namespace = namespace
		}
		rules, known := roles[key]
		if !known {
			dangling = append(dangling, m)
		}
		for _, rule := range rules {
			for _, subject := range subjectsOf(m, namespace) {
				if len(rule.NonResourceURLs) > 0 && namespace != "" {
					continue // a RoleBinding gives no access to paths
				}
				r := rule
				r.Subject, r.Namespace, r.Binding = subject, namespace, m
				out = append(out, r)
			}
		}
	}
	return out, dangling
}

// RulesOf are the rules of a role as grants without subject and namespace. A rule about resources and paths gives two.
func RulesOf(m map[string]any) []Grant {
	if !isRBAC(m) {
		return nil
	}
	return Each(numberedRules(m), func(r BoundRule) Grant { return r.Grant })
}

func numberedRules(m map[string]any) (out []BoundRule) {
	rules, _ := m["rules"].([]any)
	for i, x := range rules {
		rule, _ := x.(map[string]any)
		g := Grant{Verbs: strs(rule["verbs"]), APIGroups: strs(rule["apiGroups"]), Resources: strs(rule["resources"]), Names: strs(rule["resourceNames"])}
		paths := strs(rule["nonResourceURLs"])
		if len(paths) > 0 {
			out = append(out, BoundRule{Grant: Grant{Verbs: g.Verbs, NonResourceURLs: paths}, Role: m, Rule: i + 1})
		}
		if len(g.Resources) > 0 || len(paths) == 0 {
			out = append(out, BoundRule{Grant: g, Role: m, Rule: i + 1})
		}
	}
	return out
}

// subjectsOf are the subjects of a binding. A service account without a namespace is in that of the binding.
func subjectsOf(m map[string]any, namespace string) []Subject {
	subjects, _ := m["subjects"].([]any)
	var out []Subject
	for _, x := range subjects {
		subject, _ := x.(map[string]any)
		name := Text(subject, "name")
		switch Text(subject, "kind") {
		case "User":
			out = append(out, Subject{User: name})
		case "Group":
			out = append(out, Subject{Group: name})
		case "ServiceAccount":
			if ns := cmp.Or(Text(subject, "namespace"), namespace); ns != "" {
				out = append(out, Subject{User: serviceaccount.MakeUsername(ns, name)})
			}
		}
	}
	return out
}

// strs is the list of strings that a decoded value holds.
func strs(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, x := range list {
		if s, ok := x.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
