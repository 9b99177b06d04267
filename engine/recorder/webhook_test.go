package recorder

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
)

// noMetrics spares the test the registry of an API server.
type noMetrics struct {
	metrics.NoopRequestMetrics
	metrics.NoopWebhookMetrics
	authorizationcel.NoopMatcherMetrics
}

// apiServer is the authorizer that a kube-apiserver makes of the kubeconfig of a
// point. It notes the protocol that it was answered in.
func apiServer(t *testing.T, r *Recorder, p Point, proto *string) authorizer.Authorizer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, r.Kubeconfig(p), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := webhookutil.LoadKubeconfig(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil {
				*proto = resp.Proto
			}
			return resp, err
		})
	})
	// No time to live: this is how a chain with a recorder has to be set up.
	w, err := webhook.New(config, "v1", 0, 0, wait.Backoff{Steps: 1}, authorizer.DecisionDeny, nil,
		"recorder-"+string(p), noMetrics{}, authorizationcel.NewDefaultCompiler())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// asked is a check as an authorizer is asked it, and as the webhook has to be.
type asked struct {
	attributes authorizer.AttributesRecord
	spec       authorizationv1.SubjectAccessReviewSpec
}

// checks have between them everything that a review can carry.
func checks(t *testing.T) []asked {
	t.Helper()
	selected, err := labels.Parse("app in (a,b),!c")
	if err != nil {
		t.Fatal(err)
	}
	requirements, _ := selected.Requirements()
	agent := &user.DefaultInfo{
		Name: "system:serviceaccount:default:agent", UID: "u-1",
		Groups: []string{"system:serviceaccounts", "system:authenticated"},
		Extra:  map[string][]string{"authentication.kubernetes.io/node-name": {"node1"}, "b": {"1", "2"}},
	}
	byAgent := authorizationv1.SubjectAccessReviewSpec{User: agent.Name, UID: agent.UID, Groups: agent.Groups,
		Extra: map[string]authorizationv1.ExtraValue{"authentication.kubernetes.io/node-name": {"node1"}, "b": {"1", "2"}}}
	list, console, path := byAgent, byAgent, byAgent
	list.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: "default", Verb: "impersonate-on:associated-node:list", Version: "v1", Resource: "pods",
		FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
			{Key: "spec.nodeName", Operator: metav1.FieldSelectorOpIn, Values: []string{"node1"}}}},
		LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
			{Key: "c", Operator: metav1.LabelSelectorOpDoesNotExist}}},
	}
	console.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: "create",
		Group: "subresources.kubevirt.io", Version: "v1", Resource: "virtualmachines", Subresource: "console", Name: "vm"}
	path.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: "/healthz", Verb: "get"}
	return []asked{
		{authorizer.AttributesRecord{User: agent, ResourceRequest: true, Namespace: "default",
			Verb: "impersonate-on:associated-node:list", APIVersion: "v1", Resource: "pods",
			FieldSelectorRequirements: fields.OneTermEqualSelector("spec.nodeName", "node1").Requirements(),
			LabelSelectorRequirements: requirements}, list},
		{authorizer.AttributesRecord{User: agent, ResourceRequest: true, Verb: "create",
			APIGroup: "subresources.kubevirt.io", APIVersion: "v1", Resource: "virtualmachines", Subresource: "console", Name: "vm"}, console},
		{authorizer.AttributesRecord{User: agent, Path: "/healthz", Verb: "get"}, path},
		{authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "system:anonymous"}, Path: "/healthz", Verb: "get"},
			authorizationv1.SubjectAccessReviewSpec{User: "system:anonymous", NonResourceAttributes: path.NonResourceAttributes}},
	}
}

// TestKubernetesWebhook has Kubernetes' own webhook authorizer as the peer.
func TestKubernetesWebhook(t *testing.T) {
	r := startRecorder(t, Options{})
	var proto string
	front, back := apiServer(t, r, Front, &proto), apiServer(t, r, Back, &proto)
	var want []authorizationv1.SubjectAccessReviewSpec
	for _, check := range checks(t) {
		for _, point := range []authorizer.Authorizer{front, back} {
			decision, reason, err := point.Authorize(t.Context(), check.attributes)
			if decision != authorizer.DecisionNoOpinion || reason != "" || err != nil {
				t.Errorf("%s: decision %d, %q, %v", check.attributes.Verb, decision, reason, err)
			}
			want = append(want, check.spec)
		}
	}
	compare(t, r, want)
	if proto != "HTTP/2.0" {
		t.Errorf("answered in %s", proto)
	}
}

// compare holds what was recorded against what was asked, at the front and the back in turns.
func compare(t *testing.T, r *Recorder, want []authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	records := r.Since(0)
	if len(records) != len(want) {
		t.Fatalf("%d records, %d were asked; %v", len(records), len(want), r.Err())
	}
	for i, rec := range records {
		if rec.Point != []Point{Front, Back}[i%2] || time.Since(rec.At) > time.Minute {
			t.Errorf("record %d: %s, %s", i, rec.Point, rec.At)
		}
		if diff := cmp.Diff(want[i], rec.Spec); diff != "" {
			t.Errorf("record %d:\n%s", i, diff)
		}
	}
}
