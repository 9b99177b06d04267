package agent

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// rename puts name in place of every name that an object of the manifest has or
// refers to.
func rename(object Object, name string) {
	object.SetName(name)
	if object.GetNamespace() != "" {
		object.SetNamespace(name)
	}
	switch o := object.(type) {
	case *rbacv1.ClusterRoleBinding:
		o.RoleRef.Name = name
		for i := range o.Subjects {
			o.Subjects[i].Name, o.Subjects[i].Namespace = name, name
		}
	case *appsv1.DaemonSet:
		o.Spec.Template.Spec.ServiceAccountName = name
	}
}

// Others tells the agents of a DaemonSet the names of all nodes, so that each tries
// to be the others too.
func Others(set *appsv1.DaemonSet, nodes []string) {
	container := &set.Spec.Template.Spec.Containers[0]
	container.Env = append(container.Env, corev1.EnvVar{Name: "OTHER_NODE_NAMES", Value: strings.Join(nodes, ",")})
}
