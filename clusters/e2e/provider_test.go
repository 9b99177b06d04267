package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/e2e-framework/pkg/env"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/envfuncs"
	"sigs.k8s.io/e2e-framework/support"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/local"
)

// fake is a cluster whose kubeconfig is used, and nothing else of it.
type fake struct{ stopped int }

func (f *fake) Admin() *rest.Config { return &rest.Config{Host: "https://127.0.0.1:1"} }

func (f *fake) Stop() error {
	f.stopped++
	return nil
}

func TestCluster(t *testing.T) {
	var wanted ClusterSpec
	running := &fake{}
	c := New(func(_ context.Context, w ClusterSpec) (Running, error) {
		wanted = w
		return running, nil
	})
	if c.KubernetesRestConfig() != nil || c.GetKubeconfig() != "" {
		t.Error("it can be reached before it runs")
	}
	p := c.SetDefaults().
		WithName("mine").
		WithVersion("1.37").
		WithPath("/x").
		WithOpts(func(p support.E2EClusterProvider) { p.WithName("other") })
	file, err := p.CreateWithConfig(t.Context(), "")
	if want := (ClusterSpec{Name: "other", Version: "1.37", Path: "/x"}); err != nil || wanted != want {
		t.Errorf("%v, %+v", err, wanted)
	}
	again, err := p.Create(t.Context())
	if err != nil || again != file || p.GetKubeconfig() != file || p.GetKubectlContext() != "other" {
		t.Errorf("a second Create: %v, %s and %s", err, file, again)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig: %v, %v", err, info)
	}
	if err := p.ExportLogs(t.Context(), t.TempDir()); err == nil {
		t.Error("logs of a cluster without logs were exported")
	}
	for range 2 {
		if err := p.Destroy(t.Context()); err != nil || running.stopped != 1 {
			t.Errorf("%v, stopped %d times", err, running.stopped)
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the kubeconfig is still there: %v", err)
	}
	for name, create := range map[string]func() (string, error){
		"arguments":     func() (string, error) { return p.Create(t.Context(), "--x") },
		"configuration": func() (string, error) { return p.CreateWithConfig(t.Context(), "kind.yaml") },
		"a kubeconfig":  func() (string, error) { return p.GenerateKubeconfig() },
	} {
		if _, err := create(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestEnvironment checks that e2e-framework creates and destroys a control plane of ours like any other cluster.
func TestEnvironment(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	c := New(func(ctx context.Context, _ ClusterSpec) (Running, error) {
		return local.Provider{}.Create(ctx, clusters.Request{Version: local.Newest().Version})
	})
	cfg := envconf.New()
	ctx, err := envfuncs.CreateCluster(c, "mine")(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Destroy(t.Context()) })
	logs := t.TempDir()
	for _, step := range []env.Func{envfuncs.CreateNamespace("made"), envfuncs.ExportClusterLogs("mine", logs), envfuncs.DestroyCluster("mine")} {
		if ctx, err = step(ctx, cfg); err != nil {
			t.Error(err)
		}
	}
	if log, err := os.ReadFile(filepath.Join(logs, "kube-apiserver.log")); err != nil || len(log) == 0 {
		t.Errorf("the log has %d bytes: %v", len(log), err)
	}
}
