package oracle

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
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

type pod struct {
	namespace, name, node, account string
	reads                          []string // secrets/NAME and configmaps/NAME
}

// podReads returns the secrets and ConfigMaps that a pod has volumes of.
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
	p.grants, p.dangling = seq.Map(rules, func(r scenarios.BoundRule) scenarios.Grant { return r.Grant }), scenarios.Unknown(dangling)
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

// WithBuiltInRoles returns the objects with the roles in front that every cluster has, as far as the model knows them; one
// of the same name takes the place of such a role.
func WithBuiltInRoles(objects []map[string]any) []map[string]any {
	return slices.Concat(slices.DeleteFunc(slices.Clone(builtIn()), func(o map[string]any) bool {
		return scenarios.Text(o, "kind") != "ClusterRole"
	}), objects)
}

// role returns a role by its name, nil if there is none.
func (p policy) role(kind, namespace, name string) map[string]any {
	for _, o := range slices.Concat(p.objects, builtIn()) {
		isInNamespace := kind == "ClusterRole" || scenarios.Text(o, "metadata", "namespace") == namespace
		if isInNamespace && scenarios.Text(o, "kind") == kind && nameOf(o) == name {
			return o
		}
	}
	return nil
}

// find returns the index of an object, -1 if it is not there.
func (p policy) find(group, resource, namespace, name string) int {
	return slices.IndexFunc(p.objects, func(o map[string]any) bool {
		is, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(scenarios.Text(o, "apiVersion"), scenarios.Text(o, "kind")))
		isOfKind := is.Group == group && is.Resource == resource
		return isOfKind && scenarios.Text(o, "metadata", "namespace") == namespace && nameOf(o) == name
	})
}

// withNamespace returns an object that is created in a namespace.
func withNamespace(o map[string]any, namespace string) map[string]any {
	if namespace == "" {
		return o
	}
	out := unstructured.Unstructured{Object: runtime.DeepCopyJSON(o)}
	out.SetNamespace(namespace)
	return out.Object
}

// nodeGrants is what the Node authorizer allows every node alike: NodeRules of
// k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go, without the resources that
// NodeAuthorizer.Authorize decides itself.
var nodeGrants = sync.OnceValue(func() []scenarios.Grant { return fixtures.Table[[]scenarios.Grant]("nodes.yaml", nodesYAML) })

//go:embed nodes.yaml
var nodesYAML []byte

// nodeAuthorizer decides as NodeAuthorizer.Authorize does (k8s.io/kubernetes/plugin/pkg/auth/authorizer/node/node_authorizer.go).
func (s *Server) nodeAuthorizer(spec authorizationv1.SubjectAccessReviewSpec) AuthorizerDecision {
	node, isNode := strings.CutPrefix(spec.User, nodeUserPrefix)
	if !isNode || !slices.Contains(spec.Groups, nodesGroup) {
		return AuthorizerDecision{Decision: scenarios.NoOpinion}
	}
	if node == "" {
		return no(fmt.Sprintf("unknown node for user %q", spec.User))
	}
	if a := spec.ResourceAttributes; a != nil {
		if answer, subdivided := s.authorizeNodeResource(node, a); subdivided {
			return answer
		}
	}
	if scenarios.Covered(nodeGrants(), spec) {
		return yesNode
	}
	return no("")
}

var yesNode = AuthorizerDecision{Decision: scenarios.Allow, Source: "the Node authorizer: nodes may do this for their own work"}

func no(reason string) AuthorizerDecision {
	return AuthorizerDecision{Decision: scenarios.NoOpinion, Reason: reason}
}

// authorizeNodeResource decides about the resources that are not the same for every node; ok is false for the others.
func (s *Server) authorizeNodeResource(node string, a *authorizationv1.ResourceAttributes) (answer AuthorizerDecision, ok bool) {
	switch a.Group + "/" + a.Resource {
	case "/nodes":
		return authorizeNodeObject(node, a), true
	case "/pods":
		return s.authorizeNodePod(node, a), true
	case "/serviceaccounts":
		return s.authorizeNodeAccount(node, a), true
	case "/secrets", "/configmaps":
		return s.authorizeNodeRead(node, a), true
	case "/persistentvolumeclaims":
		if a.Subresource == "status" {
			if a.Verb != "update" && a.Verb != "patch" {
				return no("can only get/update/patch this type"), true
			}
			return denyUnrelated(node, a), true
		}
		return authorizeNodeGet(node, a), true
	case "/persistentvolumes", "resource.k8s.io/resourceclaims", "storage.k8s.io/volumeattachments":
		return authorizeNodeGet(node, a), true
	case "coordination.k8s.io/leases":
		return authorizeNodeOwn(node, a, "node lease"), true
	case "storage.k8s.io/csinodes":
		return authorizeNodeOwn(node, a, "CSINode"), true
	case "certificates.k8s.io/podcertificaterequests":
		// Before 1.37 the feature gate PodCertificateRequest is off by default, and the resource is nothing special.
		return authorizeNodeCertificateRequest(node, a), s.effective >= 37
	}
	return AuthorizerDecision{}, false
}

// authorizeNodeObject decides about nodes as authorizeNode does.
func authorizeNodeObject(node string, a *authorizationv1.ResourceAttributes) AuthorizerDecision {
	switch {
	case a.Subresource == "" && slices.Contains([]string{"create", "update", "patch"}, a.Verb),
		a.Subresource == "status" && slices.Contains([]string{"update", "patch"}, a.Verb):
		return yesNode
	case a.Subresource != "" || !slices.Contains([]string{"get", "list", "watch"}, a.Verb):
		return no("")
	case a.Name == node:
		return yesNode
	case a.Name == "":
		return no(fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node))
	}
	return no(fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, a.Name))
}

