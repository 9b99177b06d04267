package storm

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/authzconf/authzconf/clusters/balancer"
	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// inExisting is a storm of 20 agents in the cluster of a kubeconfig.
func inExisting(t *testing.T, kubeconfig, name string) Options {
	t.Helper()
	cluster, err := existing.Open(kubeconfig, "", name)
	if err != nil {
		t.Fatal(err)
	}
	p := burst(
		profile.Comparison{Name: "denied", A: side("none", profile.GateOnServer), B: side("denied", profile.GateOnServer)},
		profile.Comparison{Name: "legacy", A: side("none", profile.GateOnServer), B: side("legacy-gate-on", profile.GateOnServer)},
	)
	p.Starts, p.Authorizer.Kind = 1, profile.RBAC
	p.Arrivals = profile.Arrivals{Kind: "constant", Every: time.Second}
	return Options{
		Profile: p, Release: newest(), Binaries: &local.Binaries{}, Seed: 1, Shards: 1, Say: func(s string) { t.Log(s) },
		Provider: server.Existing,
		Existing: server.Options{
			Cell:     verdicts.Cell{Name: "existing", Provider: server.Existing, Kubernetes: newest().Version, Gate: scenarios.GateOn},
			Release:  newest(),
			Existing: cluster,
		},
	}
}

