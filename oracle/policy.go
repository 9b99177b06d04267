package oracle

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	_ "embed"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// policy is what the objects of a cluster say about permissions.
type policy struct {
	objects  []map[string]any
	grants   []scenarios.Grant
	defaults []scenarios.Grant
	dangling []scenarios.BoundRule // by bindings whose roles are not there
	pods     []pod
}

// pod is what the Node authorizer knows of a pod.
type pod struct {
	namespace, name, node, account string
	reads                          []string // secrets/NAME and configmaps/NAME
}

// podReads lists the secrets and ConfigMaps that a pod has volumes of.
func podReads(o map[string]any) (out []string) {
	var p corev1.Pod
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o, &p) != nil {
		return nil
	}
	for _, v := range p.Spec.Volumes {
		if v.Secret != nil {
			out = append(out, "secrets/"+v.Secret.SecretName)
		}
		if v.ConfigMap != nil {
			out = append(out, "configmaps/"+v.ConfigMap.Name)
		}
	}
	return out
}

// defaultsYAML are the roles and bindings that every cluster has and that can decide about a user who has been granted
// nothing, from the bootstrap policy of k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy (1.37).
//
//go:embed defaults.yaml
var defaultsYAML []byte

// builtIn are the objects of defaultsYAML. The user-facing roles are aggregated: their rules are put together here.
var builtIn = sync.OnceValue(func() []map[string]any {
	objects := fixtures.Table[[]map[string]any]("defaults.yaml", defaultsYAML)
	rules := map[string][]any{}
	for _, o := range objects {
		if r, ok := o["rules"].([]any); ok {
			rules[scenarios.Text(o, "metadata", "name")] = r
		}
	}
	view := rules["system:aggregate-to-view"]
	edit := slices.Concat(rules["system:aggregate-to-edit"], view)
	for name, r := range map[string][]any{
		"view": view, "edit": edit, "admin": slices.Concat(rules["system:aggregate-to-admin"], edit),
	} {
		objects = append(objects, map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
			"metadata": map[string]any{"name": name}, "rules": r,
		})
	}
	return objects
})

var builtInGrants = sync.OnceValue(func() []scenarios.Grant { return scenarios.RulesFromManifests(builtIn()) })

// newPolicy reads the objects of a cluster, default roles and bindings added.
func newPolicy(objects []map[string]any) policy {
	p := policy{objects: objects, defaults: builtInGrants()}
	if len(objects) == 0 {
		return p
	}
	rules, dangling := scenarios.BoundRules(WithBuiltInRoles(objects))
	p.grants, p.dangling = scenarios.Each(rules, func(r scenarios.BoundRule) scenarios.Grant { return r.Grant }), scenarios.Unknown(dangling)
	for _, o := range objects {
		if scenarios.Text(o, "kind") == "Pod" {
			p.pods = append(p.pods, pod{
				scenarios.Text(o, "metadata", "namespace"), scenarios.Text(o, "metadata", "name"),
				scenarios.Text(o, "spec", "nodeName"), scenarios.Text(o, "spec", "serviceAccountName"), podReads(o),
			})
		}
	}
	return p
}

// WithBuiltInRoles are the objects with the roles in front that every cluster has, as far as the model knows them; one
// of the same name takes the place of such a role.
func WithBuiltInRoles(objects []map[string]any) []map[string]any {
	return slices.Concat(slices.DeleteFunc(slices.Clone(builtIn()), func(o map[string]any) bool {
		return scenarios.Text(o, "kind") != "ClusterRole"
	}), objects)
}

func (p policy) role(kind, namespace, name string) map[string]any {
	for _, list := range [][]map[string]any{p.objects, builtIn()} {
		for _, o := range list {
			if scenarios.Text(o, "kind") == kind && scenarios.Text(o, "metadata", "name") == name &&
				(kind == "ClusterRole" || scenarios.Text(o, "metadata", "namespace") == namespace) {
				return o
			}
		}
	}
	return nil
}

// find is the index of an object among those that are known, -1 if there is none.
func (p policy) find(group, resource, namespace, name string) int {
	return slices.IndexFunc(p.objects, func(o map[string]any) bool {
		is, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(scenarios.Text(o, "apiVersion"), scenarios.Text(o, "kind")))
		return is.Group == group && is.Resource == resource && scenarios.Text(o, "metadata", "namespace") == namespace && nameOf(o) == name
	})
}

// withNamespace is an object that is created in a namespace.
func withNamespace(o map[string]any, namespace string) map[string]any {
	if namespace == "" {
		return o
	}
	out := unstructured.Unstructured{Object: runtime.DeepCopyJSON(o)}
	out.SetNamespace(namespace)
	return out.Object
}
