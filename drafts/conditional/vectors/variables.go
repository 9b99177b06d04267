package vectors

import (
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// RequestVariable is the name of the variable that is known in the first phase.
const RequestVariable = "request"

// LateVariables returns the names of the variables of the second phase.
func LateVariables() []string {
	return []string{"operation", "options", "object", "oldObject", "namespaceObject", "impersonatedRequest"}
}

// RequestFields returns the value of RequestVariable: every field that the comment of Policy lists.
func RequestFields(s authorizationv1.SubjectAccessReviewSpec) map[string]any {
	r, path := authorizationv1.ResourceAttributes{}, ""
	if s.ResourceAttributes != nil {
		r = *s.ResourceAttributes
	} else if s.NonResourceAttributes != nil {
		r.Verb, path = s.NonResourceAttributes.Verb, s.NonResourceAttributes.Path
	}
	out := fields(ImpersonatedRequest{r.Verb, r.Group, r.Version, r.Resource, r.Subresource, r.Namespace, r.Name, nil})
	out["path"], out["userInfo"] = path, userFields(s.User, s.UID, s.Groups, s.Extra)
	return out
}

// Variables returns the values of LateVariables. What is absent is null.
func (d ConditionData) Variables() map[string]any {
	out := map[string]any{"operation": d.Operation, "impersonatedRequest": nil}
	for name, o := range map[string]Object{"object": d.Object, "oldObject": d.OldObject, "options": d.Options, "namespaceObject": d.NamespaceObject} {
		out[name] = nil
		if o != nil {
			out[name] = map[string]any(o)
		}
	}
	if r := d.ImpersonatedRequest; r != nil {
		impersonated := fields(*r)
		if u := r.UserInfo; u != nil {
			impersonated["userInfo"] = userFields(u.Username, u.UID, u.Groups, u.Extra)
		}
		out["impersonatedRequest"] = impersonated
	}
	return out
}

func fields(r ImpersonatedRequest) map[string]any {
	return map[string]any{
		"verb": r.Verb, "apiGroup": r.APIGroup, "apiVersion": r.APIVersion, "resource": r.Resource, "subresource": r.Subresource,
		"namespace": r.Namespace, "name": r.Name,
	}
}

func userFields[V ~[]string](name, uid string, groups []string, extra map[string]V) map[string]any {
	all := make(map[string]any, len(extra))
	for k, v := range extra {
		all[k] = []string(v)
	}
	return map[string]any{"username": name, "uid": uid, "groups": slices.Clone(groups), "extra": all}
}
