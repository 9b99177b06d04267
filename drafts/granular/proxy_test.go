package granular

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/internal/seq"
)

// someone is an actor with an object of its own, and a client through a gate.
func someone(t *testing.T, b *Bench, id string, steps enforcer.Steps, grants ...string) (actor, *rest.Config, *kubernetes.Clientset) {
	t.Helper()
	faulty := by(t, Reference)
	faulty.Steps = steps
	g, err := b.open(t.Context(), faulty)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	a, err := b.actor(t.Context(), id, configmaps, grants, nil)
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: subject}, Data: map[string]string{"a": "1"}}
	if _, err := b.client.CoreV1().ConfigMaps(a.namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := g.config(a.token)
	return a, config, kubernetes.NewForConfigOrDie(config)
}

func refusesStrangers(t *testing.T, b *Bench) {
	a, config, _ := someone(t, b, "strangers", enforcer.Reference(), "patch")
	patch := func(change func(*rest.Config)) error {
		c := rest.CopyConfig(config)
		change(c)
		_, err := kubernetes.NewForConfigOrDie(c).
			CoreV1().
			ConfigMaps(a.namespace).
			Patch(t.Context(), subject, types.MergePatchType, []byte(`{"data":{"a":"2"}}`), metav1.PatchOptions{})
		return err
	}
	if err := patch(func(c *rest.Config) { c.BearerToken = "" }); !apierrors.IsUnauthorized(err) {
		t.Errorf("without a token: %v", err)
	}
	if err := patch(func(c *rest.Config) { c.BearerToken += "x" }); !apierrors.IsUnauthorized(err) {
		t.Errorf("with a wrong token: %v", err)
	}
	if err := patch(func(c *rest.Config) { c.Impersonate.UserName = "system:admin" }); !apierrors.IsBadRequest(err) {
		t.Errorf("impersonating: %v", err)
	}
	if err := patch(func(*rest.Config) {}); err != nil {
		t.Errorf("with its own token: %v", err)
	}
	// A request without a change is passed on as the actor's own request.
	_, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(a.namespace).Get(t.Context(), subject, metav1.GetOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), a.user) {
		t.Errorf("get: %v", err)
	}
}

