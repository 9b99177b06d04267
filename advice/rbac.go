package advice

import (
	"bytes"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/scenarios"
)

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
		if o.Namespace == "" {
			o.ClusterRole.Name, o.ClusterRoleBinding.Name, o.ClusterRoleBinding.RoleRef.Name = name, name, name
			o.ClusterRole.Annotations, o.ClusterRoleBinding.Annotations = nil, nil
			continue
		}
		o.Role.Name, o.RoleBinding.Name, o.RoleBinding.RoleRef.Name = name, name, name
		o.Role.Annotations, o.RoleBinding.Annotations = nil, nil
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
			raw, err := manifest(object)
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

func manifest(object runtime.Object) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	if meta, ok := fields["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
	}
	return yaml.Marshal(fields)
}
