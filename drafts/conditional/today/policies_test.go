package today

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// signing is a webhook that allows everything but one check. To this check it gives a configured answer. The check is
// about the verb sign, unless about says otherwise.
type signing struct {
	mu     sync.Mutex
	status string
	about  func(authorizationv1.ResourceAttributes) bool
	asked  []authorizationv1.SubjectAccessReviewSpec // the reviews about that check
	raw    []string                                  // the same reviews as they were sent
}

func (s *signing) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var raw json.RawMessage
	var review authorizationv1.SubjectAccessReview
	if json.NewDecoder(req.Body).Decode(&raw) != nil || json.Unmarshal(raw, &review) != nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	status := `{"allowed":true}`
	if a := review.Spec.ResourceAttributes; a != nil && s.isAbout(*a) {
		status, s.asked, s.raw = s.status, append(s.asked, review.Spec), append(s.raw, string(raw))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":%s}`, status)
}

func (s *signing) isAbout(a authorizationv1.ResourceAttributes) bool {
	if s.about == nil {
		return a.Verb == "sign"
	}
	return s.about(a)
}

// say sets the answer to the check, and clears the recorded reviews.
func (s *signing) say(status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.asked, s.raw = status, nil, nil
}

// admissionPolicy creates and binds a ValidatingAdmissionPolicy about writes of some resources.
func (c *Cluster) admissionPolicy(t *testing.T, name string, resources []string, expressions ...string) {
	t.Helper()
	var validations []any
	for _, e := range expressions {
		validations = append(validations, map[string]any{"expression": e})
	}
	rule := map[string]any{"apiGroups": []string{"*"}, "apiVersions": []string{"*"}, "resources": resources, "operations": []string{"*"}}
	c.bindPolicy(
		t,
		name,
		map[string]any{
			"failurePolicy":    "Fail",
			"matchConstraints": map[string]any{"resourceRules": []any{rule}},
			"validations":      validations,
		},
	)
}

// bindPolicy creates a ValidatingAdmissionPolicy with a spec, and binds it.
func (c *Cluster) bindPolicy(t *testing.T, name string, spec map[string]any) {
	t.Helper()
	for _, m := range []Made{
		{webhooksPath + "validatingadmissionpolicies", map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1",
			"kind":       "ValidatingAdmissionPolicy",
			"metadata":   map[string]any{"name": name},
			"spec":       spec,
		}},
		{webhooksPath + "validatingadmissionpolicybindings", map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1",
			"kind":       "ValidatingAdmissionPolicyBinding",
			"metadata":   map[string]any{"name": name},
			"spec":       map[string]any{"policyName": name, "validationActions": []string{"Deny"}},
		}},
	} {
		if err := c.Make(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

const configMaps = "/api/v1/namespaces/default/configmaps?dryRun=All"

// configMap returns a ConfigMap that names a signer.
func configMap(signer string) map[string]any {
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"generateName": "signed-"},
		"data":       map[string]any{"signer": signer},
	}
}

// writes waits until a write of a user gets an answer with a code. It reports the last answer if that does not happen.
func (c *Cluster) writes(t *testing.T, u *User, code int) {
	t.Helper()
	last := Response{}
	err := until(t.Context(), fmt.Sprintf("a write is answered %d", code), func(ctx context.Context) (_ bool, err error) {
		last, err = c.Send(ctx, u, http.MethodPost, configMaps, "", configMap("anna"))
		return last.Code == code, err
	})
	if err != nil {
		t.Errorf("%v, but %d %s", err, last.Code, last.Status())
	}
}

