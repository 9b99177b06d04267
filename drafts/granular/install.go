package granular

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/scenarios"
)

var (
	//go:embed install.yaml.tmpl
	installText string
	installPage = template.Must(template.New("install").Parse(installText))
)

// install makes an API server enforce excluded fields, by policies or by a webhook, and waits until it does.
func (b *Bench) install(ctx context.Context, enforcement Enforcement) error {
	manifests, err := enforcement.manifests()
	if err != nil {
		return err
	}
	if enforcement.Kubeconfig != "" {
		if err := b.writeKubeconfig(enforcement.Kubeconfig); err != nil {
			return fmt.Errorf("the kubeconfig for the enforcer: %w", err)
		}
	}
	if _, err := b.replayer.Provision(ctx, &scenarios.Scenario{ID: enforcement.Kind, Objects: manifests}); err != nil {
		return err
	}
	return b.waitEnforced(ctx, true)
}

// manifests returns the objects by which an API server enforces, the canary last.
func (enforcement Enforcement) manifests() ([]map[string]any, error) {
	values := map[string]string{"URL": enforcement.URL, "CA": base64.StdEncoding.EncodeToString(enforcement.CA)}
	if enforcement.Kind == Policies {
		policies, err := enforcement.Descriptions.Policies()
		if err != nil {
			return nil, err
		}
		values["Policies"] = string(policies)
	}
	var text bytes.Buffer
	if err := installPage.Execute(&text, values); err != nil {
		return nil, err
	}
	return scenarios.Manifests(enforcement.Kind, text.Bytes())
}

// writeKubeconfig writes an administrator's kubeconfig of the API server to a file.
func (b *Bench) writeKubeconfig(path string) error {
	plane, _ := b.server.Plane()
	data, err := os.ReadFile(plane.KubeconfigPath())
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// waitEnforced waits until the canary is in force, or no longer. It is made last, and the API server reads in the order
// of making.
func (b *Bench) waitEnforced(ctx context.Context, want bool) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "canary"}}
	return poll(ctx, "what the API server shall enforce", func(ctx context.Context) (bool, error) {
		_, err := b.client.CoreV1().
			ConfigMaps(metav1.NamespaceDefault).
			Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		refused := err != nil && strings.Contains(err.Error(), "granular-canary")
		return refused == want, nil
	})
}
