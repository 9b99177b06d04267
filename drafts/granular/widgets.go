package granular

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/scenarios"
)

var (
	//go:embed widget.yaml
	widgetYAML []byte
	// The WidgetSet has a template of a Widget.
	//
	//go:embed widgetset.yaml
	widgetSetYAML []byte
)

var widgets = schema.GroupVersion{Group: "granular.authzconf.dev", Version: "v1"}

// installWidgets creates the custom resources of the scenarios, and waits until they are served in all versions.
func (b *Bench) installWidgets(ctx context.Context) error {
	var crds []map[string]any
	for _, text := range [][]byte{widgetYAML, widgetSetYAML} {
		var crd map[string]any
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			return err
		}
		crds = append(crds, crd)
	}
	if _, err := b.replayer.Provision(ctx, &scenarios.Scenario{ID: "widgets", Objects: crds}); err != nil {
		return err
	}
	older := schema.GroupVersion{Group: widgets.Group, Version: "v1beta1"}
	for _, gvr := range []schema.GroupVersionResource{
		widgets.WithResource("widgets"),
		older.WithResource("widgets"),
		widgets.WithResource("widgetsets"),
	} {
		if err := b.waitServed(ctx, gvr); err != nil {
			return err
		}
	}
	return nil
}

// waitServed waits until a custom resource is served and its schema is published, which is some moments later.
func (b *Bench) waitServed(ctx context.Context, gvr schema.GroupVersionResource) error {
	return poll(ctx, "the custom resource and its schema", func(ctx context.Context) (bool, error) {
		if _, err := b.admin.Resource(gvr).List(ctx, metav1.ListOptions{}); err != nil {
			return false, ignoreNotFound(err)
		}
		// The document has the paths of all resources of the version, and may have been published before this one was made.
		document, err := b.client.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/" + gvr.GroupVersion().String()).DoRaw(ctx)
		return strings.Contains(string(document), gvr.Version+"/"+gvr.Resource+`"`), ignoreNotFound(err)
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
