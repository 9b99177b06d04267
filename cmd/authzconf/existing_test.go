package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/scenarios"
)

// TestExisting runs scenarios on a control plane as if it were somebody else's, and checks that nothing of them
// remains. Then the control plane is made to look like production.
func TestExisting(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	plane, err := local.Start(t.Context(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plane.Stop() })
	on := []string{"run", "--provider", "existing", "--kubeconfig", plane.KubeconfigPath()}
	folder := filepath.Join(t.TempDir(), "report")
	code, out := authzconf(append(on, "--focus", "^kep-5284/user-info/|/manifests/", "--report-dir", folder)...)
	if code != exitPassed || !strings.Contains(out, "service accounts") {
		t.Errorf("code %d: %s", code, out)
	}
	if code, out := authzconf("verify", folder); code != exitPassed {
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
	if code, out := authzconf(on...); code != exitUsage || !strings.Contains(out, "shop-production") {
		t.Errorf("a cluster that looks like production: code %d: %s", code, out)
	}
	for _, args := range [][]string{
		{"run", "--provider", "existing"}, append(on, "--gate", "on"), {"run", "--kubeconfig", "x"},
		{"run", "--provider", "existing", "--kubeconfig", os.DevNull},
	} {
		if code, out := authzconf(args...); code != exitUsage {
			t.Errorf("%v: code %d: %s", args, code, out)
		}
	}
}

// authzconf runs authzconf.
func authzconf(args ...string) (code int, out string) {
	var b bytes.Buffer
	code = run(args, &b, &b)
	return code, b.String()
}

// adviseLog has a requestor who lists pods as alice, and deletes a config map as an account. The config map must not be
// deleted again.
const adviseLog = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"a1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/default/pods","verb":"list","user":{"username":"bot"},"impersonatedUser":{"username":"alice","groups":["dev","system:authenticated"]},"responseStatus":{"code":200}}
{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"a2","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/default/configmaps/kube-root-ca.crt","verb":"delete","user":{"username":"bot"},"impersonatedUser":{"username":"system:serviceaccount:default:default","groups":["system:serviceaccounts","system:serviceaccounts:default","system:authenticated"]},"responseStatus":{"code":200}}
`

// TestExistingAdvise compares a cluster that somebody else made with advice: before its RBAC exists, with it, and with
// a legacy grant in addition. Nothing in the log may be done again.
func TestExistingAdvise(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	plane, client, log := foreign(t)
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt", Namespace: "default"}}
	_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), kept, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	// It takes a moment until a grant is in force.
	eventually := func(want int, texts ...string) {
		t.Helper()
		var out string
		for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(200 * time.Millisecond) {
			var code int
			code, out = authzconf("advise", "--verify", "--kubeconfig", plane.KubeconfigPath(), log)
			if code == want && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(out, text) }) {
				return
			}
		}
		t.Errorf("without %q:\n%s", texts, out)
	}
	eventually(
		exitFailed,
		"nothing was sent, nothing was created): 2 of 2 that were seen, 0 allowed, 2 by nothing instead; ",
		`bot as alice: list pods in default was seen, and is allowed by nothing, not by user-info, which lacks impersonate-on:user-info:list pods; impersonate:user-info users alice; impersonate:user-info groups dev`,
	)
	var printed, errs bytes.Buffer
	code := run([]string{"advise", log}, &printed, &errs)
	objects, err := scenarios.Manifests("printed.yaml", printed.Bytes())
	if code != exitPassed || err != nil {
		t.Fatalf("code %d, %v: %s", code, err, errs.String())
	}
	for _, o := range objects {
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		post := client.RbacV1().RESTClient().Post().Resource(strings.ToLower(scenarios.Text(o, "kind")) + "s").Body(raw)
		if namespace := scenarios.Text(o, "metadata", "namespace"); namespace != "" {
			post = post.Namespace(namespace)
		}
		if err := post.Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(exitPassed, "2 of 2 that were seen, 2 allowed; 9 neighbours, 9 denied")
	grant(t, client, "legacy", "bot", existing.Needs("impersonate", "", "users", "groups"))
	eventually(exitFailed, "WRONG: bot as alice-neighbour: list pods in default was not seen (another user), and is allowed by legacy")
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), kept.Name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	left(t, plane)
}

// TestExistingLacking checks that every permission is named that a command needs and its user lacks.
func TestExistingLacking(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	plane, client, log := foreign(t)
	allLacking(t, plane.KubeconfigPath(), client, log)
	left(t, plane)
}

// allLacking tries both commands on a cluster. load has a test of its own.
func allLacking(t *testing.T, kubeconfig string, client kubernetes.Interface, log string) {
	t.Helper()
	for name, c := range map[string]struct {
		needs []existing.Need
		args  []string
		code  int
	}{
		"advise": {existing.Advising(true), []string{"advise", "--verify", log}, exitFailed},
		"run":    {existing.Running(), []string{"run", "--provider", "existing", "--focus", "^kep-5284/user-info/"}, exitPassed},
	} {
		lacking(t, kubeconfig, client, name, c.needs, c.args, c.code)
	}
}

// foreign starts a control plane that counts as somebody else's, and returns it with its log.
func foreign(t *testing.T) (*local.ControlPlane, kubernetes.Interface, string) {
	t.Helper()
	plane, err := local.Start(t.Context(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plane.Stop() })
	client, err := kubernetes.NewForConfig(plane.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return plane, client, auditLog(t)
}

func auditLog(t *testing.T) string {
	t.Helper()
	log := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(log, []byte(adviseLog), 0o600); err != nil {
		t.Fatal(err)
	}
	return log
}

// lacking runs a command as users who have all permissions except one. The error has to name that one, and nothing may
// be created. For a user who has all of them the command ends with the given code.
func lacking(
	t *testing.T,
	kubeconfig string,
	client kubernetes.Interface,
	name string,
	needs []existing.Need,
	args []string,
	complete int,
) {
	t.Helper()
	admin, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(needs) + 1 {
		who, has, want := fmt.Sprintf("%s-%d", name, i), slices.Clone(needs), ""
		if i < len(needs) {
			has, want = slices.Delete(
				has,
				i,
				i+1,
			), "the user of the kubeconfig lacks permissions: "+needs[i].String()+"; nothing was created"
		}
		grant(t, client, who, "system:serviceaccount:default:"+who, has)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: who}}
		_, err1 := client.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{})
		token, err2 := client.CoreV1().
			ServiceAccounts("default").
			CreateToken(t.Context(), who, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		for name := range admin.AuthInfos {
			admin.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
		}
		own := filepath.Join(t.TempDir(), "kubeconfig")
		if err := clientcmd.WriteToFile(*admin, own); err != nil {
			t.Fatal(err)
		}
		var out string
		for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
			var code int
			code, out = authzconf(append(args, "--kubeconfig", own)...)
			if want != "" && code == exitUsage && strings.Contains(out, want) ||
				want == "" && code == complete {
				out = ""
				break
			}
		}
		if out != "" {
			t.Errorf("%s without %v: %s", name, want, out)
		}
	}
}

// grant lets a user do things everywhere.
func grant(t *testing.T, client kubernetes.Interface, name, user string, needs []existing.Need) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, n := range needs {
		role.Rules = append(role.Rules,
			rbacv1.PolicyRule{Verbs: []string{n.Verb}, APIGroups: []string{n.Group}, Resources: []string{n.Resource}},
		)
	}
	_, err1 := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	_, err2 := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
}

// left looks for anything with the label. Nothing ends the namespaces of a control plane without controllers, so it is
// enough there that they are being deleted.
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