// TestSecondaryChecks checks a ValidatingAdmissionPolicy with the function authorizer. It asks the whole chain, about
// resources that no API server serves, once for each request and never for conditions. If an answer has conditions
// nevertheless, it allows nothing (section "ValidatingAdmissionPolicies": such checks fail closed).
func TestSecondaryChecks(t *testing.T) {
	c := startForTest(t, StartOptions{})
	s := &signing{status: `{"allowed":false}`}
	c.answer(s)
	ann := &User{Name: "ann"}
	c.writes(t, ann, http.StatusCreated)
	const check = "authorizer.group('example.com').resource('signers').name(object.data.signer).check('sign').allowed()"
	c.admissionPolicy(t, "signers", []string{"configmaps"}, check, check+" || false")
	c.writes(t, ann, http.StatusUnprocessableEntity)
	for _, step := range []struct {
		name, status string
		code         int
	}{
		{"allowed", `{"allowed":true}`, http.StatusCreated},
		{"no opinion", `{"allowed":false}`, http.StatusUnprocessableEntity},
		{"denied", `{"allowed":false,"denied":true}`, http.StatusUnprocessableEntity},
		{"conditions that would allow", `{"allowed":false,` + fmt.Sprintf(chain, "Allow") + `}`, http.StatusUnprocessableEntity},
		{"allowed again", `{"allowed":true}`, http.StatusCreated},
	} {
		t.Run(step.name, func(t *testing.T) {
			s.say(step.status)
			r, err := c.Send(t.Context(), ann, http.MethodPost, configMaps, "", configMap("bert"))
			if err != nil || r.Code != step.code {
				t.Errorf("code %d (%s), %v; want %d", r.Code, r.Status(), err, step.code)
			}
			if len(s.asked) != 1 {
				t.Errorf("two checks of one request ask %d times", len(s.asked))
			}
			for i, asked := range s.asked {
				if asked.ResourceAttributes.Name != "bert" || asked.User != "ann" ||
					strings.Contains(s.raw[i], "conditionalAuthorization") {
					t.Errorf("it is asked %s", s.raw[i])
				}
			}
		})
	}
}

// TestStaticFalse checks that a user who can create a ValidatingAdmissionPolicy can block every write with the
// expression false, even writes of cluster administrators. Only admission policies themselves can still be deleted. The
// same expression in a policy of an authorizer blocks nobody (section "Why not just use ValidatingAdmissionPolicies?").
func TestStaticFalse(t *testing.T) {
	c := startForTest(t, StartOptions{})
	admin, ann := &User{Name: "root", Groups: []string{"system:masters"}, Outside: true}, &User{Name: "ann"}
	policies := []vectors.Policy{
		{ID: "ann", Effect: vectors.Allow, Expression: `request.userInfo.username == "ann" && request.resource == "configmaps"`},
	}
	for _, effect := range vectors.Effects() {
		policies = append(policies, vectors.Policy{ID: "never-" + strings.ToLower(string(effect)), Effect: effect, Expression: "false"})
	}
	s, err := reference.NewSnapshot(policies)
	if err != nil {
		t.Fatal(err)
	}
	c.Authorizer.Use(s)
	c.answer(reference.Handler(wire.Seed, c.Authorizer))
	c.writes(t, ann, http.StatusCreated)
	c.writes(t, admin, http.StatusCreated)
	c.admissionPolicy(t, "never", []string{"*/*"}, "false")
	for _, u := range []*User{ann, admin} {
		c.writes(t, u, http.StatusUnprocessableEntity)
	}
	var codes []int
	for _, path := range []string{"/api/v1/nodes?dryRun=All", "/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All"} {
		kind := map[bool]string{true: "Node", false: "ClusterRole"}[strings.Contains(path, "nodes")]
		version := map[bool]string{true: "v1", false: "rbac.authorization.k8s.io/v1"}[kind == "Node"]
		r, err := c.Send(
			t.Context(),
			admin,
			http.MethodPost,
			path,
			"",
			map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": "any"}},
		)
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, r.Code)
	}
	if want := []int{http.StatusUnprocessableEntity, http.StatusUnprocessableEntity}; !slices.Equal(codes, want) {
		t.Errorf("the administrator's other writes are answered %v, want %v", codes, want)
	}
	r, err := c.Send(
		t.Context(),
		admin,
		http.MethodDelete,
		webhooksPath+"validatingadmissionpolicybindings/never",
		"",
		nil,
	)
	if err != nil || r.Code != http.StatusOK {
		t.Fatalf("the policy cannot be taken away: %d %s, %v", r.Code, r.Status(), err)
	}
	for _, u := range []*User{ann, admin} {
		c.writes(t, u, http.StatusCreated)
	}
}
