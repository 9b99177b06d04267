package upgrade

import (
	"maps"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/scenarios"
)

// lastingName is the name of the object of each kind that every stage writes to.
const lastingName = "lasting"

// writtenKind is a kind of objects that are written on every stage.
type writtenKind struct {
	group, kind, resource string
	namespaced            bool
	// fixed cannot be changed once the object is there.
	fixed func(*writer) map[string]any
	// content is what every write changes.
	content func(w *writer, mark string) map[string]any
}

// writtenKinds are what permissions are made of. Their rules have verbs of KEP-5284, which an API server without the feature
// has to keep as they are.
var writtenKinds = []writtenKind{
	{"", "ServiceAccount", "serviceaccounts", true, nothingFixed, annotate},
	{rbacv1.GroupName, "ClusterRole", "clusterroles", false, nothingFixed, makeRules},
	{rbacv1.GroupName, "Role", "roles", true, nothingFixed, makeRules},
	{rbacv1.GroupName, "ClusterRoleBinding", "clusterrolebindings", false, referTo("ClusterRole"), makeSubjects},
	{rbacv1.GroupName, "RoleBinding", "rolebindings", true, referTo("Role"), makeSubjects},
}

func nothingFixed(*writer) map[string]any { return nil }

// referTo returns the reference of a binding to the role that lives as long as the path.
func referTo(kind string) func(*writer) map[string]any {
	return func(w *writer) map[string]any {
		name := lastingName
		if kind == "ClusterRole" {
			name = w.clusterWide(name)
		}
		return map[string]any{"roleRef": map[string]any{"apiGroup": rbacv1.GroupName, "kind": kind, "name": name}}
	}
}

func annotate(_ *writer, mark string) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{"authzconf.dev/written": mark}}}
}

func makeRules(_ *writer, mark string) map[string]any {
	rule := func(group, resource string, verbs ...any) map[string]any {
		return map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "resourceNames": []any{mark}, "verbs": verbs}
	}
	return map[string]any{"rules": []any{
		rule("", "configmaps", "get", "impersonate-on:user-info:get"),
		rule("authentication.k8s.io", "users", "impersonate:user-info"),
	}}
}

func makeSubjects(_ *writer, mark string) map[string]any {
	return map[string]any{"subjects": []any{map[string]any{"apiGroup": rbacv1.GroupName, "kind": "User", "name": mark}}}
}

// writtenObject is an object that is written on stages.
type writtenObject struct {
	kind   writtenKind
	writer *writer
	name   string
}

func (w *writer) object(kind writtenKind, name string) writtenObject {
	if !kind.namespaced {
		name = w.clusterWide(name)
	}
	return writtenObject{kind, w, name}
}

// clusterWide returns the name of an object outside of namespaces, where others may have one of that name.
func (w *writer) clusterWide(name string) string { return w.namespace() + "-" + name }

func (o writtenObject) request() scenarios.Request {
	r := scenarios.Request{APIGroup: o.kind.group, Resource: o.kind.resource}
	if o.kind.namespaced {
		r.Namespace = o.writer.namespace()
	}
	return r
}

// collection returns the path at which objects of the kind are created.
func (o writtenObject) collection() string {
	r := o.request()
	return r.URI()
}

func (o writtenObject) path() string {
	r := o.request()
	r.Name = o.name
	return r.URI()
}

// buildObject returns the whole object with a mark, as it is created and applied.
func (o writtenObject) buildObject(mark string) map[string]any {
	version := "v1"
	if o.kind.group != "" {
		version = o.kind.group + "/v1"
	}
	metadata := map[string]any{"name": o.name}
	if o.kind.namespaced {
		metadata["namespace"] = o.writer.namespace()
	}
	object := map[string]any{"apiVersion": version, "kind": o.kind.kind, "metadata": metadata}
	return mergePatch(mergePatch(object, o.kind.fixed(o.writer)), o.kind.content(o.writer, mark))
}

// mergePatch returns an object with a JSON merge patch (RFC 7396) that removes nothing.
func mergePatch(object, patch map[string]any) map[string]any {
	out := maps.Clone(object)
	for key, value := range patch {
		child, isObject := value.(map[string]any)
		before, wasObject := out[key].(map[string]any)
		if isObject && wasObject {
			value = mergePatch(before, child)
		}
		out[key] = value
	}
	return out
}

// credentialID returns the ID of the credential among somebody's extra; "" if there is none.
func credentialID(extra map[string][]string) string {
	if id := extra[user.CredentialIDKey]; len(id) == 1 {
		return id[0]
	}
	return ""
}
