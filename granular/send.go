package granular

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
)

// resources are the plural names of the kinds that scenarios use.
var resources = map[string]string{"ConfigMap": "configmaps", "Deployment": "deployments", "Pod": "pods", "Widget": "widgets"}

// resourceOf is the resource of an object, in the version of a request.
func resourceOf(object map[string]any, version string) (schema.GroupVersionResource, error) {
	kind := (&unstructured.Unstructured{Object: object}).GroupVersionKind()
	name, ok := resources[kind.Kind]
	if !ok {
		return schema.GroupVersionResource{}, fmt.Errorf("the suite knows no kind %q", kind.Kind)
	}
	gvr := kind.GroupVersion().WithResource(name)
	if version != "" {
		gvr.Version = version
	}
	return gvr, nil
}

// named is an object of a scenario with its name and namespace.
func named(object any, namespace string) (*unstructured.Unstructured, error) {
	// Through JSON: numbers get the types that client-go wants.
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &out.Object); err != nil {
		return nil, err
	}
	out.SetName(subject)
	out.SetNamespace(namespace)
	return out, nil
}

// restore puts the object of a scenario into its first state, or removes it.
func (b *Bench) restore(ctx context.Context, gvr schema.GroupVersionResource, object map[string]any, namespace string) error {
	client := b.admin.Resource(gvr).Namespace(namespace)
	_, err := client.Patch(ctx, subject, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err == nil {
		now := int64(0)
		err = client.Delete(ctx, subject, metav1.DeleteOptions{GracePeriodSeconds: &now})
	}
	if err := ignoreNotFound(err); err != nil || object == nil {
		return err
	}
	first, err := named(object, namespace)
	if err != nil {
		return err
	}
	created, err := client.Create(ctx, first, metav1.CreateOptions{})
	if err != nil || first.Object["status"] == nil {
		return err
	}
	created.Object["status"] = first.Object["status"]
	_, err = client.UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}

// stored is the object as it is now; nil if there is none.
func stored(ctx context.Context, client dynamic.ResourceInterface) (map[string]any, error) {
	o, err := client.Get(ctx, subject, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return o.Object, nil
}

// sending is a request, ready to be sent.
type sending struct {
	*Request
	live      map[string]any
	namespace string
}

var patchTypes = map[string]types.PatchType{
	"jsonPatch": types.JSONPatchType, "mergePatch": types.MergePatchType,
	"strategicMergePatch": types.StrategicMergePatchType, "apply": types.ApplyPatchType,
}

// body is the object that is sent, nil for what is none.
func (s *sending) body() (*unstructured.Unstructured, error) {
	switch s.Verb {
	case "create", "apply":
		return named(s.Change, s.namespace)
	case "update":
		live, err := json.Marshal(s.live)
		if err != nil {
			return nil, err
		}
		change, err := json.Marshal(s.Change)
		if err != nil {
			return nil, err
		}
		merged, err := jsonpatch.MergePatch(live, change)
		if err != nil {
			return nil, fmt.Errorf("merging the change: %w", err)
		}
		return named(json.RawMessage(merged), s.namespace)
	}
	return nil, nil
}

// send sends a request with a client, as a dry run or not. The error is the API server's.
func (s *sending) send(ctx context.Context, client dynamic.ResourceInterface, dryRun bool) (*unstructured.Unstructured, error) {
	var dry, sub []string
	if dryRun {
		dry = []string{metav1.DryRunAll}
	}
	if s.Subresource != "" {
		sub = []string{s.Subresource}
	}
	body, err := s.body()
	if err != nil {
		return nil, err
	}
	switch s.Verb {
	case "create":
		return client.Create(ctx, body, metav1.CreateOptions{DryRun: dry}, sub...)
	case "update":
		return client.Update(ctx, body, metav1.UpdateOptions{DryRun: dry}, sub...)
	}
	data := s.Change
	o := metav1.PatchOptions{DryRun: dry}
	if s.Verb == "apply" {
		force := true
		data, o.FieldManager, o.Force = body, "authzconf", &force
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	return client.Patch(ctx, subject, patchTypes[s.Verb], raw, o, sub...)
}
