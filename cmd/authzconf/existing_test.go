package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/local"
)

// TestExisting runs scenarios on a control plane as if it were somebody else's,
// and finds nothing of them afterwards; then it is made to look like production.
func TestExisting(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	plane, err := local.Start(t.Context(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plane.Stop() })
	command := func(args ...string) (code int, out string) {
		var b bytes.Buffer
		code = run(args, &b, &b)
		return code, b.String()
	}
	on := []string{"run", "--provider", "existing", "--kubeconfig", plane.KubeconfigPath()}
	folder := filepath.Join(t.TempDir(), "report")
	code, out := command(append(on, "--focus", "^kep-5284/user-info/|/manifests/", "--report-dir", folder)...)
	if code != exitPassed || !strings.Contains(out, "service accounts") {
		t.Errorf("code %d: %s", code, out)
	}
	if code, out := command("verify", folder); code != exitPassed {
		t.Errorf("verify: code %d: %s", code, out)
	}
	left(t, plane)
	client, err := kubernetes.NewForConfig(plane.Admin())
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.ObjectMeta = metav1.ObjectMeta{Name: "shop-production"}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if code, out := command(on...); code != exitUsage || !strings.Contains(out, "shop-production") {
		t.Errorf("a cluster that looks like production: code %d: %s", code, out)
	}
	for _, args := range [][]string{
		{"run", "--provider", "existing"}, append(on, "--gate", "on"), {"run", "--kubeconfig", "x"},
		{"run", "--provider", "existing", "--kubeconfig", os.DevNull},
	} {
		if code, out := command(args...); code != exitUsage {
			t.Errorf("%v: code %d: %s", args, code, out)
		}
	}
}

// left looks for anything with the label. Nothing ends the namespaces of a control
// plane without controllers: being deleted has to do there.
func left(t *testing.T, plane *local.ControlPlane) {
	t.Helper()
	cluster, err := existing.Open(plane.KubeconfigPath(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	found, err := cluster.Clean(context.Background(), "", true)
	if err != nil || len(found) > 0 {
		t.Errorf("left over: %v %v", found, err)
	}
	client, err := kubernetes.NewForConfig(plane.Admin())
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := client.CoreV1().ServiceAccounts("").List(t.Context(), metav1.ListOptions{LabelSelector: existing.Label})
	if err != nil || len(accounts.Items) > 0 {
		t.Errorf("service accounts are left over: %v %v", accounts.Items, err)
	}
	roles, err := client.RbacV1().Roles("").List(t.Context(), metav1.ListOptions{LabelSelector: existing.Label})
	if err != nil || len(roles.Items) > 0 {
		t.Errorf("roles are left over: %v %v", roles.Items, err)
	}
}
