package local

import (
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// whoAmI asks the server who a client is.
func whoAmI(t *testing.T, config *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	review, err := clientFor(t, config).AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

func TestStartAndStop(t *testing.T) {
	before := runtime.NumGoroutine()
	c := startPlane(t, Options{})
	t.Logf("ready in %s, resident: %s", c.ReadyIn(), residentMemory(c.PIDs()))
	config, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	if user := whoAmI(t, config); user.Username != adminName || !slices.Contains(user.Groups, "system:masters") {
		t.Errorf("the kubeconfig's user is %v", user)
	}
	if _, err := clientFor(t, c.Anonymous()).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("anonymous list: %v, want forbidden", err)
	}
	for _, name := range []string{kubeconfigFile, "serving.key", "front-proxy.key", "service-account.key"} {
		if info, err := os.Stat(c.Dir() + "/" + name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v, want mode 0600", name, info, err)
		}
	}
	begin := time.Now()
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped in %s", time.Since(begin).Round(time.Millisecond))
	if exists(c.Dir()) || processesIn(c.Dir()) != nil || c.PIDs() != (PIDs{}) {
		t.Error("something is left after Stop")
	}
	if err := c.Stop(); err != nil {
		t.Errorf("the second Stop: %v", err)
	}
	if err := c.Err(); err != nil {
		t.Errorf("Err after Stop: %v", err)
	}
	if err := c.RestartAPIServer(t.Context(), nil); !errors.Is(err, ErrStopped) {
		t.Errorf("restart after Stop: %v", err)
	}
	if left := ownGoroutines(); left != "" {
		t.Errorf("goroutines left (%d before):\n%s", before, left)
	}
}

// ownGoroutines returns the stacks of goroutines that this package or os/exec started.
func ownGoroutines() string {
	var out []string
	// A goroutine needs a moment to end after it has signalled its end.
	for range 100 {
		buffer := make([]byte, 1<<20)
		out = out[:0]
		for _, stack := range strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
			if strings.Contains(stack, "created by github.com/authzconf/authzconf/clusters/local") ||
				strings.Contains(stack, "created by os/exec") {
				out = append(out, stack)
			}
		}
		if len(out) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return strings.Join(out, "\n\n")
}

func residentMemory(pids PIDs) string {
	var out []string
	for name, pid := range map[string]int{"etcd": pids.Etcd, "kube-apiserver": pids.KubeAPIServer} {
		status, _ := os.ReadFile("/proc/" + jsonOf(pid) + "/status")
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "VmRSS") {
				out = append(out, name+" "+strings.Join(strings.Fields(line)[1:], " "))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func jsonOf(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

func TestTwoAtOnce(t *testing.T) {
	var planes [2]*ControlPlane
	t.Run("start", func(t *testing.T) {
		needPrograms(t)
		var wg sync.WaitGroup
		var errs [2]error
		for i := range planes {
			wg.Go(func() { planes[i], errs[i] = Start(t.Context(), Options{Binaries: testBinaries}) })
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
	})
	for _, c := range planes {
		if c != nil {
			defer func() { _ = c.Stop() }()
		}
	}
	if planes[0] == nil || planes[1] == nil {
		t.Skip("not both started")
	}
	if planes[0].Port() == planes[1].Port() || planes[0].Dir() == planes[1].Dir() {
		t.Fatal("they share a port or a folder")
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "only-here"}}
	if _, err := clientFor(t, planes[0].Admin()).CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := clientFor(t, planes[1].Admin()).CoreV1().Namespaces().Get(t.Context(), "only-here", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the other control plane's namespace: %v, want not found", err)
	}
	// The keys of one mean nothing to the other.
	stranger := planes[0].Admin()
	stranger.Host, stranger.CAData = planes[1].Admin().Host, planes[1].Admin().CAData
	if _, err := clientFor(t, stranger).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a stranger's certificate: %v, want unauthorized", err)
	}
}

func TestRestartAPIServer(t *testing.T) {
	c := startPlane(t, Options{FeatureGates: map[string]bool{"ConstrainedImpersonation": true}})
	port, pids, admin := c.Port(), c.PIDs(), clientFor(t, c.Admin())
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "survivor"}, Data: map[string]string{"k": "v"}}
	if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	err := c.RestartAPIServer(t.Context(), func(o *Options) { o.FeatureGates["ConstrainedImpersonation"] = false })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("restarted in %s, ready in %s", time.Since(begin), c.ReadyIn())
	if c.Port() != port || c.PIDs().Etcd != pids.Etcd || c.PIDs().KubeAPIServer == pids.KubeAPIServer {
		t.Errorf("port %d → %d, processes %v → %v", port, c.Port(), pids, c.PIDs())
	}
	if _, err := admin.CoreV1().ConfigMaps("default").Get(t.Context(), "survivor", metav1.GetOptions{}); err != nil {
		t.Errorf("after the restart: %v", err)
	}

	// A refused restart leaves the options unchanged, and can be repeated with better ones.
	err = c.RestartAPIServer(t.Context(), func(o *Options) { o.FeatureGates["NoSuchGate"] = true })
	wantUsageError(t, err, "unrecognized feature gate: NoSuchGate")
	if gates := c.Options().FeatureGates; len(gates) != 1 || gates["ConstrainedImpersonation"] {
		t.Errorf("gates after the refused restart: %v", gates)
	}
	if c.PIDs().KubeAPIServer != 0 || c.Err() != nil {
		t.Errorf("after the refused restart: %v, %v", c.PIDs(), c.Err())
	}
	newPort, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	err = c.RestartAPIServer(t.Context(), func(o *Options) { o.EmulatedVersion, o.FeatureGates, o.Port = "1.36", nil, newPort })
	if err != nil {
		t.Fatal(err)
	}
	if c.Port() != newPort {
		t.Errorf("port %d, want %d", c.Port(), newPort)
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientFor(t, config).CoreV1().ConfigMaps("default").Get(t.Context(), "survivor", metav1.GetOptions{}); err != nil {
		t.Errorf("after the second restart: %v", err)
	}
}

// TestUpgradesAndDowngrades starts every release that has been built in turn on one etcd: upwards, and one step down
// again.
func TestUpgradesAndDowngrades(t *testing.T) {
	needPrograms(t)
	noPrograms(t)
	var built []Release
	for _, r := range Releases() {
		if _, program, err := testBinaries.place(t.Context(), kubeAPIServer(r)); err == nil && isFile(program.Path) {
			built = append(built, r)
		} else {
			t.Logf("%s has not been built (%v)", r, err)
		}
	}
	if len(built) < 2 {
		t.Skip("fewer than two releases have been built")
	}
	c := startPlane(t, Options{Release: built[0]})
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "survivor"}}
	if _, err := clientFor(t, c.Admin()).CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, r := range append(built, built[len(built)-2]) {
		if i > 0 {
			if err := c.RestartAPIServer(t.Context(), func(o *Options) { o.Release = r }); err != nil {
				t.Fatal(err)
			}
		}
		admin := clientFor(t, c.Admin())
		version, err := admin.Discovery().ServerVersion()
		if err != nil || version.GitVersion != "v"+r.Version || version.Major+"."+version.Minor != r.Minor {
			t.Errorf("%s says it is %+v, %v", r, version, err)
		}
		if _, err := admin.CoreV1().ConfigMaps("default").Get(t.Context(), "survivor", metav1.GetOptions{}); err != nil {
			t.Errorf("%s: %v", r, err)
		}
		t.Logf("%s ready in %s", r, c.ReadyIn())
	}
}
