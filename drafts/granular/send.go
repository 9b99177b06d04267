package granular

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// readyRequest is a request that is ready to be sent. live is the stored object.
type readyRequest struct {
	*Request
	place
	live map[string]any
}

var patchTypes = map[string]types.PatchType{
	"jsonPatch": types.JSONPatchType, "mergePatch": types.MergePatchType,
	"strategicMergePatch": types.StrategicMergePatchType, "apply": types.ApplyPatchType,
}

// body returns the object that is sent, nil for a patch.
func (s *readyRequest) body() (*unstructured.Unstructured, error) {
	switch s.Verb {
	case "create", "apply":
		return s.render(s.Change)
	case "update":
		merged, err := s.merge()
		if err != nil {
			return nil, err
		}
		return s.render(merged)
	}
	return nil, nil
}

// merge returns the stored object with the change of an update.
func (s *readyRequest) merge() (json.RawMessage, error) {
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
	return merged, nil
}

// send sends the request, as a dry run or not, and returns the object of the answer.
func (s *readyRequest) send(ctx context.Context, from dynamic.Interface, dryRun bool) (*unstructured.Unstructured, error) {
	client := s.client(from)
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
		data, o.FieldManager, o.Force = body, "authzconf", new(true)
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	return client.Patch(ctx, s.name, patchTypes[s.Verb], raw, o, sub...)
}