// foreign is a control plane that no storm has started, and a client of its administrator.
func foreign(t *testing.T) (*local.ControlPlane, kubernetes.Interface) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	plane, err := local.Start(t.Context(), local.Options{Release: newest(), FeatureGates: map[string]bool{server.GateName: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plane.Stop() })
	client, err := kubernetes.NewForConfig(plane.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return plane, client
}

// nothingLeft expects that nothing of any storm is in a cluster, except namespaces that are being removed. For these it
// does what their controller would do.
func nothingLeft(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, all, marked := context.Background(), metav1.ListOptions{}, metav1.ListOptions{LabelSelector: existing.Label}
	nodes, err1 := client.CoreV1().Nodes().List(ctx, all)
	pods, err2 := client.CoreV1().Pods("").List(ctx, all)
	accounts, err3 := client.CoreV1().ServiceAccounts("").List(ctx, marked)
	roles, err4 := client.RbacV1().ClusterRoles().List(ctx, marked)
	bindings, err5 := client.RbacV1().ClusterRoleBindings().List(ctx, marked)
	spaces, err6 := client.CoreV1().Namespaces().List(ctx, all)
	jobs, err7 := client.BatchV1().Jobs("").List(ctx, all)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		t.Fatal(err)
	}
	if n := len(nodes.Items) + len(pods.Items) + len(accounts.Items) + len(roles.Items) + len(bindings.Items) + len(jobs.Items); n > 0 {
		t.Errorf(
			"left: %d nodes, %d pods, %d accounts, %d roles, %d bindings, %d jobs",
			len(nodes.Items),
			len(pods.Items),
			len(accounts.Items),
			len(roles.Items),
			len(bindings.Items),
			len(jobs.Items),
		)
	}
	for _, s := range spaces.Items {
		switch {
		case !strings.HasPrefix(s.Name, "storm-") && s.Name != shard.Namespace:
		case s.DeletionTimestamp == nil:
			t.Errorf("the namespace %s is left", s.Name)
		default:
			s.Spec.Finalizers = nil
			if _, err := client.CoreV1().Namespaces().Finalize(ctx, &s, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestExistingStorm checks that a storm in an existing cluster counts what one with servers of its own counts, keeps
// others out meanwhile, and leaves nothing.
func TestExistingStorm(t *testing.T) {
	plane, client := foreign(t)
	o := inExisting(t, plane.KubeconfigPath(), "first")
	o.Progress = func(at Progress) {
		if at.Block == 1 {
			_, err := Execute(t.Context(), inExisting(t, plane.KubeconfigPath(), "second"))
			refusedAs(t, err, "another storm is in the cluster: run first, process ", "nothing was created")
		}
	}
	o.Profile.Block = 2 * time.Second
	out, err := Execute(t.Context(), o)
	if err != nil || len(out.Problems) > 0 || len(out.Blocks) != 4 {
		t.Fatalf("%v, %+v", err, out)
	}
	for _, b := range out.Blocks {
		each := map[string]int64{"none": 1, "denied": 3, "legacy-gate-on": 2}[b.Variant]
		first := int64(0)
		if b.Variant == "legacy-gate-on" { // the other modes are asked first, once for the account and for requests that are open
			for _, a := range b.Attempts {
				if a.Decision != "allowed" {
					first += int64(a.Count)
				}
			}
		}
		if b.Planned != 40 || b.Sent != 40 || len(b.Wrong) > 0 || total(b) != each*40+first || first > 8 || len(b.Unreconciled) > 0 {
			t.Errorf(
				"%s: planned %d, sent %d, wrong %v, reviews %+v, attempts %+v, %v",
				b.Variant,
				b.Planned,
				b.Sent,
				b.Wrong,
				b.Reviews,
				b.Attempts,
				b.Unreconciled,
			)
		}
		if c := b.Cost[run.APIServer]; c.CPU <= 0 {
			t.Errorf("%s: the API server used %+v", b.Variant, c)
		}
	}
	if !slices.ContainsFunc(out.Notes, func(s string) bool { return strings.Contains(s, "outside the cluster") }) ||
		!slices.ContainsFunc(out.Notes, func(s string) bool { return strings.Contains(s, "are subtracted") }) {
		t.Errorf("notes %v", out.Notes)
	}
	nothingLeft(t, client)
}

// TestExistingServers checks that the metrics of all API servers behind one address are read if each is named, and that
// otherwise nothing is created.
func TestExistingServers(t *testing.T) {
	plane, client := foreign(t)
	second, err := local.Start(
		t.Context(),
		local.Options{Release: newest(), FeatureGates: map[string]bool{server.GateName: true}, Join: plane},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Stop() })
	one, two := plane.Admin(), second.Admin()
	front, err := balancer.Start(strings.TrimPrefix(one.Host, "https://"), strings.TrimPrefix(two.Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = front.Close() })
	kubeconfig := kubeconfigOf(t, &clientcmdapi.Cluster{Server: "https://" + front.Addr(), CertificateAuthorityData: one.CAData},
		&clientcmdapi.AuthInfo{ClientCertificateData: one.CertData, ClientKeyData: one.KeyData})
	for want, hosts := range map[string][]string{
		"the cluster has 2 API servers":              nil,
		"only 1 of them are read":                    {two.Host},
		"those of --api-servers " + two.Host:         {two.Host, two.Host},
		"those of --api-servers https://127.0.0.1:1": {"https://127.0.0.1:1"},
	} {
		o := inExisting(t, kubeconfig, "refused")
		o.APIServers = hosts
		_, err := Execute(t.Context(), o)
		refusedAs(t, err, want, "--api-servers", "nothing was created")
	}
	nothingLeft(t, client)
	o := inExisting(t, kubeconfig, "several")
	o.APIServers, o.Profile.Comparisons, o.Profile.Block = []string{one.Host, two.Host}, o.Profile.Comparisons[:1], 2*time.Second
	out, err := Execute(t.Context(), o)
	if err != nil || len(out.Problems) > 0 || len(out.Blocks) != 2 {
		t.Fatalf("%v, %+v", err, out)
	}
	for _, b := range out.Blocks {
		if each := map[string]int64{"none": 1, "denied": 3}[b.Variant]; b.Sent != 40 || len(b.Wrong) > 0 || total(b) != each*40 ||
			len(b.Unreconciled) > 0 ||
			b.Cost[run.APIServer].CPU <= 0 {
			t.Errorf(
				"%s: sent %d, wrong %v, reviews %+v, attempts %+v, %v, cost %v",
				b.Variant,
				b.Sent,
				b.Wrong,
				b.Reviews,
				b.Attempts,
				b.Unreconciled,
				b.Cost,
			)
		}
	}
	for _, admin := range []*rest.Config{one, two} {
		counted, err := scrapeUnshared(t.Context(), admin, authorizationAttempts)
		if s, there := counted.find(authorizationAttempts); err != nil || !there || s.value == 0 || s.value == 120 {
			t.Errorf("%s was asked nothing, or all: %+v %v", admin.Host, s, err)
		}
	}
	nothingLeft(t, client)
}

// TestExistingInterrupted checks that nothing remains, whenever the storm is ended.
func TestExistingInterrupted(t *testing.T) {
	plane, client := foreign(t)
	for phase, when := range map[string]func(o *Options, stop func()){
		"creating":  func(o *Options, stop func()) { o.Created = func(done, _ int64) { stopAfter(done, 50, stop) } },
		"tokens":    func(o *Options, stop func()) { o.Created = func(done, of int64) { stopAfter(done, of-2, stop) } },
		"measuring": func(o *Options, stop func()) { o.Say = func(string) { time.AfterFunc(600*time.Millisecond, stop) } },
		"block":     func(o *Options, stop func()) { o.Progress = func(Progress) { stop() } },
		// Nothing creates pods of the Job here, so the storm waits for them until it is ended.
		"pods": func(o *Options, stop func()) {
			o.Engine, o.Image, o.Shards = Pods, "shard", 2
			where := &discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
				AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
				Ports:       []discoveryv1.EndpointPort{{Port: new(int32(6443))}},
			}
			if _, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(t.Context(), where, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			go func() {
				defer stop()
				_ = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
					jobs, err := client.BatchV1().Jobs(shard.Namespace).List(ctx, metav1.ListOptions{})
					return err == nil && len(jobs.Items) > 0, nil
				})
			}()
		},
	} {
		t.Run(phase, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := inExisting(t, plane.KubeconfigPath(), "r-"+phase)
			o.Profile.Block = 2 * time.Second
			when(&o, cancel)
			if out, err := Execute(ctx, o); err == nil && !out.Interrupted ||
				err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("it was not interrupted: %v", err)
			}
			nothingLeft(t, client)
		})
	}
}

