package certify

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/scenarios"
)

// TestRBACIsCertified has a second opinion about the policy and the questions: that of Kubernetes' own RBAC authorizer,
// in an API server that answers SubjectAccessReviews about the exported roles. It is asked at its own endpoint, which
// does not know v1beta1, and behind the reference's handler, which does.
func TestRBACIsCertified(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	t.Parallel() // starting and loading take most of the time, and can overlap
	plane, err := local.Start(t.Context(), local.Options{
		// There is no Node authorizer, because that allows nodes to list their pods.
		AuthorizationConfig: []byte(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthorizationConfiguration","authorizers":[{"type":"RBAC","name":"rbac"}]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	admin, err := kubernetes.NewForConfig(plane.Admin())
	if err != nil {
		t.Fatal(err)
	}
	w := endpointOf(t, plane)
	t.Run("safe", func(t *testing.T) {
		run, err := Certify(t.Context(), Options{Webhook: w, Plan: safePlan(t, safeSeed), V1Only: true})
		if err != nil {
			t.Fatal(err)
		}
		accepted(t, run, Safe)
	})
	// The policy does not have what every API server grants from the start, above all discovery for authenticated
	// users.
	err = admin.RbacV1().
		ClusterRoleBindings().
		DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "kubernetes.io/bootstrapping=rbac-defaults"})
	if err != nil {
		t.Fatal(err)
	}
	b := plan(t, 1)
	loadRBAC(t, admin, b.Policy)

	t.Run("endpoint", func(t *testing.T) { accepted(t, certifyAll(t, b, w, Core), Core) })
	t.Run("handler", func(t *testing.T) {
		if !sample.IsEverything() {
			t.Skip("the endpoint has been asked the same: make faulty-authorizers")
		}
		levels := []CertificationLevel{Core, NoOvergrant}
		h := reference.Handler(func(s spec) scenarios.Decision {
			decision, err := sar(context.Background(), admin, s)
			if err != nil {
				t.Errorf("%+v: %v", s, err)
			}
			return decision
		})
		accepted(t, certifyAll(t, b, startWebhook(t, h), levels...), levels...)
	})
}

// endpointOf returns, as a webhook, the endpoint of an API server that answers SubjectAccessReviews.
func endpointOf(t *testing.T, plane *local.ControlPlane) *Webhook {
	t.Helper()
	raw, err := os.ReadFile(plane.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	host := plane.Admin().Host
	raw = []byte(strings.ReplaceAll(string(raw), "server: "+host, "server: "+host+"/apis/authorization.k8s.io/v1/subjectaccessreviews"))
	w, err := ParseWebhook(raw, "")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// accepted expects no finding and these levels.
func accepted(t *testing.T, run *Run[Answer], levels ...CertificationLevel) {
	t.Helper()
	for _, f := range run.Findings {
		t.Errorf("RBAC disagrees: %s (%s, %d): %s", f.Reason, f.Level, f.Count, strings.Join(f.Examples, "\n"))
	}
	for _, r := range run.Results {
		if slices.Contains(levels, r.Level) && !r.Granted {
			t.Errorf("level %s is not granted: %+v", r.Level, r)
		}
	}
}

// sar asks the API server about a review.
func sar(ctx context.Context, admin kubernetes.Interface, s spec) (scenarios.Decision, error) {
	got, err := admin.AuthorizationV1().
		SubjectAccessReviews().
		Create(ctx, &authorizationv1.SubjectAccessReview{Spec: s}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return "", err
	case got.Status.Denied:
		return scenarios.Deny, nil
	case got.Status.Allowed:
		return scenarios.Allow, nil
	}
	return scenarios.NoOpinion, nil
}

// loadRBAC creates the exported objects and two more, and waits until the authorizer knows the two. It sees the objects
// of each kind in the order of creation.
func loadRBAC(t *testing.T, admin kubernetes.Interface, p *policy.Policy) {
	t.Helper()
	last := func(namespace string) scenarios.Grant {
		return scenarios.Grant{
			Subject:   scenarios.Subject{User: "loaded"},
			Verbs:     []string{"get"},
			APIGroups: []string{"loaded"},
			Resources: []string{"loaded"},
			Namespace: namespace,
		}
	}
	loaded := &policy.Policy{Seed: p.Seed, Grants: append(slices.Clone(p.Grants), last(p.Identities.Namespace), last(""))}
	raw, err := loaded.RBAC()
	if err != nil {
		t.Fatal(err)
	}
	docs := strings.Split(string(raw), "---\n")[1:]
	const markers = 4 // two roles with their bindings
	isNamespace := func(doc string) bool { return strings.Contains(doc, "kind: Namespace\n") }
	for _, doc := range docs {
		if isNamespace(doc) {
			create(t, admin, doc)
		}
	}
	var g errgroup.Group
	g.SetLimit(parallelAskers)
	for _, doc := range docs[:len(docs)-markers] {
		if !isNamespace(doc) {
			g.Go(func() error { create(t, admin, doc); return nil })
		}
	}
	_ = g.Wait() // create reports failures
	for _, doc := range docs[len(docs)-markers:] {
		create(t, admin, doc)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		here, err := sar(t.Context(), admin, newReview("loaded", "get", "loaded", "loaded", p.Identities.Namespace, ""))
		if err != nil {
			t.Fatal(err)
		}
		everywhere, err := sar(t.Context(), admin, newReview("loaded", "get", "loaded", "loaded", "", ""))
		if err != nil {
			t.Fatal(err)
		}
		if here == scenarios.Allow && everywhere == scenarios.Allow {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the authorizer does not learn of the roles")
		}
	}
}

// create posts an object in YAML.
func create(t *testing.T, admin kubernetes.Interface, doc string) {
	t.Helper()
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	var o struct {
		Kind     string            `json:"kind"`
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	body, err := yaml.YAMLToJSON([]byte(doc))
	if err == nil {
		err = yaml.Unmarshal([]byte(doc), &o)
	}
	path := "/api/v1/namespaces"
	switch {
	case o.Metadata.Namespace != "":
		path = rbac + "namespaces/" + o.Metadata.Namespace + "/" + strings.ToLower(o.Kind) + "s"
	case o.Kind != "Namespace":
		path = rbac + strings.ToLower(o.Kind) + "s"
	}
	if err == nil {
		err = admin.CoreV1().
			RESTClient().
			Post().
			AbsPath(path).
			Body(body).
			SetHeader("Content-Type", "application/json").
			Do(t.Context()).
			Error()
	}
	if err != nil {
		t.Errorf("%s %s: %v", o.Kind, o.Metadata.Name, err)
	}
}
