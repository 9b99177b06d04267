package local

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"
)

const structuredRBAC = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- {type: Node, name: node}
- {type: RBAC, name: rbac}
`

const auditAll = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
`

// events collects audit events, and records lines that are not events.
type events struct {
	mu    sync.Mutex
	users []string
	bad   [][]byte
}

func (e *events) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var event struct {
		Kind string
		User struct{ Username string }
	}
	if err := json.Unmarshal(p, &event); err != nil || event.Kind != "Event" {
		e.bad = append(e.bad, bytes.Clone(p))
	}
	e.users = append(e.users, event.User.Username)
	return len(p), nil
}

func (e *events) count(user string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, u := range e.users {
		if u == user {
			n++
		}
	}
	return n
}

func TestIdentitiesAuthorizationAndAudit(t *testing.T) {
	sink := &events{}
	c := startPlane(t, Options{AuthorizationConfig: []byte(structuredRBAC), AuditPolicy: []byte(auditAll), AuditSink: sink})
	t.Run("front proxy", func(t *testing.T) { testFrontProxy(t, c) })
	t.Run("service account token", func(t *testing.T) { testServiceAccountToken(t, c) })
	t.Run("audit", func(t *testing.T) { testAudit(t, c, sink) })
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}

func testFrontProxy(t *testing.T, c *ControlPlane) {
	config := c.FrontProxy()
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper("alice", "uid-1", []string{"readers", "writers"},
			map[string][]string{"example.com/team": {"blue"}}, rt)
	})
	got := whoAmI(t, config)
	want := authenticationv1.UserInfo{
		Username: "alice", UID: "uid-1", Groups: []string{"readers", "writers", "system:authenticated"},
		Extra: map[string]authenticationv1.ExtraValue{"example.com/team": {"blue"}},
	}
	if jsonOf(got) != jsonOf(want) {
		t.Errorf("got  %s\nwant %s", jsonOf(got), jsonOf(want))
	}
	_, err := clientFor(t, c.FrontProxy()).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("without a user: %v, want unauthorized", err)
	}
}

// testServiceAccountToken checks that a token bound to a Pod names the Pod's node, although there is neither a kubelet
// nor a Node.
func testServiceAccountToken(t *testing.T, c *ControlPlane) {
	admin := clientFor(t, c.Admin())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: corev1.PodSpec{
			NodeName: "node1", ServiceAccountName: "agent",
			Containers: []corev1.Container{{Name: "c", Image: "example.com/none"}},
		},
	}
	pod, err := admin.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "agent", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := c.Anonymous()
	config.BearerToken = token.Status.Token
	got := whoAmI(t, config)
	node := got.Extra["authentication.kubernetes.io/node-name"]
	if got.Username != "system:serviceaccount:default:agent" || len(node) != 1 || node[0] != "node1" {
		t.Errorf("got %s", jsonOf(got))
	}
}

func testAudit(t *testing.T, c *ControlPlane, sink *events) {
	admin := clientFor(t, c.Admin())
	before := sink.count(adminName)
	// Large objects arrive in several pieces through the pipe.
	sizes := []int{1, 100_000, 300_000, 10}
	for _, size := range sizes {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "audited-"},
			Data:       map[string]string{"k": strings.Repeat("x", size)},
		}
		if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 5*time.Second, "the events arrive", func() bool {
		return sink.count(adminName) >= before+len(sizes)
	})
	if sink.count("alice") != 1 {
		t.Errorf("%d events of alice, want 1", sink.count("alice"))
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	if len(sink.bad) > 0 {
		t.Errorf("%d lines are no events, such as %q", len(sink.bad), sink.bad[0])
	}
}

// TestAuditFileAndPlaceholders checks that without a sink events are written to a file, and that placeholders in files
// and arguments name the folder.
func TestAuditFileAndPlaceholders(t *testing.T) {
	c := startPlane(t, Options{
		AuditPolicy:         []byte(auditAll),
		Files:               map[string][]byte{"sub/authz.yaml": []byte(structuredRBAC)},
		AuthorizationConfig: []byte(structuredRBAC + "# " + DirPlaceholder),
		KubeAPIServerArgs:   []string{"--authorization-config=" + DirPlaceholder + "/sub/authz.yaml"},
	})
	data, err := os.ReadFile(c.Dir() + "/" + authorizationFile)
	if err != nil || !strings.HasSuffix(string(data), "# "+c.Dir()) {
		t.Errorf("authorization configuration: %q, %v", data, err)
	}
	data, err = os.ReadFile(c.Dir() + "/" + auditFile)
	if err != nil || !strings.Contains(string(data), `"kind":"Event"`) {
		t.Errorf("audit file: %d bytes, %v", len(data), err)
	}
}
