package subjects

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

var update = flag.Bool("update", false, "write testdata/clients.txt for the clients that are there")

// asSomebody is a kubeconfig with everything that impersonation can have.
const asSomebody = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
contexts: [{name: c, context: {cluster: c, user: c}}]
current-context: c
users:
- name: c
  user:
    token: secret
    as: alice@corp
    as-uid: uid-1
    as-groups: [dev, "ops, too"]
    as-user-extra: {example.com/Team: [red, blue], scopes: [a]}
`

// clients send one request for pods, each as a user would with a kubeconfig. An error of skip says that one is not there.
var clients = map[string]func(ctx context.Context, kubeconfig string) (*exec.Cmd, error){
	"client-go": nil,
	"kubectl": func(ctx context.Context, kubeconfig string) (*exec.Cmd, error) {
		return kubectl(ctx, kubeconfig, "kubectl")
	},
	"kubectl of authzconf": func(ctx context.Context, kubeconfig string) (*exec.Cmd, error) {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		built, _ := filepath.Glob(filepath.Join(cache, "authzconf", "bin", "kubectl-*[0-9a-f]"))
		built = slices.DeleteFunc(built, func(name string) bool { return strings.HasSuffix(name, ".lock") })
		if len(built) == 0 {
			return nil, fmt.Errorf("authzconf has built none: authzconf run --focus '^kubernetes/kubectl/'")
		}
		return kubectl(ctx, kubeconfig, built[0])
	},
	"@kubernetes/client-node": func(ctx context.Context, kubeconfig string) (*exec.Cmd, error) {
		dir := cmp.Or(os.Getenv("CLIENT_NODE"), ".")
		if _, err := os.Stat(filepath.Join(dir, "node_modules", "@kubernetes", "client-node")); err != nil {
			return nil, fmt.Errorf("it is not below CLIENT_NODE: npm install @kubernetes/client-node@1.4.0 there")
		}
		cmd := exec.CommandContext(ctx, "node", "--input-type=module", "-e", `import * as k8s from '@kubernetes/client-node';
const config = new k8s.KubeConfig(); config.loadFromFile(process.env.KUBECONFIG);
await config.makeApiClient(k8s.CoreV1Api).listNamespacedPod({namespace: 'team'});`)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "KUBECONFIG="+kubeconfig)
		return cmd, nil
	},
	"Python's kubernetes": func(ctx context.Context, kubeconfig string) (*exec.Cmd, error) {
		pythons := []string{"python3", "/usr/bin/python3"} // Debian's, where another one comes first in PATH
		found := slices.IndexFunc(pythons, func(name string) bool { return exec.CommandContext(ctx, name, "-c", "import kubernetes").Run() == nil })
		if found < 0 {
			return nil, fmt.Errorf("no Python has it: apt-get install python3-kubernetes")
		}
		python := pythons[found]
		cmd := exec.CommandContext(
			ctx,
			python,
			"-c",
			"from kubernetes import client, config\nconfig.load_kube_config()\nclient.CoreV1Api().list_namespaced_pod('team')",
		)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		return cmd, nil
	},
}

func kubectl(ctx context.Context, kubeconfig, program string) (*exec.Cmd, error) {
	if _, err := exec.LookPath(program); err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, program, "--kubeconfig", kubeconfig, "get", "--raw", "/api/v1/namespaces/team/pods"), nil
}

// TestClients shows what arrives of a kubeconfig that impersonates, by client. testdata/clients.txt has it.
func TestClients(t *testing.T) {
	golden := filepath.Join("testdata", "clients.txt")
	data, err := os.ReadFile(golden)
	if err != nil && !*update {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# (.+)\n((?:.+\n)*)`).FindAllStringSubmatch(string(data), -1) {
		want[m[1]] = m[2]
	}
	for _, name := range slices.Sorted(maps.Keys(clients)) {
		t.Run(name, func(t *testing.T) {
			got := arrives(t, name)
			if *update {
				want[name] = got
			}
			if got != want[name] {
				t.Errorf("what arrives is\n%sand in %s it is\n%s", got, golden, want[name])
			}
		})
	}
	if !*update {
		return
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(want)) {
		fmt.Fprintf(&out, "# %s\n%s\n", name, want[name])
	}
	if err := os.WriteFile(golden, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// arrives are the impersonation headers of a client's request for pods, with their values in order.
func arrives(t *testing.T, name string) string {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/pods") {
			for _, header := range slices.Sorted(maps.Keys(r.Header)) {
				if strings.HasPrefix(header, "Impersonate-") {
					seen = append(seen, fmt.Sprintf("%s: %q\n", header, r.Header[header]))
				}
			}
			seen = append(seen, fmt.Sprintf("token: %t\n", r.Header.Get("Authorization") == "Bearer secret"))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"PodList","metadata":{},"items":[]}`))
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, asSomebody, server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	if clients[name] == nil {
		listByClientGo(t, kubeconfig)
	} else {
		cmd, err := clients[name](t.Context(), kubeconfig)
		if err != nil {
			t.Skipf("%s: %v", name, err)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return strings.Join(seen, "")
}

func listByClientGo(t *testing.T, kubeconfig string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err == nil {
		_, err = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).
			Namespace("team").
			List(t.Context(), metav1.ListOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
