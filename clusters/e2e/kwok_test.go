package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/e2e-framework/support/kwok"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// kwokVersion is the release of kwokctl that is built if there is none in PATH.
const kwokVersion = "v0.8.0"

// kwokctl returns the path of a kwokctl: the one in PATH, or one that is built once into the user's cache.
func kwokctl(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("kwokctl"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip("there is no folder to build kwokctl in: ", err)
	}
	dir := filepath.Join(cache, "authzconf", "kwok-"+kwokVersion)
	path := filepath.Join(dir, "kwokctl")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	build := exec.CommandContext(t.Context(), "go", "install", "sigs.k8s.io/kwok/cmd/kwokctl@"+kwokVersion)
	build.Dir, build.Env = t.TempDir(), append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-trimpath")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("kwokctl cannot be built: %v\n%s", err, out)
	}
	return path
}

// TestKwok runs scenarios on a cluster that e2e-framework's support for kwok creates from our etcd and kube-apiserver.
// It shows that anything with such support is a provider without any code here.
func TestKwok(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	path := kwokctl(t)
	t.Setenv("KWOK_WORKDIR", t.TempDir())
	release, binaries := local.Newest(), &local.Binaries{}
	etcd, err := binaries.Etcd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kubeAPIServer, err := binaries.KubeAPIServer(t.Context(), release)
	if err != nil {
		t.Fatal(err)
	}
	provider := FromProvider("kwok", kwok.NewProvider().WithPath(path),
		"--runtime=binary", "--etcd-binary="+etcd, "--kube-apiserver-binary="+kubeAPIServer,
		"--disable=kube-controller-manager,kube-scheduler,kwok-controller", "--kubeconfig=",
		"--secure-port", "--kube-authorization", "--kube-feature-gates=ConstrainedImpersonation=true")
	target, err := server.Start(t.Context(), server.Options{
		Provider: provider, Release: release,
		Cell: verdicts.Cell{Name: "kwok", Provider: "kwok", Kubernetes: release.Version, Gate: scenarios.GateOn},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := target.Stop(); err != nil {
			t.Error(err)
		}
	})
	if m := target.Witness.Mismatches; len(m) > 0 {
		t.Errorf("the cluster is not what was asked for: %q", m)
	}
	runScenarios(t, target, "kep-5284/requests/")
}

// runScenarios replays the scenarios of a folder that are for such a cluster, and expects them to pass.
func runScenarios(t *testing.T, target *server.Server, folder string) {
	t.Helper()
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	replayer, err := replay.New(target)
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, s := range set.All() {
		if selected, _, _ := s.SelectedThere(target.Facts); !selected || !strings.HasPrefix(s.ID, folder) {
			continue
		}
		evidence := replayer.Replay(t.Context(), s, scenarios.Suffix(1, "kwok", s.ID))
		if r := verdicts.Judge(s, evidence); r.Verdict != verdicts.Passed {
			t.Errorf("%s: %s: %s", s.ID, r.Verdict, r.Reason)
			continue
		}
		passed++
	}
	if passed < 5 {
		t.Errorf("only %d scenarios of %s passed", passed, folder)
	}
	t.Logf("%d scenarios of %s passed", passed, folder)
}
