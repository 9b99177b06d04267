package reference

import (
	"cmp"
	"maps"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/conditional/vectors"
)

// sample is any request: expressions are checked by it.
var sample = authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{}}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// attributes are the variable request of the KEP's examples.
func attributes(s authorizationv1.SubjectAccessReviewSpec) map[string]any {
	r, path := authorizationv1.ResourceAttributes{}, ""
	if s.ResourceAttributes != nil {
		r = *s.ResourceAttributes
	} else if s.NonResourceAttributes != nil {
		r.Verb, path = s.NonResourceAttributes.Verb, s.NonResourceAttributes.Path
	}
	return map[string]any{
		"verb": r.Verb, "apiGroup": r.Group, "apiVersion": r.Version, "resource": r.Resource, "subresource": r.Subresource,
		"namespace": r.Namespace, "name": r.Name, "path": path,
		"userInfo": userInfo(s.User, s.UID, s.Groups, s.Extra),
	}
}

// impersonated is the variable impersonatedRequest, in the words of request.
func impersonated(r *vectors.ImpersonatedRequest) map[string]any {
	out := map[string]any{
		"verb": r.Verb, "apiGroup": r.APIGroup, "apiVersion": r.APIVersion, "resource": r.Resource, "subresource": r.Subresource,
		"namespace": r.Namespace, "name": r.Name,
	}
	if u := r.UserInfo; u != nil {
		out["userInfo"] = userInfo(u.Username, u.UID, u.Groups, u.Extra)
	}
	return out
}

func userInfo[V ~[]string](name, uid string, groups []string, extra map[string]V) map[string]any {
	all := make(map[string][]string, len(extra))
	for k, v := range extra {
		all[k] = v
	}
	return map[string]any{"username": name, "uid": uid, "groups": slices.Clone(groups), "extra": all}
}

// knownData is what the verb alone tells of the unknown variables: nothing is
// there before a create, and nothing is sent with a delete. Whether a create is a
// CREATE or a CONNECT is left open.
func knownData(s authorizationv1.SubjectAccessReviewSpec) map[string]any {
	if s.ResourceAttributes == nil {
		return nil
	}
	switch s.ResourceAttributes.Verb {
	case "create":
		return map[string]any{varOldObject: nil}
	case "delete", "deletecollection":
		return map[string]any{varObject: nil, varOperation: "DELETE"}
	}
	return nil
}

// exact says whether a review is about one resource of one version, which
// conditions need (section "Feature availability and version skew").
func exact(s authorizationv1.SubjectAccessReviewSpec) bool {
	r := s.ResourceAttributes
	return r != nil && r.Version != "" && r.Version != "*" && r.Group != "*" && r.Resource != "*" && r.Verb != "*"
}
