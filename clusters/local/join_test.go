package local

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"
)

func release(t *testing.T, minor string) Release {
	t.Helper()
	r, err := ParseRelease(minor)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// write creates an object at once, without a second attempt.
func write(t *testing.T, c *ControlPlane, name string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := clientFor(t, c.Admin()).CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("writing %s: %v", name, err)
	}
}

func read(t *testing.T, c *ControlPlane, name string) {
	t.Helper()
	_, err := clientFor(t, c.Admin()).CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Errorf("reading %s: %v", name, err)
	}
}

// as is a client that the front proxy of one control plane vouches for, at another.
func as(t *testing.T, proxy, server *ControlPlane, user string) kubernetes.Interface {
	t.Helper()
	config := proxy.FrontProxy()
	config.Host = server.Admin().Host
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(user, "", nil, nil, rt)
	})
	return clientFor(t, config)
}

func wantWhole(t *testing.T, planes ...*ControlPlane) {
	t.Helper()
	for _, c := range planes {
		select {
		case <-c.Done():
			t.Errorf("Done is closed, Err is %v", c.Err())
		default:
			if err := c.Err(); err != nil {
				t.Error(err)
			}
		}
	}
}

func timed(t *testing.T, what string, f func() error) {
	t.Helper()
	begin := time.Now()
	if err := f(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	t.Logf("%s: %s", what, time.Since(begin).Round(time.Millisecond))
}

// TestJoin has two API servers of two releases on one etcd, through everything that may happen to them.
func TestJoin(t *testing.T) {
	sink := &events{}
	a := startPlane(t, Options{Release: release(t, "1.36")})
	b := startPlane(t, Options{
		Release: release(t, "1.37"), Join: a, AuditPolicy: []byte(auditAll), AuditSink: sink,
		FeatureGates: map[string]bool{"ConstrainedImpersonation": false},
	})
	t.Logf("the joined one was ready in %s", b.ReadyIn())
	if a.Port() == b.Port() || a.Dir() == b.Dir() || b.PIDs().Etcd != 0 || b.Programs().Etcd != a.Programs().Etcd {
		t.Errorf("ports %d and %d, folders %s and %s, %+v", a.Port(), b.Port(), a.Dir(), b.Dir(), b.PIDs())
	}
	for c, minor := range map[*ControlPlane]string{a: "1.36", b: "1.37"} {
		version, err := clientFor(t, c.Admin()).Discovery().ServerVersion()
		if err != nil || version.GitVersion != "v"+release(t, minor).Version {
			t.Errorf("%s says it is %v, %v", minor, version, err)
		}
	}
	write(t, a, "from-a")
	read(t, b, "from-a")
	write(t, b, "from-b")
	read(t, a, "from-b")
	t.Run("credentials", func(t *testing.T) { testSharedCredentials(t, a, b, sink) })
	t.Run("kill and restart", func(t *testing.T) { testKillAndRestart(t, a, b) })
	t.Run("restart etcd", func(t *testing.T) { testRestartEtcd(t, a, b) })
	t.Run("leave", func(t *testing.T) {
		etcd := a.PIDs().Etcd
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
		if exists(b.Dir()) || b.Err() != nil || len(a.others()) != 0 {
			t.Errorf("after the joined one's Stop: folder is there %t, %v, still joined %d", exists(b.Dir()), b.Err(), len(a.others()))
		}
		if err := b.RestartEtcd(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("etcd restarted by one that was stopped: %v", err)
		}
		write(t, a, "alone")
		if a.PIDs().Etcd != etcd {
			t.Error("etcd is not the same any more")
		}
		wantWhole(t, a)
	})
}

// testSharedCredentials checks that credentials for one API server are valid for the other, and that each writes its
// own audit log.
func testSharedCredentials(t *testing.T, a, b *ControlPlane, sink *events) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "both"}}
	if _, err := clientFor(t, a.Admin()).CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[*ControlPlane]*ControlPlane{a: b, b: a} {
		token, err := clientFor(t, from.Admin()).CoreV1().ServiceAccounts("default").
			CreateToken(t.Context(), "both", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		config := to.Anonymous()
		config.BearerToken = token.Status.Token
		if user := whoAmI(t, config); user.Username != "system:serviceaccount:default:both" {
			t.Errorf("the token of %s is for %s at %s", from.Options().Release, user.Username, to.Options().Release)
		}
		admin := from.Admin()
		admin.Host = to.Admin().Host
		if user := whoAmI(t, admin); user.Username != adminName {
			t.Errorf("the certificate is for %s", user.Username)
		}
	}
	for user, server := range map[string]*ControlPlane{"at-a": a, "at-b": b} {
		other := map[*ControlPlane]*ControlPlane{a: b, b: a}[server]
		_, _ = as(t, other, server, user).Discovery().ServerVersion()
	}
	eventually(t, 5*time.Second, "the event arrives", func() bool { return sink.count("at-b") == 1 })
	if n := sink.count("at-a"); n != 0 {
		t.Errorf("%d events of the other API server", n)
	}
}

