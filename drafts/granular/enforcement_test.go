package granular

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/authzconf/authzconf/drafts/granular/model"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/engine/server"
)

// enforcesByPolicies checks enforcement of excluded fields by policies, and then turns it off. After that the ordinary
// permission contains every field, and granular permissions allow nothing (KEP-3617, "Upgrade / Downgrade Strategy").
func enforcesByPolicies(t *testing.T, b *Bench) {
	if n := passBy(t, b, by(t, Policies)); n < 20 {
		t.Errorf("only %d attempts could be judged", n)
	}
	all, rejected := 0, map[string]bool{} // rejected by validation, even in a dry run of the administrator
	for _, s := range builtIn(t) {
		all += len(s.Attempts)
		for _, a := range s.Attempts {
			rejected[s.ID+"/"+a.Name] = a.Outcome == Rejected
		}
	}
	results, err := b.Run(t.Context(), by(t, off), turnedOff(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		problems := r.problems()
		if rejected[r.ID()] {
			problems = slices.DeleteFunc(problems, func(p string) bool { return p == noDryRun })
		}
		if all--; len(problems) > 0 {
			t.Errorf("%s: %q", r.ID(), problems)
		}
	}
	if all != 0 {
		t.Errorf("%d attempts more or less than there are", all)
	}
}

// rejectsWhatImplementsNothing judges an API server of today as if it implemented the KEP. It must pass exactly the
// attempts in which the ordinary permission alone decides.
func rejectsWhatImplementsNothing(t *testing.T, b *Bench) {
	results, err := b.Run(t.Context(), by(t, APIServer), builtIn(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		decidesAlone := len(r.attempt.Checks) == 1
		hasPassed := len(r.problems()) == 0
		if hasPassed && !decidesAlone {
			t.Errorf("%s passed, and needs %q", r.ID(), r.attempt.Checks)
		}
		if !hasPassed && decidesAlone {
			t.Errorf("%s: %q", r.ID(), r.problems())
		}
	}
}

// off is a kind that enforces nothing.
const off = "off"

// turnedOff returns the scenarios, with the outcomes on an API server that enforces no granular verbs.
func turnedOff(t *testing.T) []*Scenario {
	all := builtIn(t)
	for _, s := range all {
		for _, a := range s.Attempts {
			if !a.applies(Policies) {
				a.Outcome = Denied
			} else if a.Outcome == Denied {
				a.Outcome = Allowed
			}
			a.Checks, a.Reason = a.Checks[:1], ""
		}
	}
	return all
}

// reviewsOfOneself checks that every actor can ask by SelfSubjectAccessReview for the permissions of its attempt
// (KEP-3617, "How can someone using this feature know that it is working").
func reviewsOfOneself(t *testing.T, b *Bench) {
	answers := map[bool]int{}
	for _, s := range builtIn(t) {
		for _, a := range s.Attempts {
			o := trial{s, a}.place()
			who, err := b.actor(t.Context(), s.ID+"/"+a.Name, o.resource, a.Grants, a.Names)
			if err != nil {
				t.Fatal(err)
			}
			config := b.server.Anonymous()
			config.BearerToken, config.QPS = who.token, -1
			client := kubernetes.NewForConfigOrDie(config)
			for _, c := range a.Checks {
				answer, verb, _ := strings.Cut(c, " ")
				asked := &authorizationv1.ResourceAttributes{
					Verb: verb, Group: o.resource.Group, Resource: o.resource.Resource, Subresource: s.RequestOf(a).Subresource,
					Namespace: who.namespace, Name: o.objectName(s.RequestOf(a)),
				}
				review, err := client.AuthorizationV1().
					SelfSubjectAccessReviews().
					Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
						Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: asked},
					}, metav1.CreateOptions{})
				if err != nil || review.Status.Allowed != (answer == "yes") {
					t.Errorf("%s/%s: of %s its actor is told %t, %v", s.ID, a.Name, verb, review.Status.Allowed, err)
				}
				other, err := b.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
					Spec: authorizationv1.SubjectAccessReviewSpec{User: who.user, ResourceAttributes: asked},
				}, metav1.CreateOptions{})
				if err != nil || other.Status.Allowed != (answer == "yes") {
					t.Errorf("%s/%s: of %s an administrator is told %t about its actor, %v", s.ID, a.Name, verb, other.Status.Allowed, err)
				}
				answers[review.Status.Allowed]++
			}
		}
	}
	if answers[true] < 50 || answers[false] < 50 {
		t.Errorf("answers: %v", answers)
	}
}

