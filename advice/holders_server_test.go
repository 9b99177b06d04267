package advice_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/conformance/matrix/matrixtest"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// TestHoldersOnServer compares the results for random RBAC with a kube-apiserver that has this RBAC: by 20,000 access
// reviews of what modes ask, and by 1,000 impersonated requests.
func TestHoldersOnServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	r := rand.New(rand.NewPCG(45, 2)) // with this seed, each mode is allowed to somebody
	objects := world(t, generated(r, 25, 40))
	holders, _ := advice.Holders(objects)
	says := answersOf(holders)
	srv := startWithObjects(t, objects)
	t.Run("access reviews", func(t *testing.T) {
		allowed := compareReviews(t, srv, says, r)
		t.Logf("%d allowed, %d not", allowed[true], allowed[false])
		if allowed[true] < 2_000 || allowed[false] < 2_000 {
			t.Errorf("too few of a kind: %v", allowed)
		}
	})
	t.Run("impersonated requests", func(t *testing.T) {
		modes := compareModes(t, srv, says, r)
		t.Logf("requests by mode: %v", modes)
		if len(modes) < 1+len(oracle.Modes()) {
			t.Errorf("too few modes: %v", modes)
		}
	})
}

// startWithObjects starts an API server with these objects, all of which are in force.
func startWithObjects(t *testing.T, objects []map[string]any) *server.Server {
	t.Helper()
	ctx := context.Background()
	srv, err := server.Start(ctx, matrixtest.NewestCells(t, scenarios.GateOn)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
	makeObjects(ctx, t, administrator(t, srv), objects)
	// Each kind is watched in order, so everything that was created before these objects is in force with them.
	last, err := scenarios.Manifests("last.yaml", []byte(lastMade))
	if err != nil {
		t.Fatal(err)
	}
	replayer, err := replay.New(srv)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replayer.Provision(ctx, &scenarios.Scenario{ID: "last", Manifests: last}); err != nil {
		t.Fatal(err)
	}
	return srv
}

// administrator returns a client of an API server that sends as fast as it is asked to.
func administrator(t *testing.T, srv *server.Server) kubernetes.Interface {
	t.Helper()
	config := srv.Admin()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// compareReviews asks the API server for 20,000 access reviews of what modes ask, and compares them with what the holders
// say. It returns how many were allowed, and how many were not.
func compareReviews(t *testing.T, srv *server.Server, says answers, r *rand.Rand) map[bool]int {
	t.Helper()
	client := administrator(t, srv)
	var mu sync.Mutex
	allowed := map[bool]int{}
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	compare := func(q inquiry, m oracle.Mode, spec authorizationv1.SubjectAccessReviewSpec) error {
		answer, err := client.AuthorizationV1().
			SubjectAccessReviews().
			Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if want := says.allowed(m, spec); answer.Status.Allowed != want {
			t.Errorf("%s, %s: %+v: the server says %v, the holders %v", q, m, spec, answer.Status.Allowed, want)
		}
		mu.Lock()
		defer mu.Unlock()
		allowed[answer.Status.Allowed]++
		return nil
	}
	for sent := 0; sent < 20_000; {
		q := inquire(r)
		for _, m := range oracle.Modes() {
			parts, _ := checksOf(q, m, true)
			for _, spec := range slices.Concat(slices.Concat(parts...)...) {
				sent++
				group.Go(func() error { return compare(q, m, spec) })
			}
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return allowed
}

// compareModes sends 1,000 impersonated requests, and compares the modes that allow them with what the holders say. It
// returns how many requests each mode allowed.
func compareModes(t *testing.T, srv *server.Server, says answers, r *rand.Rand) map[oracle.Mode]int {
	t.Helper()
	modes := map[oracle.Mode]int{}
	for i := range 1_000 {
		q := inquire(r)
		// The mode that worked last for a name is tried first. So each question is about a new name, with the groups of
		// the old one.
		if q.who.Name += fmt.Sprint("-", i); q.who.Name[0] == 'u' {
			q.who.Groups = append(q.who.Groups, "team1", "team2")
		}
		got, err := impersonated(srv, q)
		if err != nil {
			t.Fatalf("%d: %s: %v", i, q, err)
		}
		if want := says.mode(q, true); got != want {
			t.Errorf("%s: the server impersonates by %q, the holders say %q", q, got, want)
		}
		modes[got]++
	}
	return modes
}

const lastMade = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: last}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: last}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: last}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: last}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: last, namespace: n1}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: last, namespace: n1}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: last}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: last}]
`

// makeObjects creates roles and bindings, and their namespaces.
func makeObjects(ctx context.Context, t *testing.T, client kubernetes.Interface, objects []map[string]any) {
	t.Helper()
	for _, name := range []string{"n1", "n2"} {
		_, err := client.CoreV1().
			Namespaces().
			Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range objects {
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		post := client.RbacV1().
			RESTClient().
			Post().
			Resource(strings.ToLower(scenarios.Text(o, "kind"))+"s").
			Body(raw).
			SetHeader("Content-Type", "application/json")
		if namespace := scenarios.Text(o, "metadata", "namespace"); namespace != "" {
			post = post.Namespace(namespace)
		}
		if err := post.Do(ctx).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// impersonated sends a request, and returns the mode by which it impersonated according to its audit event.
func impersonated(srv *server.Server, q inquiry) (oracle.Mode, error) {
	ctx := context.Background()
	request := &scenarios.Request{
		Verb:      q.action.Verb,
		Path:      q.action.Path,
		APIGroup:  q.action.APIGroup,
		Version:   q.action.Version,
		Resource:  q.action.Resource,
		Namespace: q.action.Namespace,
		Name:      q.action.Name,
	}
	req, err := replay.NewRequest(ctx, srv.Host(), request)
	if err != nil {
		return "", err
	}
	client, err := srv.UserClient(
		scenarios.Requestor{User: q.who.Name, Groups: q.who.Groups, Extra: q.who.Extra},
		&q.as,
		func(*http.Request) {},
	)
	if err != nil {
		return "", err
	}
	answer, err := replay.RoundTrip(client, req, false)
	if err != nil {
		return "", err
	}
	raw, err := srv.Audit(ctx, answer.AuditID)
	if err != nil {
		return "", err
	}
	var e auditv1.Event
	if err := json.Unmarshal(raw, &e); err != nil {
		return "", err
	}
	switch constraint := scenarios.ConstraintOf(&e); {
	case e.ImpersonatedUser == nil:
		return "", nil
	case constraint == "":
		return oracle.Legacy, nil
	default:
		var mode string
		_, err := fmt.Sscanf(constraint, "impersonate:%s", &mode)
		return oracle.Mode(mode), err
	}
}