// authorizeNodePod decides about pods as authorizePod does.
func (s *Server) authorizeNodePod(node string, a *authorizationv1.ResourceAttributes) AuthorizerDecision {
	itself := func(p pod) bool { return p.name == a.Name }
	switch a.Subresource + " " + a.Verb {
	case " get":
		return s.allowRelated(node, a, itself)
	case " list", " watch":
		if selectsOwnNode(a, node) {
			return yesNode
		}
		if a.Name != "" {
			return s.allowRelated(node, a, itself)
		}
		return no("can only list/watch pods with spec.nodeName field selector")
	case " create", " delete", "status update", "status patch", "eviction create":
		return yesNode
	}
	return no("")
}

// authorizeNodeCertificateRequest decides about PodCertificateRequests as authorizePodCertificateRequest does. Requests that
// exist already are unknown here, so none can be read by its name.
func authorizeNodeCertificateRequest(node string, a *authorizationv1.ResourceAttributes) AuthorizerDecision {
	if a.Subresource != "" {
		return no("nodes may not access the status subresource of PodCertificateRequests")
	}
	switch a.Verb {
	case "create":
		return yesNode
	case "get":
		return denyUnrelated(node, a)
	case "list", "watch":
		if selectsOwnNode(a, node) {
			return yesNode
		}
		return no("can only list/watch podcertificaterequests with nodeName field selector")
	}
	return no(fmt.Sprintf("nodes may not %s podcertificaterequests", a.Verb))
}

// selectsOwnNode reports whether a field selector keeps to what is on the node.
func selectsOwnNode(a *authorizationv1.ResourceAttributes, node string) bool {
	return a.FieldSelector != nil && slices.ContainsFunc(a.FieldSelector.Requirements, func(r metav1.FieldSelectorRequirement) bool {
		return r.Key == "spec.nodeName" && r.Operator == metav1.FieldSelectorOpIn && slices.Equal(r.Values, []string{node})
	})
}

// allowRelated allows what is about an object that a pod of the node has to do with.
func (s *Server) allowRelated(node string, a *authorizationv1.ResourceAttributes, isRelated func(pod) bool) AuthorizerDecision {
	if slices.ContainsFunc(s.policy.pods, func(p pod) bool { return p.node == node && p.namespace == a.Namespace && isRelated(p) }) {
		return yesNode
	}
	return denyUnrelated(node, a)
}

// authorizeNodeAccount decides about service accounts as authorizeServiceAccount does: it allows the accounts of the node's pods.
func (s *Server) authorizeNodeAccount(node string, a *authorizationv1.ResourceAttributes) AuthorizerDecision {
	switch {
	case a.Verb == "get" && a.Subresource == "":
		if a.Name == "" {
			return no("No Object name found")
		}
	case a.Verb != "create" || a.Name == "":
		return no("can only create tokens for individual service accounts")
	case a.Subresource != "token":
		return no("can only create token subresource of serviceaccount")
	}
	return s.allowRelated(node, a, func(p pod) bool { return p.account == a.Name })
}

// authorizeNodeRead decides about secrets and config maps as authorizeReadNamespacedObject does.
func (s *Server) authorizeNodeRead(node string, a *authorizationv1.ResourceAttributes) AuthorizerDecision {
	switch {
	case !slices.Contains([]string{"get", "list", "watch"}, a.Verb):
		return no("can only read resources of this type")
	case a.Subresource != "":
		return no("cannot read subresource")
	case a.Namespace == "":
		return no("can only read namespaced object of this type")
	}
	return s.allowRelated(node, a, func(p pod) bool { return slices.Contains(p.reads, a.Resource+"/"+a.Name) })
}

// authorizeNodeGet decides about what nodes may only get, as authorizeGet does.
func authorizeNodeGet(node string, a *authorizationv1.ResourceAttributes) AuthorizerDecision {
	switch {
	case a.Verb != "get":
		return no("can only get individual resources of this type")
	case a.Subresource != "":
		return no("cannot get subresource")
	}
	return denyUnrelated(node, a)
}

// denyUnrelated answers as hasPathFrom makes the authorizer answer about objects that no pod of the node uses.
func denyUnrelated(node string, a *authorizationv1.ResourceAttributes) AuthorizerDecision {
	if a.Name == "" {
		return no("No Object name found")
	}
	return no(fmt.Sprintf("no relationship found between node '%s' and this object", node))
}

// authorizeNodeOwn decides as authorizeLease and authorizeCSINode do, without the status subresource of an alpha feature: each node has
// one such object, of its own name.
func authorizeNodeOwn(node string, a *authorizationv1.ResourceAttributes, kind string) AuthorizerDecision {
	switch {
	case a.Resource == "csinodes" && a.Subresource != "":
		return no("cannot authorize CSINode subresources")
	case !slices.Contains([]string{"get", "create", "update", "patch", "delete"}, a.Verb):
		return no("can only get, create, update, patch, or delete a " + kind)
	case a.Resource == "leases" && a.Namespace != "kube-node-lease":
		return no(`can only access leases in the "kube-node-lease" system namespace`)
	case a.Verb != "create" && a.Name != node:
		return no("can only access " + kind + " with the same name as the requesting node")
	}
	return yesNode
}