// followsTheSchema changes the schema of a custom resource while it is in use. When a list of conditions gets keys,
// each condition gets its own permission.
func followsTheSchema(t *testing.T, b *Bench) {
	crd := &unstructured.Unstructured{}
	err := yaml.UnmarshalStrict([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.granular.authzconf.dev}
spec:
  group: granular.authzconf.dev
  scope: Namespaced
  names: {kind: Gizmo, plural: gizmos}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {status: {type: object, properties: {conditions: {
        type: array, items: {type: object, required: [type], properties: {type: {type: string}, status: {type: string}}}}}}}}}}
`), &crd.Object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.admin.Resource(crds).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	gizmos := widgets.WithResource("gizmos")
	a, err := b.actor(t.Context(), "watched", gizmos, []string{"granular", "granular:condition(A)"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.open(t.Context(), by(t, Reference))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gizmos.GroupVersion().String(),
		"kind":       "Gizmo",
		"metadata":   map[string]any{"name": subject},
		"status": map[string]any{
			"conditions": []any{map[string]any{"type": "A", "status": "0"}, map[string]any{"type": "B", "status": "0"}},
		},
	}}
	err = poll(t.Context(), "the custom resource", func(ctx context.Context) (bool, error) {
		_, err := b.admin.Resource(gizmos).Namespace(a.namespace).Create(ctx, object, metav1.CreateOptions{})
		return err == nil, ignoreNotFound(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	client := dynamic.NewForConfigOrDie(g.config(a.token)).Resource(gizmos).Namespace(a.namespace)
	changed := 0
	change := func(ctx context.Context) error {
		changed++
		body := fmt.Sprintf(`{"status":{"conditions":[{"type":"A","status":"%d"},{"type":"B","status":"0"}]}}`, changed)
		_, err := client.Patch(ctx, subject, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	// The enforcer refuses requests until the schema is published.
	until := func(what string, want func(error) bool) {
		t.Helper()
		if err := poll(t.Context(), what, func(ctx context.Context) (bool, error) { return want(change(ctx)), nil }); err != nil {
			t.Fatal(err)
		}
	}
	until("a list without keys", apierrors.IsForbidden)
	for _, keyed := range []bool{true, false} {
		listType := `"atomic","x-kubernetes-list-map-keys":null`
		if keyed {
			listType = `"map","x-kubernetes-list-map-keys":["type"]`
		}
		current, err := b.admin.Resource(crds).Get(t.Context(), crd.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(current.Object)
		if err != nil {
			t.Fatal(err)
		}
		var document map[string]any
		if err := json.Unmarshal(raw, &document); err != nil {
			t.Fatal(err)
		}
		version := document["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
		conditions := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)["status"].(map[string]any)["properties"].(map[string]any)["conditions"].(map[string]any)
		if err := json.Unmarshal([]byte(`{"x-kubernetes-list-type":`+listType+`}`), &conditions); err != nil {
			t.Fatal(err)
		}
		if conditions["x-kubernetes-list-map-keys"] == nil {
			delete(conditions, "x-kubernetes-list-map-keys")
		}
		_, err = b.admin.Resource(crds).
			Update(t.Context(), &unstructured.Unstructured{Object: document}, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if keyed {
			until("a list with keys", func(err error) bool { return err == nil })
		} else {
			until("a list without keys again", apierrors.IsForbidden)
		}
	}
}

// stranger is an admission webhook that enforces descriptions in another way than the reference: by the model. It sends
// access reviews with a kubeconfig that is written after it has begun to listen.
type stranger struct {
	kubeconfig string
	set        *permissions.Set
	// The following fields are faults.
	forgets   bool // excluded fields
	patches   bool // the object
	silent    bool // it does not say what is missing
	asksTwice bool
	html      bool
}

func (s *stranger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.html {
		_, _ = w.Write([]byte("<html><body>Welcome</body></html>"))
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if err := s.judge(r.Context(), review.Request); err != nil {
		review.Response.Allowed, review.Response.Result = false, &metav1.Status{Code: http.StatusForbidden, Message: err.Error()}
	} else if s.patches {
		patch := admissionv1.PatchTypeJSONPatch
		review.Response.Patch = []byte(`[{"op":"add","path":"/metadata/annotations","value":{"seen":"yes"}}]`)
		review.Response.PatchType = &patch
	}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}

func (s *stranger) judge(ctx context.Context, r *admissionv1.AdmissionRequest) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "stranger"))
	if err != nil {
		return err
	}
	var old, updated map[string]any
	if len(r.OldObject.Raw) > 0 {
		err = json.Unmarshal(r.OldObject.Raw, &old)
	}
	if err := errors.Join(err, json.Unmarshal(r.Object.Raw, &updated)); err != nil {
		return err
	}
	root := s.set.Tree(r.Resource.Group, r.Resource.Version, r.Resource.Resource)
	chains := model.Create(root, updated, updated)
	if old != nil {
		chains = model.Update(root, old, updated)
	}
	chains = model.Excluded(chains)
	if s.forgets {
		chains = nil
	}
	answers := map[string]bool{} // by verb, which may be in several places of a chain
	for _, c := range chains {
		covered := c.Has(func(verb string) bool {
			if allowed, isKnown := answers[verb]; isKnown {
				return allowed
			}
			for range map[bool]int{false: 1, true: 2}[s.asksTwice] {
				answers[verb] = s.ask(ctx, client, r, verb)
			}
			return answers[verb]
		})
		if !covered && s.silent {
			return errors.New("no")
		}
		if !covered {
			return fmt.Errorf("%s is missing", c[len(c)-1].Verb)
		}
	}
	return nil
}

func (s *stranger) ask(ctx context.Context, client kubernetes.Interface, r *admissionv1.AdmissionRequest, verb string) bool {
	at := &authorizationv1.ResourceAttributes{
		Verb:        verb,
		Group:       r.Resource.Group,
		Resource:    r.Resource.Resource,
		Subresource: r.SubResource,
		Namespace:   r.Namespace,
		Name:        r.Name,
	}
	if r.Resource.Resource == "namespaces" {
		at.Namespace = r.Name
	}
	if r.Operation == admissionv1.Create {
		at.Name = ""
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range r.UserInfo.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               r.UserInfo.Username,
			Groups:             r.UserInfo.Groups,
			UID:                r.UserInfo.UID,
			Extra:              extra,
			ResourceAttributes: at,
		},
	}, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed
}

// enforcesByWebhooks judges strangers: a correct one, and some with one fault each.
func enforcesByWebhooks(t *testing.T, b *Bench) {
	set := by(t, Webhook).Descriptions
	all := slices.DeleteFunc(builtIn(t), func(s *Scenario) bool { return s.Section != "Story 2" && s.Section != "Levels of schema control" })
	for _, c := range []struct {
		name    string
		wrong   func(*stranger)
		problem string // a part of a problem or of the error
		invalid bool
	}{
		{name: "right", wrong: func(*stranger) {}},
		{name: "forgets", wrong: func(s *stranger) { s.forgets = true }, problem: "code 200, expected 403"},
		{name: "patches", wrong: func(s *stranger) { s.patches = true }, problem: "may not return response.patch"},
		{name: "silent", wrong: func(s *stranger) { s.silent = true }, problem: "expected a permission in it that the authorizer has refused"},
		{name: "asks twice", wrong: func(s *stranger) { s.asksTwice = true }, problem: "was asked twice"},
		{name: "answers HTML", wrong: func(s *stranger) { s.html = true }, problem: "does not answer as an admission webhook does", invalid: true},
		{name: "is not there", wrong: func(*stranger) {}, problem: "https://127.0.0.1:2/validate does not answer as an admission webhook does", invalid: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &stranger{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), set: set}
			c.wrong(s)
			served, err := server.ServeLoopback(t.Context(), s, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = served.Close() })
			at := served.URL
			if c.name == "is not there" {
				at = "https://127.0.0.1:2"
			}
			results, err := b.Run(
				t.Context(),
				Enforcement{Kind: Webhook, Descriptions: set, URL: at + "/validate", CA: served.CA, Kubeconfig: s.kubeconfig},
				all,
			)
			b.remove(t)
			if _, missing := os.Stat(s.kubeconfig); missing != nil {
				t.Error(missing)
			}
			if c.invalid {
				if err == nil || !strings.Contains(err.Error(), c.problem) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v, want %s", err, c.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var problems []string
			for _, r := range results {
				for _, p := range r.problems() {
					problems = append(problems, r.ID()+": "+p)
				}
			}
			switch found := slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, c.problem) }); {
			case c.problem == "" && len(problems) > 0:
				t.Errorf("problems of one that is right: %q", problems)
			case c.problem != "" && !found:
				t.Errorf("no problem with %q: %q", c.problem, problems)
			}
		})
	}
}

// TestApplies checks which attempts apply to which kind of enforcement.
func TestApplies(t *testing.T) {
	for kind, want := range map[string][]bool{Reference: {true, true, true}, off: {true, true, true}, APIServer: {true, true, true}, Policies: {true, false, false}, Webhook: {true, false, false}} {
		for i, first := range []string{"yes patch", "no patch", "yes granular"} {
			if a := (&Attempt{Checks: []string{first}}); a.applies(kind) != want[i] {
				t.Errorf("%s, %s: %t", kind, first, !want[i])
			}
		}
	}
}
