package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/e2e-framework/pkg/env"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/envfuncs"
	"sigs.k8s.io/e2e-framework/pkg/features"
)

// TestLocal is a test of e2e-framework as its users write them.
func TestLocal(t *testing.T) {
	const name = "authz"
	provider := NewLocal(Options{FeatureGates: map[string]bool{"ConstrainedImpersonation": true}})
	t.Cleanup(func() { _ = provider.Destroy(context.Background()) })
	config := envconf.New()
	ctx, err := envfuncs.CreateCluster(provider, name)(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	testenv := env.NewWithConfig(config)
	info, err := os.Stat(provider.GetKubeconfig())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("kubeconfig: %v, %v", info, err)
	}
	dir := filepath.Dir(provider.GetKubeconfig())
	testenv.Test(t, features.New("namespaces").Assess("can be made", func(ctx context.Context, t *testing.T, c *envconf.Config) context.Context {
		if err := c.Client().Resources().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}); err != nil {
			t.Error(err)
		}
		return ctx
	}).Feature())
	logs := t.TempDir()
	if err := provider.ExportLogs(ctx, logs); err != nil {
		t.Error(err)
	}
	if log, err := os.ReadFile(filepath.Join(logs, "authzconf.log")); err != nil || len(log) == 0 {
		t.Errorf("no log: %v", err)
	}
	if _, err := envfuncs.DestroyCluster(name)(ctx, config); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the kubeconfig is still there: %v", err)
	}
}

func TestRefused(t *testing.T) {
	if _, err := NewLocal(Options{}).Create(t.Context(), "--flag"); err == nil {
		t.Error("arguments are taken")
	}
	if _, err := NewLocal(Options{}).WithVersion("9.99").Create(t.Context()); err == nil {
		t.Error("an unknown version is taken")
	}
	if err := NewKind(Options{}).WaitForControlPlane(t.Context(), nil); err == nil {
		t.Error("nothing is ready")
	}
}
