package reference

import authorizationv1 "k8s.io/api/authorization/v1"

// sample is any request: expressions are checked by it.
var sample = authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{}}

// knownData is what the verb alone tells of the unknown variables: nothing is there before a create, and nothing
// is sent with a delete. Whether a create is a CREATE or a CONNECT is left open.
func knownData(s authorizationv1.SubjectAccessReviewSpec) map[string]any {
	if s.ResourceAttributes == nil {
		return nil
	}
	switch s.ResourceAttributes.Verb {
	case "create":
		return map[string]any{"oldObject": nil}
	case "delete", "deletecollection":
		return map[string]any{"object": nil, "operation": "DELETE"}
	}
	return nil
}

// exact says whether a review is about one resource of one version, which conditions need (section "Feature
// availability and version skew").
func exact(s authorizationv1.SubjectAccessReviewSpec) bool {
	r := s.ResourceAttributes
	return r != nil && r.Version != "" && r.Version != "*" && r.Group != "*" && r.Resource != "*" && r.Verb != "*"
}
