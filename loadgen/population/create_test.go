package population

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/loadgen/profile"
)

// few is a profile with some of everything.
func few() *profile.Profile {
	p := profile.Defaults()
	p.Nodes, p.PodsPerNode, p.TokensPerAgent, p.Block = 4, 3, 2, 10*time.Second
	p.Arrivals, p.Mix.List, p.Mix.Get = profile.Arrivals{Kind: "burst"}, 1, 1
	off := profile.Side{Variant: "legacy-gate-off", Server: profile.GateOffServer}
	p.Comparisons = []profile.Comparison{
		{Name: "aa", A: off, B: off},
		{Name: "denied", A: off, B: profile.Side{Variant: "denied", Server: profile.GateOffServer}},
	}
	return &p
}

func plane(t *testing.T) *local.ControlPlane {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	c, err := local.Start(t.Context(), local.Options{
		Binaries: &local.Binaries{}, KubeAPIServerArgs: []string{"--disable-admission-plugins=NamespaceLifecycle"},
		FeatureGates: map[string]bool{"ConstrainedImpersonation": false},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// inventory is what exists of a population.
type inventory struct {
	nodes    []corev1.Node
	pods     []corev1.Pod
	accounts []corev1.ServiceAccount
	roles    int
}

func take(t *testing.T, c kubernetes.Interface) (i inventory) {
	t.Helper()
	marked := metav1.ListOptions{LabelSelector: Label}
	nodes, err1 := c.CoreV1().Nodes().List(t.Context(), marked)
	pods, err2 := c.CoreV1().Pods("").List(t.Context(), marked)
	accounts, err3 := c.CoreV1().ServiceAccounts("").List(t.Context(), marked)
	roles, err4 := c.RbacV1().ClusterRoles().List(t.Context(), marked)
	bindings, err5 := c.RbacV1().ClusterRoleBindings().List(t.Context(), marked)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	return inventory{nodes.Items, pods.Items, accounts.Items, len(roles.Items) + len(bindings.Items)}
}

// plain returns an object without what is unique in it. Two such objects differ only in their names.
func plain[T metav1.Object](o T) T {
	o.SetUID("")
	o.SetResourceVersion("")
	o.SetCreationTimestamp(metav1.Time{})
	for i, f := range o.GetManagedFields() {
		o.GetManagedFields()[i].Time = f.Time.DeepCopy()
		*o.GetManagedFields()[i].Time = metav1.Time{}
	}
	return o
}

// TestCreateAndDelete checks that the same population, with which agents can work, is created through the API and
// through etcd, that a second creation changes nothing, and that everything is found by its label.
func TestCreateAndDelete(t *testing.T) {
	c := plane(t)
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	storage, err := c.Storage()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = storage.Close() }()
	p := few()
	var seen []inventory
	for _, way := range []struct {
		name    string
		storage Storage
	}{{"API", nil}, {"etcd", storage}} {
		t.Run(way.name, func(t *testing.T) {
			var last, total int64
			made, err := Create(t.Context(), Place{Admin: c.Admin(), Storage: way.storage, Progress: func(done, of int64) {
				last = done
				total = of
			}}, p)
			if err != nil {
				t.Fatal(err)
			}
			if last != total {
				t.Errorf("%d of %d counted", last, total)
			}
			there := take(t, client)
			// There are 5 nodes with 3 pods, and 5 agents in each of 2 variants: those of a DaemonSet with one account,
			// and one that takes no part with its own. The other pods have one account.
			if len(there.nodes) != 5 || len(there.pods) != 5*3+2*5 || len(there.accounts) != 2*2+1 || there.roles == 0 {
				t.Fatalf(
					"%d nodes, %d pods, %d accounts, %d roles and bindings",
					len(there.nodes),
					len(there.pods),
					len(there.accounts),
					there.roles,
				)
			}
			seen = append(seen, there)
			if len(made.Tokens) != 2 || len(made.Tokens["denied"]) != 4 || len(made.Tokens["denied"][3]) != 2 {
				t.Errorf("tokens of %d variants", len(made.Tokens))
			}
			if err := made.Settle(t.Context(), c.Anonymous(), p, profile.GateOffServer); err != nil {
				t.Error(err)
			}
			if _, err := Create(t.Context(), Place{Admin: c.Admin(), Storage: way.storage}, p); err != nil {
				t.Errorf("a second time: %v", err)
			}
			if again := take(t, client); !reflect.DeepEqual(again, there) {
				t.Error("a second creation changed what was there")
			}
			for range 2 { // the second finds nothing
				if err := remove(t.Context(), c.Admin(), p); err != nil {
					t.Errorf("deleting: %v", err)
				}
			}
			if left := take(t, client); len(left.nodes)+len(left.pods)+len(left.accounts)+left.roles > 0 {
				t.Errorf("left: %+v", left)
			}
		})
	}
	if len(seen) == 2 {
		same(t, seen[0], seen[1])
	}
}

func same(t *testing.T, a, b inventory) {
	t.Helper()
	uids := map[string]bool{}
	for i := range a.pods {
		uids[string(b.pods[i].UID)] = true
		if x, y := plain(&a.pods[i]), plain(&b.pods[i]); !reflect.DeepEqual(x, y) {
			t.Errorf("pod by the API: %+v\nby etcd: %+v", x, y)
		}
	}
	for i := range a.nodes {
		uids[string(b.nodes[i].UID)] = true
		if x, y := plain(&a.nodes[i]), plain(&b.nodes[i]); !reflect.DeepEqual(x, y) {
			t.Errorf("node by the API: %+v\nby etcd: %+v", x, y)
		}
	}
	for i := range a.accounts {
		uids[string(b.accounts[i].UID)] = true
		if x, y := plain(&a.accounts[i]), plain(&b.accounts[i]); !reflect.DeepEqual(x, y) {
			t.Errorf("account by the API: %+v\nby etcd: %+v", x, y)
		}
	}
	if want := len(a.pods) + len(a.nodes) + len(a.accounts); len(uids) != want {
		t.Errorf("%d UIDs of %d objects", len(uids), want)
	}
}

// brokenStorage is a storage that fails.
type brokenStorage struct{ get, add error }

func (b brokenStorage) Get(context.Context, string) ([]byte, error) {
	return []byte("no object"), b.get
}
func (b brokenStorage) Add(context.Context, []local.Pair) error { return b.add }

func TestBrokenStorage(t *testing.T) {
	node := func(i int) object { return &corev1.Node{ObjectMeta: meta("", nodeName(i))} }
	b := &builder{client: fake.NewClientset(), Place: Place{Storage: brokenStorage{get: errors.New("gone")}}}
	if err := b.createAll(t.Context(), 3, "minions/", node); err == nil || err.Error() != "gone" {
		t.Errorf("a storage that cannot be read: %v", err)
	}
	b.Storage = brokenStorage{}
	if err := b.createAll(t.Context(), 3, "minions/", node); err == nil {
		t.Error("what is no object was copied")
	}
}

// TestShared checks that in a cluster that is somebody else's, existing objects are not taken for ours, and that nodes
// that kwok should keep are marked.
func TestShared(t *testing.T) {
	b := &builder{client: fake.NewClientset(), profile: few(), Place: Place{Shared: true, Kwok: true}}
	node := b.node(4).(*corev1.Node)
	err := b.create(t.Context(), node)
	if err != nil || node.Annotations[kwokKey] != "fake" ||
		node.Spec.Taints[0].Effect != corev1.TaintEffectNoSchedule {
		t.Fatalf("%v: %+v", err, node)
	}
	if err := b.create(t.Context(), node); err == nil {
		t.Error("a node that is there already was taken")
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("enough"))
	defer cancel()
	if err := b.awaitKwok(ctx); err == nil || err.Error() != "enough" {
		t.Errorf("a node that nobody has Ready: %v", err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err := b.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.awaitKwok(t.Context()); err != nil {
		t.Error(err)
	}
}

// remove removes everything that Create has created, by its label.
func remove(ctx context.Context, admin *rest.Config, p *profile.Profile) error {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	marked, now := metav1.ListOptions{LabelSelector: Label}, int64(0)
	at := metav1.DeleteOptions{GracePeriodSeconds: &now}
	errs := []error{
		client.RbacV1().ClusterRoleBindings().DeleteCollection(ctx, at, marked),
		client.RbacV1().ClusterRoles().DeleteCollection(ctx, at, marked),
	}
	spaces := []string{podSpace}
	for _, name := range p.Used() {
		spaces = append(spaces, "storm-"+name)
	}
	for _, ns := range spaces {
		errs = append(errs,
			client.CoreV1().Pods(ns).DeleteCollection(ctx, at, marked),
			client.CoreV1().ServiceAccounts(ns).DeleteCollection(ctx, at, marked),
			client.CoreV1().Namespaces().Delete(ctx, ns, at))
	}
	return errors.Join(append(errs, client.CoreV1().Nodes().DeleteCollection(ctx, at, marked))...)
}
