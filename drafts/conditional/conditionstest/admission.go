package conditionstest

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// admission is what an authorizer is told in the second phase: the request that was authorized, and its objects. It
// implements authorizer.ConditionsData as admission attributes would.
type admission struct {
	request authorizer.AttributesRecord
	data    *vectors.ConditionData
}

// GetName returns the name in the request, or else the name in the object: a create request has no name of its own.
func (a admission) GetName() string {
	return cmp.Or(a.request.Name, a.anyObject().GetName())
}

func (a admission) GetNamespace() string { return a.request.Namespace }

func (a admission) GetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: a.request.APIGroup, Version: a.request.APIVersion, Resource: a.request.Resource}
}

func (a admission) GetSubresource() string { return a.request.Subresource }

func (a admission) GetOperation() authorizer.AdmissionOperation {
	return authorizer.AdmissionOperation(a.data.Operation)
}

func (a admission) GetOperationOptions() runtime.Object { return toRuntime(a.data.Options) }

// IsDryRun reports whether the operation's options ask for it.
func (a admission) IsDryRun() bool {
	stages, _, err := unstructured.NestedStringSlice(a.data.Options, "dryRun")
	return err == nil && slices.Contains(stages, metav1.DryRunAll)
}

func (a admission) GetObject() runtime.Object { return toRuntime(a.data.Object) }

func (a admission) GetOldObject() runtime.Object { return toRuntime(a.data.OldObject) }

func (a admission) GetKind() schema.GroupVersionKind {
	return a.anyObject().GroupVersionKind()
}

func (a admission) GetUserInfo() user.Info { return a.request.User }

// anyObject returns the object. If there is none, as for a deletion, it returns the old object, and if there is
// neither, an empty object.
func (a admission) anyObject() *unstructured.Unstructured {
	if a.data.Object != nil {
		return &unstructured.Unstructured{Object: a.data.Object}
	}
	return &unstructured.Unstructured{Object: a.data.OldObject}
}

// toRuntime returns an object as admission hands it on. If there is no object, it returns a nil interface and not an
// interface with a nil pointer.
func toRuntime(o vectors.Object) runtime.Object {
	if o == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: o}
}
