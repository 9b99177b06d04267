package granular

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"
)

//go:embed widget.yaml
var widgetYAML []byte

// ready is how long something of the API server may take to come into force.
const ready = 30 * time.Second

func poll(ctx context.Context, what string, is func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, ready, true, is)
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

var (
	crds    = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets = schema.GroupVersion{Group: "granular.authzconf.dev", Version: "v1"}
)

// installWidgets makes the custom resource, whose versions the webhook converts.
func (b *Bench) installWidgets(ctx context.Context) error {
	crd := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(widgetYAML, &crd.Object); err != nil {
		return err
	}
	conversion := map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig":             map[string]any{"url": b.webhook.URL + "/convert", "caBundle": b.webhook.CA},
	}}
	raw, err := json.Marshal(conversion) // bytes become base64
	if err != nil {
		return err
	}
	var plain map[string]any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return err
	}
	if err := unstructured.SetNestedMap(crd.Object, plain, "spec", "conversion"); err != nil {
		return err
	}
	if _, err := b.admin.Resource(crds).Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, version := range []string{"v1", "v1beta1"} {
		gvr := widgets.WithResource("widgets")
		gvr.Version = version
		err := poll(ctx, "the custom resource", func(ctx context.Context) (bool, error) {
			_, err := b.admin.Resource(gvr).List(ctx, metav1.ListOptions{})
			return err == nil, ignoreNotFound(err)
		})
		if err != nil {
			return err
		}
		// The schema is published some moments later than the resource.
		err = poll(ctx, "the custom resource's schema", func(ctx context.Context) (bool, error) {
			return b.published(ctx, "/openapi/v3/apis/"+gvr.GroupVersion().String())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) published(ctx context.Context, path string) (bool, error) {
	result := b.client.RESTClient().Get().AbsPath(path).Do(ctx)
	var code int
	result.StatusCode(&code)
	if code == http.StatusNotFound || code == http.StatusServiceUnavailable {
		return false, nil
	}
	return result.Error() == nil, result.Error()
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
		return nil
	}
	return err
}

// converter converts widgets between their versions: what v1 calls nodeName is host in v1beta1.
func converter() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct { // the part of a ConversionReview (apiextensions.k8s.io/v1) that matters
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Request    *struct {
				UID     string           `json:"uid"`
				Desired string           `json:"desiredAPIVersion"`
				Objects []map[string]any `json:"objects"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "not a ConversionReview", http.StatusBadRequest)
			return
		}
		from, to := "host", "nodeName"
		if review.Request.Desired == "granular.authzconf.dev/v1beta1" {
			from, to = to, from
		}
		for _, o := range review.Request.Objects {
			o["apiVersion"] = review.Request.Desired
			if spec, ok := o["spec"].(map[string]any); ok {
				if v, ok := spec[from]; ok {
					spec[to] = v
					delete(spec, from)
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind, "response": map[string]any{
			"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": map[string]any{"status": "Success"},
		}})
	})
}