func testKillAndRestart(t *testing.T, a, b *ControlPlane) {
	for _, pair := range []struct {
		killed, other *ControlPlane
		name          string
	}{{b, a, "b"}, {a, b, "a"}} {
		port, pids, other := pair.killed.Port(), pair.killed.PIDs(), pair.other.PIDs()
		timed(t, pair.name+" killed", pair.killed.KillAPIServer)
		if err := pair.killed.KillAPIServer(); err != nil {
			t.Errorf("a second kill: %v", err)
		}
		if alive(pids.KubeAPIServer) || pair.killed.PIDs().KubeAPIServer != 0 {
			t.Error("it is alive")
		}
		write(t, pair.other, "while-"+pair.name+"-is-away")
		timed(t, pair.name+" up again", func() error { return pair.killed.RestartAPIServer(t.Context(), nil) })
		read(t, pair.killed, "while-"+pair.name+"-is-away")
		now := pair.killed.PIDs()
		if pair.killed.Port() != port || now.Etcd != pids.Etcd || now.KubeAPIServer == pids.KubeAPIServer || pair.other.PIDs() != other {
			t.Errorf("port %d → %d, processes %v → %v, the other's %v → %v", port, pair.killed.Port(), pids, now, other, pair.other.PIDs())
		}
		wantWhole(t, a, b)
	}
	timed(t, "a restarted in order, as 1.37", func() error {
		return a.RestartAPIServer(t.Context(), func(o *Options) {
			o.Release = release(t, "1.37")
			o.EtcdPath = "no-such-program"
			o.Join = b
		})
	})
	t.Logf("of which until ready: %s", a.ReadyIn())
	if o := a.Options(); o.Join != nil || o.EtcdPath != "" {
		t.Errorf("what cannot be changed was changed: %+v", o)
	}
}

func testRestartEtcd(t *testing.T, a, b *ControlPlane) {
	wantPermission(t, a, b, "before")
	for name, restart := range map[string]func(context.Context) error{
		"killed": a.RestartEtcd, "killed, by the joined one": b.RestartEtcd,
	} {
		before, other := a.PIDs(), b.PIDs()
		timed(t, "etcd "+name, func() error { return restart(t.Context()) })
		if a.PIDs().Etcd == before.Etcd || a.PIDs().KubeAPIServer != before.KubeAPIServer || b.PIDs() != other {
			t.Errorf("processes %v → %v and %v → %v", before, a.PIDs(), other, b.PIDs())
		}
		id := jsonOf(a.PIDs().Etcd)
		write(t, a, "a-after-"+id)
		write(t, b, "b-after-"+id)
		read(t, a, "b-after-"+id)
		read(t, b, "from-a")
		wantWhole(t, a, b)
		wantPermission(t, a, b, "user-"+id)
	}
	// One that is killed is not waited for, and starts with the new etcd.
	if err := a.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	timed(t, "etcd killed while a is away", func() error { return b.RestartEtcd(t.Context()) })
	write(t, b, "without-a")
	if a.PIDs().KubeAPIServer != 0 {
		t.Error("a is back")
	}
	timed(t, "a up again", func() error { return a.RestartAPIServer(t.Context(), nil) })
	read(t, a, "without-a")
	wantWhole(t, a, b)
}

// wantPermission grants a permission at one API server, and waits until both know it: their caches follow etcd.
func wantPermission(t *testing.T, a, b *ControlPlane, user string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	if _, err := clientFor(t, a.Admin()).RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for _, server := range []*ControlPlane{a, b} {
		client := as(t, server, server, user)
		eventually(t, 30*time.Second, "the permission is known", func() bool {
			_, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "from-a", metav1.GetOptions{})
			return err == nil
		})
	}
	t.Logf("a permission known to both: %s", time.Since(begin).Round(time.Millisecond))
}

func wantDone(t *testing.T, c *ControlPlane) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("Done is not closed")
	}
}

// TestJoinedProcessesDie checks that only its own control plane reports the death of an API server, and that both
// report the death of etcd.
func TestJoinedProcessesDie(t *testing.T) {
	a := startPlane(t, Options{})
	b := startPlane(t, Options{Join: a})
	if err := syscall.Kill(a.PIDs().KubeAPIServer, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantDone(t, a)
	if err := a.KillAPIServer(); err == nil {
		t.Error("an API server that has died by itself can be killed on purpose")
	}
	write(t, b, "goes-on")
	wantWhole(t, b)
	if err := syscall.Kill(a.PIDs().Etcd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantDone(t, b)
	if failed := wantProcessError(t, b.Err(), "ended by itself (signal: killed)"); failed.Process != "etcd" {
		t.Errorf("%+v", failed)
	}
	if failed := wantProcessError(t, a.Err()); failed.Process != "kube-apiserver" {
		t.Errorf("the first failure is forgotten: %+v", failed)
	}
	if err := b.RestartAPIServer(t.Context(), nil); err == nil {
		t.Error("it was restarted without etcd")
	}
}

// TestJoinOneThatStops checks that a control plane which joins another reports that the other one is gone.
func TestJoinOneThatStops(t *testing.T) {
	a := startPlane(t, Options{})
	b := startPlane(t, Options{Join: a})
	c := startPlane(t, Options{Join: b})
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	wantDone(t, b)
	if err := b.Err(); !errors.Is(err, ErrStopped) {
		t.Errorf("the other one was stopped first: %v", err)
	}
	if err := c.Err(); err != nil {
		t.Errorf("one that was stopped before: %v", err)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(b.Dir()), runPrefix+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := startFails(t.Context(), t, Options{Join: a}); !errors.Is(err, ErrStopped) {
		t.Errorf("joining one that was stopped: %v", err)
	}
}
