package granular

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/scenarios"
)

//go:embed widget.yaml
var widgetYAML []byte

var widgets = schema.GroupVersion{Group: "granular.authzconf.dev", Version: "v1"}

// installWidgets creates the custom resource of the scenarios, and waits until it is served in both versions.
func (b *Bench) installWidgets(ctx context.Context) error {
	var crd map[string]any
	if err := yaml.UnmarshalStrict(widgetYAML, &crd); err != nil {
		return err
	}
	if _, err := b.replayer.Provision(ctx, &scenarios.Scenario{ID: "widgets", Objects: []map[string]any{crd}}); err != nil {
		return err
	}
	for _, version := range []string{"v1", "v1beta1"} {
		if err := b.waitServed(ctx, schema.GroupVersionResource{Group: widgets.Group, Version: version, Resource: "widgets"}); err != nil {
			return err
		}
	}
	return nil
}

// waitServed waits until a custom resource is served and its schema is published, which is some moments later.
func (b *Bench) waitServed(ctx context.Context, gvr schema.GroupVersionResource) error {
	return poll(ctx, "the custom resource and its schema", func(ctx context.Context) (bool, error) {
		_, err := b.admin.Resource(gvr).List(ctx, metav1.ListOptions{})
		if err == nil {
			_, err = b.client.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/" + gvr.GroupVersion().String()).DoRaw(ctx)
		}
		return err == nil, ignoreNotFound(err)
	})
}

// ready is the longest time that the API server may need until something is in force.
const ready = 30 * time.Second

func poll(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, ready, true, done); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
		return nil
	}
	return err
}
