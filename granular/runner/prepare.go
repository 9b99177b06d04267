package runner

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
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

func (b *Bench) bindExecutors(ctx context.Context) error {
	_, err := b.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "authzconf-granular-executors"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: executors}},
	}, metav1.CreateOptions{})
	return err
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
		"clientConfig":             map[string]any{"url": b.webhook.Client("").Host + "/convert", "caBundle": b.webhook.CA()},
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
