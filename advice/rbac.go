package advice

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/scenarios"
)

// LegacyRule is a rule that grants somebody legacy impersonation today.
type LegacyRule struct {
	// Role and Binding are "ClusterRole name", "RoleBinding namespace/name"; Rule is
	// the number of the rule in the role, from 1.
	Role, Binding string
	Rule          int
	Subject       scenarios.Subject
	// Resources are those of impersonation among the rule's: users, groups, serviceaccounts, uids, userextras.
	Resources []string
	// Wildcard says that the rule has the verb *: it cannot go for being unneeded here.
	Wildcard bool
	// NeededFor are the kept impersonations that rest on it.
	NeededFor []Kept
	// Used says that the subject was seen to impersonate at all.
	Used bool
}

// impersonated are the reviews of legacy impersonation by example, one for each
// resource (k8s.io/apiserver/pkg/endpoints/filters/impersonation/impersonation.go).
var impersonated = []authorizationv1.ResourceAttributes{
	{Resource: "users"},
	{Resource: "groups"},
	{Resource: "serviceaccounts"},
	{Group: "authentication.k8s.io", Resource: "uids"},
	{Group: "authentication.k8s.io", Resource: "userextras"},
}

// Legacy goes through the roles and bindings of a cluster and says of every rule
// that grants legacy impersonation whether something rests on it.
func (a *Advice) Legacy(objects []map[string]any) (out []LegacyRule) {
	for _, binding := range objects {
		subjects, _ := binding["subjects"].([]any)
		for _, role := range objects {
			if role["rules"] == nil || binding["roleRef"] == nil {
				continue
			}
			rules, _ := role["rules"].([]any)
			for i, rule := range rules {
				for _, subject := range subjects {
					one, bound := maps.Clone(role), maps.Clone(binding)
					one["rules"], bound["subjects"] = []any{rule}, []any{subject}
					if found, ok := a.legacyRule(scenarios.RulesFromManifests([]map[string]any{one, bound})); ok {
						found.Role, found.Binding, found.Rule = label(role), label(binding), i+1
						out = append(out, found)
					}
				}
			}
		}
	}
	return out
}

// legacyRule judges the grants of one rule to one subject.
func (a *Advice) legacyRule(grants []scenarios.Grant) (l LegacyRule, legacy bool) {
	for _, g := range grants {
		l.Subject = g.Subject
		l.Wildcard = l.Wildcard || slices.Contains(g.Verbs, "*")
		for _, attributes := range impersonated {
			attributes.Verb, attributes.Namespace = "impersonate", g.Namespace
			if len(g.Names) > 0 {
				attributes.Name = g.Names[0]
			}
			if coversKind(g, attributes) {
				l.Resources = append(l.Resources, attributes.Resource)
			}
		}
	}
	if len(l.Resources) == 0 {
		return l, false
	}
	for _, k := range a.Kept {
		if slices.ContainsFunc(k.legacyChecks(), func(spec authorizationv1.SubjectAccessReviewSpec) bool { return scenarios.Covered(grants, spec) }) {
			l.NeededFor = append(l.NeededFor, k)
			l.Used = true
		}
	}
	for _, r := range a.Requestors {
		l.Used = l.Used || l.Subject.User == r.Name
	}
	return l, true
}

// coversKind tells whether a grant is for a resource of impersonation; that of
// extra stands with its key behind a slash.
func coversKind(g scenarios.Grant, attributes authorizationv1.ResourceAttributes) bool {
	try := []string{""}
	if attributes.Resource == "userextras" {
		for _, r := range g.Resources {
			if _, key, ok := strings.Cut(r, "/"); ok {
				try = append(try, key)
			}
		}
	}
	return slices.ContainsFunc(try, func(sub string) bool {
		attributes.Subresource = sub
		spec := authorizationv1.SubjectAccessReviewSpec{User: g.Subject.User, ResourceAttributes: &attributes}
		if g.Subject.Group != "" {
			spec.Groups = []string{g.Subject.Group}
		}
		return g.Covers(spec)
	})
}

// label is a role or binding for people.
func label(object map[string]any) string {
	u := unstructured.Unstructured{Object: object}
	return u.GetKind() + " " + strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/")
}

// RBAC are the grants as roles with their bindings: of each requestor one for the
// cluster and one for each namespace.
func RBAC(grants []scenarios.Grant) []scenarios.RBACObject {
	objects := scenarios.RenderRBAC(&scenarios.Scenario{Grants: grants})
	taken := map[string]int{}
	for i := range objects {
		o := &objects[i]
		name := objectName(o.Subject.User)
		if taken[o.Namespace+"/"+name]++; taken[o.Namespace+"/"+name] > 1 {
			name += fmt.Sprintf("-%d", taken[o.Namespace+"/"+name])
		}
		o.Name = name
	}
	return objects
}

// objectName is a name that a path can hold (k8s.io/apimachinery/pkg/api/validation/path, IsValidPathSegmentName).
func objectName(user string) string {
	return "impersonation:" + strings.NewReplacer("/", "-", "%", "-", "\n", "-").Replace(strings.TrimPrefix(user, accountHead))
}

// Manifests are the objects as YAML documents that kubectl takes.
func Manifests(objects []scenarios.RBACObject) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		for _, object := range o.Objects() {
			raw, err := yaml.Marshal(object)
			if err != nil {
				return nil, err
			}
			if out.Len() > 0 {
				out.WriteString("---\n")
			}
			out.Write(raw)
		}
	}
	return out.Bytes(), nil
}