func stopAfter(done, n int64, stop func()) {
	if done >= n {
		stop()
	}
}

// TestExistingRefused checks that a storm says before it creates anything what it needs and does not find.
func TestExistingRefused(t *testing.T) {
	plane, client := foreign(t)
	kubeconfig := limited(t, plane, client)
	before := inventory(t, client)
	try := func(kubeconfig string, want ...string) {
		t.Helper()
		_, err := Execute(t.Context(), inExisting(t, kubeconfig, "r"))
		refusedAs(t, err, append(want, "nothing was created")...)
		if after := inventory(t, client); !slices.Equal(after, before) {
			t.Errorf("before %v, after %v", before, after)
		}
	}
	try(
		kubeconfig,
		"lacks permissions",
		"create nodes",
		"deletecollection pods",
		"create serviceaccounts/token",
		"create clusterroles.rbac.authorization.k8s.io",
		"get /metrics",
		"and escalate and bind clusterroles.rbac.authorization.k8s.io, or what the agents are granted: impersonate groups, ",
	)
	// This cluster is behind a proxy that has no metrics.
	proxied := behind(t, plane, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/metrics" {
			http.Error(w, "nothing here", http.StatusNotFound)
		}
		return r.URL.Path == "/metrics"
	})
	try(proxied, "metrics are what counts, and they cannot be read: ", "404 Not Found")
	// This namespace belongs to somebody who has nothing to do with the storm.
	mine := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shard.Namespace}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), mine, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before = inventory(t, client)
	try(plane.KubeconfigPath(), "a namespace authzconf-load in the cluster that no run has made")
	mine.Labels = map[string]string{existing.Label: "earlier", population.Label: "true"}
	if _, err := client.CoreV1().Namespaces().Update(t.Context(), mine, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	try(plane.KubeconfigPath(), "run earlier has left the namespace authzconf-load", "authzconf clean")
}

