package granular

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// undescribable returns the described fields that the schemas of one group and version do not have, each as "resource
// path". document is an OpenAPI v3 document. resources are the names of resources by kind.
func undescribable(document []byte, gv schema.GroupVersion, set *permissions.Set, resources map[string]string) (out []string, err error) {
	var decoded spec3.OpenAPI
	if err := json.Unmarshal(document, &decoded); err != nil {
		return nil, err
	}
	kinds, err := enforcer.Types(&decoded, gv)
	if err != nil {
		return nil, err
	}
	for kind, resource := range resources {
		t := kinds[kind]
		for _, f := range set.Fields(gv.Group, gv.Version, resource) {
			if t.Schema == nil || !has(t, f) {
				out = append(out, resource+" "+f.Path)
			}
		}
	}
	return out, nil
}

// has reports whether a type has a field, with lists whose items have the keys that are described.
func has(t typed.ParseableType, f *permissions.Field) bool {
	ref := t.TypeRef
	for _, segment := range f.Segments() {
		atom, ok := t.Schema.Resolve(ref)
		switch {
		case !ok:
			return false
		case segment == "*" && atom.List != nil:
			if atom.List.ElementRelationship != smdschema.Associative {
				return false
			}
			ref = atom.List.ElementType
		case segment == "*" && atom.Map != nil:
			ref = atom.Map.ElementType
		case atom.Map == nil:
			return false
		default:
			field, ok := atom.Map.FindField(segment)
			if !ok {
				return false
			}
			ref = field.Type
		}
	}
	return true
}
