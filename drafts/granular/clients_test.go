package granular

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// keepsControllersAsTheyAre checks clients of today that have granular:labels instead of the permission to write
// everything: a client that sends the patch of kubectl label, and a controller that reads an object, changes it and
// writes the whole object back. Their usual requests are allowed. Requests that they never sent are refused.
func keepsControllersAsTheyAre(t *testing.T, b *Bench) {
	g, err := b.open(t.Context(), by(t, Reference))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	who, err := b.actor(t.Context(), "clients", configmaps, []string{"get", "granular", "granular:labels"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: subject}, Data: map[string]string{"kept": "as it is"}}
	if _, err := b.client.CoreV1().ConfigMaps(who.namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := g.config(who.token)
	config.ContentType = "application/json" // the reference does not read protobuf, which is the default of this client
	client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(who.namespace)

	patch := []byte(`{"metadata":{"labels":{"by":"patch"}}}`)
	if _, err := client.Patch(t.Context(), subject, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Errorf("the patch of a label: %v", err)
	}
	if err := writeBack(t, client, func(c *corev1.ConfigMap) { c.Labels = map[string]string{"by": "update"} }); err != nil {
		t.Errorf("a whole object with another label: %v", err)
	}
	if err := writeBack(t, client, func(c *corev1.ConfigMap) { c.Data["kept"] = "no longer" }); !apierrors.IsForbidden(err) {
		t.Errorf("a whole object with other data: %v, want that it is forbidden", err)
	}
	stored, err := b.client.CoreV1().ConfigMaps(who.namespace).Get(t.Context(), subject, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(stored.Labels, map[string]string{"by": "update"}) || !maps.Equal(stored.Data, object.Data) {
		t.Errorf("stored: labels %v, data %v", stored.Labels, stored.Data)
	}
}

// writeBack reads the object, changes it, and writes it back whole.
func writeBack(t *testing.T, client typedcorev1.ConfigMapInterface, change func(*corev1.ConfigMap)) error {
	t.Helper()
	object, err := client.Get(t.Context(), subject, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(object)
	_, err = client.Update(t.Context(), object, metav1.UpdateOptions{})
	return err
}
