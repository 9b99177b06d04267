package granular

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
)

// place is where the object of an attempt is: in the namespace of its actor, or that namespace itself.
type place struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

func placeOf(object map[string]any, version, namespace string) place {
	resource, _ := meta.UnsafeGuessKindToResource((&unstructured.Unstructured{Object: object}).GroupVersionKind())
	resource.Version = cmp.Or(version, resource.Version)
	if resource.GroupResource() == (schema.GroupResource{Resource: "namespaces"}) {
		return place{resource, "", namespace}
	}
	return place{resource, namespace, subject}
}

func (p place) of(client dynamic.Interface) dynamic.ResourceInterface {
	return client.Resource(p.resource).Namespace(p.namespace)
}

// named is an object of a scenario with its name and namespace.
func (p place) named(object any) (*unstructured.Unstructured, error) {
	// Through JSON: numbers get the types that client-go wants.
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

// restore puts the object of a scenario into its first state, or removes it. A namespace stays, with the first labels.
func (b *Bench) restore(ctx context.Context, p place, object map[string]any) error {
	client := p.of(b.admin)
	first, err := p.named(object)
	if err != nil {
		return err
	}
	if p.namespace == "" {
		labels, err := json.Marshal([]any{map[string]any{"op": "add", "path": "/metadata/labels", "value": first.GetLabels()}})
		if err == nil {
			_, err = client.Patch(ctx, p.name, types.JSONPatchType, labels, metav1.PatchOptions{})
		}
		return err
	}
	_, err = client.Patch(ctx, p.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err == nil {
		now := int64(0)
		err = client.Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	}
	if err := ignoreNotFound(err); err != nil || object == nil {
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
func (p place) stored(ctx context.Context, client dynamic.Interface) (map[string]any, error) {
	o, err := p.of(client).Get(ctx, p.name, metav1.GetOptions{})
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
	place
	live map[string]any
}

var patchTypes = map[string]types.PatchType{
	"jsonPatch": types.JSONPatchType, "mergePatch": types.MergePatchType,
	"strategicMergePatch": types.StrategicMergePatchType, "apply": types.ApplyPatchType,
}

func (s *sending) body() (*unstructured.Unstructured, error) {
	switch s.Verb {
	case "create", "apply":
		return s.named(s.Change)
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
		return s.named(json.RawMessage(merged))
	}
	return nil, nil
}

// send sends a request with a client, as a dry run or not. The error is the API server's.
func (s *sending) send(ctx context.Context, from dynamic.Interface, dryRun bool) (*unstructured.Unstructured, error) {
	client := s.of(from)
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
	return client.Patch(ctx, s.name, patchTypes[s.Verb], raw, o, sub...)
}
