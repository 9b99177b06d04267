package granular

import (
	"cmp"
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
)

// place says where the object of an attempt is: in the namespace of its actor, or it is that namespace itself.
type place struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// placeOf returns the place of an object, in a version unless that is empty, for the actor with a namespace.
func placeOf(object map[string]any, version, namespace string) place {
	resource, _ := meta.UnsafeGuessKindToResource((&unstructured.Unstructured{Object: object}).GroupVersionKind())
	resource.Version = cmp.Or(version, resource.Version)
	if resource.GroupResource() == (schema.GroupResource{Resource: "namespaces"}) {
		return place{resource, "", namespace}
	}
	return place{resource, namespace, subject}
}

// objectName returns the name that an authorizer is asked about. It is unknown in a create request.
func (p place) objectName(r *Request) string {
	if r.Verb == "create" {
		return ""
	}
	return p.name
}

func (p place) client(from dynamic.Interface) dynamic.ResourceInterface {
	return from.Resource(p.resource).Namespace(p.namespace)
}

// render returns an object of a scenario with its name and namespace.
func (p place) render(object any) (*unstructured.Unstructured, error) {
	// The conversion to JSON and back gives numbers the types that client-go needs.
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &out.Object); err != nil {
		return nil, err
	}
	out.SetName(p.name)
	out.SetNamespace(p.namespace)
	return out, nil
}

// readStored returns the stored object. It is nil if there is none.
func (p place) readStored(ctx context.Context, client dynamic.Interface) (map[string]any, error) {
	o, err := p.client(client).Get(ctx, p.name, metav1.GetOptions{})
	if err != nil {
		return nil, utilerrors.FilterOut(err, apierrors.IsNotFound)
	}
	return o.Object, nil
}

// restore restores the stored object with which a scenario begins. The object is nil if there must be none.
func (b *Bench) restore(ctx context.Context, p place, object map[string]any) error {
	first, err := p.render(object)
	if err != nil {
		return err
	}
	if p.namespace == "" {
		return b.restoreLabels(ctx, p, first.GetLabels())
	}
	if err := b.deleteObject(ctx, p); err != nil || object == nil {
		return err
	}
	client := p.client(b.admin)
	created, err := client.Create(ctx, first, metav1.CreateOptions{})
	if err != nil || first.Object["status"] == nil {
		return err
	}
	created.Object["status"] = first.Object["status"]
	_, err = client.UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}

// restoreLabels restores the labels of the namespace of an actor. The namespace itself cannot be created again.
func (b *Bench) restoreLabels(ctx context.Context, p place, labels map[string]string) error {
	patch, err := json.Marshal([]any{map[string]any{"op": "add", "path": "/metadata/labels", "value": labels}})
	if err != nil {
		return err
	}
	_, err = p.client(b.admin).Patch(ctx, p.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// deleteObject deletes the object of a place, if there is one, and its finalizers. Background deletion is used, because
// a ReplicationController would otherwise get a finalizer that nobody removes.
func (b *Bench) deleteObject(ctx context.Context, p place) error {
	client := p.client(b.admin)
	_, err := client.Patch(ctx, p.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err == nil {
		background := metav1.DeletePropagationBackground
		err = client.Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), PropagationPolicy: &background})
	}
	return ignoreNotFound(err)
}