func refusesBodies(t *testing.T, b *Bench) {
	a, _, client := someone(t, b, "bodies", enforcer.Reference(), "granular", "granular:content")
	for _, c := range []struct {
		name, body string
		patch      types.PatchType
	}{
		{"the version by a JSON patch", `[{"op":"remove","path":"/metadata/resourceVersion"}]`, types.JSONPatchType},
		{"metadata by a JSON patch", `[{"op":"replace","path":"/metadata","value":{}}]`, types.JSONPatchType},
		{"all by a JSON patch", `[{"op":"replace","path":"","value":{}}]`, types.JSONPatchType},
		{"metadata by a merge patch", `{"metadata":null,"data":{"a":"2"}}`, types.MergePatchType},
		{"a type that is none", `{"data":{"a":"2"}}`, "application/surprise"},
		{"a type that is not read", `{"data":{"a":"2"}}`, "application/vnd.kubernetes.protobuf"},
		{"no object", `[1]`, types.MergePatchType},
	} {
		_, err := client.CoreV1().ConfigMaps(a.namespace).Patch(t.Context(), subject, c.patch, []byte(c.body), metav1.PatchOptions{})
		if !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// The answer reveals the stored data to an actor who may not read it.
	guess := func(value string) error {
		body := `[{"op":"test","path":"/data/a","value":"` + value + `"},{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`
		_, err := client.CoreV1().
			ConfigMaps(a.namespace).
			Patch(t.Context(), subject, types.JSONPatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	if err := guess("2"); !apierrors.IsInvalid(err) {
		t.Errorf("guessed wrong: %v", err)
	}
	if err := guess("1"); !apierrors.IsForbidden(err) {
		t.Errorf("guessed right: %v", err)
	}
	o, err := b.client.CoreV1().ConfigMaps(a.namespace).Get(t.Context(), subject, metav1.GetOptions{})
	if err != nil || o.Data["a"] != "1" {
		t.Errorf("changed: %v, %v", o.Data, err)
	}
}

// doesWhatWasChecked checks that a request fails if the object is changed between the checks and the request.
func doesWhatWasChecked(t *testing.T, b *Bench) {
	var a actor
	var client *kubernetes.Clientset
	steps := enforcer.Reference()
	steps.Decide = func(fields []enforcer.ChangedField, ask enforcer.Ask) (*enforcer.MissingPermission, error) {
		_, err := b.client.CoreV1().
			ConfigMaps(a.namespace).
			Patch(t.Context(), subject, types.MergePatchType, []byte(`{"metadata":{"labels":{"other":"x"}}}`), metav1.PatchOptions{})
		if err != nil {
			return nil, err
		}
		return enforcer.Decide(fields, ask)
	}
	a, _, client = someone(t, b, "race", steps, "granular", "granular:content")
	for patch, body := range map[types.PatchType]string{
		types.MergePatchType:          `{"data":{"a":"2"}}`,
		types.StrategicMergePatchType: `{"data":{"a":"2"}}`,
		types.JSONPatchType:           `[{"op":"replace","path":"/data/a","value":"2"}]`,
		types.ApplyYAMLPatchType:      `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"subject"},"data":{"a":"2"}}`,
	} {
		force := true
		o := metav1.PatchOptions{FieldManager: "test"}
		if patch == types.ApplyYAMLPatchType {
			o.Force = &force
		}
		// The label is removed first, because adding it again would not be a change.
		_, err := b.client.CoreV1().
			ConfigMaps(a.namespace).
			Patch(t.Context(), subject, types.MergePatchType, []byte(`{"metadata":{"labels":{"other":null}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().ConfigMaps(a.namespace).Patch(t.Context(), subject, patch, []byte(body), o)
		if !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", patch, err)
		}
	}
	o, err := b.client.CoreV1().ConfigMaps(a.namespace).Get(t.Context(), subject, metav1.GetOptions{})
	if err != nil || o.Data["a"] != "1" {
		t.Errorf("changed: %v, %v", o.Data, err)
	}
}

// keepsToTheActor checks that granular permissions do not allow changes of roles.
func keepsToTheActor(t *testing.T, b *Bench) {
	roles := rbacv1.SchemeGroupVersion.WithResource("roles")
	a, err := b.actor(t.Context(), "secondary", roles, []string{"granular", "granular:objectMeta"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.open(t.Context(), by(t, Reference))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	client := kubernetes.NewForConfigOrDie(g.config(a.token))
	_, err = client.RbacV1().
		Roles(a.namespace).
		Patch(t.Context(), account, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no use in this API group") {
		t.Errorf("got %v", err)
	}
}

// describesWhatThereIs compares the descriptions with the schemas that the API server publishes. Only fields that the
// KEP itself calls nonexistent may be missing there.
func describesWhatThereIs(t *testing.T, b *Bench) {
	set := by(t, Reference).Descriptions
	var missing []string
	for gv, kinds := range map[schema.GroupVersion]map[string]string{
		{Version: "v1"}:                            {"Namespace": "namespaces", "Pod": "pods", "ReplicationController": "replicationcontrollers", "PodTemplate": "podtemplates", "ConfigMap": "configmaps"},
		{Group: "autoscaling", Version: "v1"}:      {"HorizontalPodAutoscaler": "horizontalpodautoscalers"},
		{Group: "autoscaling", Version: "v2"}:      {"HorizontalPodAutoscaler": "horizontalpodautoscalers"},
		{Group: "apps", Version: "v1"}:             {"Deployment": "deployments", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"},
		{Group: "batch", Version: "v1"}:            {"Job": "jobs", "CronJob": "cronjobs"},
		{Group: widgets.Group, Version: "v1"}:      {"Widget": "widgets", "WidgetSet": "widgetsets"},
		{Group: widgets.Group, Version: "v1beta1"}: {"Widget": "widgets"},
	} {
		path := "/openapi/v3/apis/" + gv.String()
		if gv.Group == "" {
			path = "/openapi/v3/api/v1"
		}
		raw, err := b.client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found, err := undescribable(raw, gv, set, kinds)
		if err != nil {
			t.Fatal(err)
		}
		missing = append(missing, found...)
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	// In all resources and in all templates.
	isFuture := func(f string) bool {
		return strings.HasSuffix(f, "metadata.liens") || strings.HasSuffix(f, "spec.schedulePaused")
	}
	future, others := seq.Filter(missing, isFuture), slices.DeleteFunc(slices.Clone(missing), isFuture)
	want := []string{
		"configmaps spec", "configmaps status", "configmaps status.conditions", "configmaps status.conditions.*",
		"cronjobs status.conditions", "cronjobs status.conditions.*",
		"horizontalpodautoscalers status.conditions", "horizontalpodautoscalers status.conditions.*",
		"jobs status.conditions.*",
		"podtemplates spec", "podtemplates status", "podtemplates status.conditions", "podtemplates status.conditions.*",
		"widgetsets status", "widgetsets status.conditions", "widgetsets status.conditions.*",
	}
	if !slices.Equal(others, want) {
		t.Errorf("not in the schemas: %q, expected %q", others, want)
	}
	if len(future) != 33 {
		t.Errorf("%d fields that no version of Kubernetes has are not in the schemas, expected 33: %q", len(future), future)
	}
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// dropsTheExtension shows why descriptions are in files: an API server of today drops the extension that the KEP would
// have in the schema of a custom resource.
func dropsTheExtension(t *testing.T, b *Bench) {
	crd := &unstructured.Unstructured{}
	err := yaml.UnmarshalStrict([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.granular.authzconf.dev}
spec:
  group: granular.authzconf.dev
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-permission-verb: specification}}}}}
`), &crd.Object)
	if err != nil {
		t.Fatal(err)
	}
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}}
	_, err = b.admin.Resource(crds).
		Create(t.Context(), crd, strict)
	if err == nil || !strings.Contains(err.Error(), "x-kubernetes-permission-verb") {
		t.Errorf("strictly: %v", err)
	}
	created, err := b.admin.Resource(crds).
		Create(t.Context(), crd, metav1.CreateOptions{FieldValidation: metav1.FieldValidationIgnore, DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := json.Marshal(created.Object["spec"]); err != nil || strings.Contains(string(raw), "permission-verb") {
		t.Errorf("kept: %s, %v", raw, err)
	}
}
