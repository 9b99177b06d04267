package granular

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// embeddings returns enforcers that are wrong about what a resource embeds.
func embeddings() []faultyEnforcer {
	return []faultyEnforcer{
		{"embedded-unknown", "fields of what a resource embeds have no permissions of their own", pruned(func(path []string) bool {
			return slices.Contains([]string{"template", "spec.template", "spec.jobTemplate"}, strings.Join(path, "."))
		})},
		{"embedded-once", "what an embedded resource embeds itself is not known", pruned(func(path []string) bool {
			return strings.Join(path, ".") == "spec.jobTemplate.spec.template"
		})},
		{"embedded-not-excluded", "the ordinary permission contains what is excluded in an embedded resource", func(s *enforcer.Steps) {
			reference := s.Excluded
			s.Excluded = func(all []enforcer.ChangedField) []enforcer.ChangedField {
				return slices.DeleteFunc(reference(all), func(f enforcer.ChangedField) bool { return strings.HasPrefix(f.Path, "spec.template.") })
			}
		}},
		{"embedded-name-free", "the name in a template needs no permission, as that of an object", keep(func(f enforcer.ChangedField) bool {
			return f.Path != "spec.template.metadata.name"
		})},
		{"inner-resource", "the authorizer is asked about the embedded resource", func(s *enforcer.Steps) {
			s.Attributes = func(r *enforcer.Request, verb string) authorizer.AttributesRecord {
				a := r.Attributes(verb)
				isInner := verb == "granular:nodeAssignment" || verb == "granular:selfDestruction"
				switch {
				case isInner && slices.Contains([]string{"deployments", "cronjobs", "podtemplates"}, a.Resource):
					a.APIGroup, a.APIVersion, a.Resource = "", "v1", "pods"
				case isInner && a.Resource == "widgetsets":
					a.Resource = "widgets"
				}
				return a
			}
		}},
	}
}

// pruned has the enforcer not know some places in objects.
func pruned(isUnknown func(path []string) bool) func(*enforcer.Steps) {
	return func(s *enforcer.Steps) {
		s.Changed = func(root *permissions.Node, c enforcer.Change) ([]enforcer.ChangedField, error) {
			return enforcer.ChangedFields(prune(root, nil, isUnknown), c)
		}
	}
}

// prune returns a tree without some places and all that is in them.
func prune(n *permissions.Node, at []string, isUnknown func(path []string) bool) *permissions.Node {
	out := &permissions.Node{Field: n.Field, Children: map[string]*permissions.Node{}}
	for name, child := range n.Children {
		path := append(slices.Clone(at), name)
		if !isUnknown(path) {
			out.Children[name] = prune(child, path, isUnknown)
		}
	}
	return out
}