// TestExistingNode checks that an existing node of the same name is not used, and stays.
func TestExistingNode(t *testing.T) {
	plane, client := foreign(t)
	_, err := client.CoreV1().
		Nodes().
		Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "storm-000003"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Execute(t.Context(), inExisting(t, plane.KubeconfigPath(), "r"))
	if err == nil || !strings.Contains(err.Error(), `nodes "storm-000003" already exists`) {
		t.Errorf("got %v", err)
	}
	if err := client.CoreV1().Nodes().Delete(t.Context(), "storm-000003", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	nothingLeft(t, client)
}

// TestExistingGone checks that a server that does not come back ends the run, which says what remains and how it can be
// removed.
func TestExistingGone(t *testing.T) {
	plane, _ := foreign(t)
	o := inExisting(t, plane.KubeconfigPath(), "r")
	o.Progress = func(at Progress) {
		if at.Block == 2 {
			_ = plane.Stop()
		}
	}
	o.Profile.Block = 2 * time.Second
	out, err := Execute(t.Context(), o)
	if err != nil || len(out.Blocks) != 2 || len(out.Problems) < 2 {
		t.Fatalf("%v, %+v", err, out)
	}
	first, last := out.Problems[0].Text, out.Problems[len(out.Problems)-1].Text
	if !strings.Contains(first, "after the block: ") ||
		!strings.Contains(
			last,
			"what has the label authzconf.dev/run=r could not be removed from the cluster (authzconf clean --kubeconfig FILE does it when it can)",
		) {
		t.Errorf("problems %+v", out.Problems)
	}
}

// inventory returns the names of what a storm would create.
func inventory(t *testing.T, client kubernetes.Interface) (names []string) {
	t.Helper()
	spaces, err1 := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	nodes, err2 := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	roles, err3 := client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	for _, o := range spaces.Items {
		names = append(names, "namespace "+o.Name)
	}
	for _, o := range nodes.Items {
		names = append(names, "node "+o.Name)
	}
	for _, o := range roles.Items {
		names = append(names, "role "+o.Name)
	}
	return names
}

// limited returns the kubeconfig of an account that may only look.
func limited(t *testing.T, plane *local.ControlPlane, client kubernetes.Interface) string {
	t.Helper()
	ctx, none := t.Context(), metav1.CreateOptions{}
	_, err1 := client.CoreV1().
		ServiceAccounts("default").
		Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "looker"}}, none)
	_, err2 := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "looker"},
		Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"nodes", "namespaces", "pods"}},
		},
	}, none)
	_, err3 := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "looker"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "looker"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "looker"}},
	}, none)
	token, err4 := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "looker", &authenticationv1.TokenRequest{}, none)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // until RBAC knows
	admin := plane.Admin()
	return kubeconfigOf(
		t,
		&clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData},
		&clientcmdapi.AuthInfo{Token: token.Status.Token},
	)
}

func kubeconfigOf(t *testing.T, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"], c.AuthInfos["u"], c.Contexts["x"], c.CurrentContext = cluster, user, &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// behind returns the kubeconfig of a proxy in front of a control plane, through which everybody is its administrator.
// What handled answers does not reach the control plane.
func behind(t *testing.T, plane *local.ControlPlane, handled func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	transport, err := rest.TransportFor(plane.Admin())
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(plane.Admin().Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !handled(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	return kubeconfigOf(t, &clientcmdapi.Cluster{Server: srv.URL, CertificateAuthorityData: authority}, &clientcmdapi.AuthInfo{})
}
