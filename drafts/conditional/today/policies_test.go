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

// signing is a webhook that allows everything, and says to one check, sign of what no API server serves unless it is told
// about another, what it is told to.
type signing struct {
	mu     sync.Mutex
	status string
	about  func(authorizationv1.ResourceAttributes) bool
	asked  []authorizationv1.SubjectAccessReviewSpec // the reviews about that check
	raw    []string                                  // the same as they were sent
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

// say has it give an answer from now on, and forget what it was asked.
func (s *signing) say(status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.asked, s.raw = status, nil, nil
}

// admissionPolicy makes a ValidatingAdmissionPolicy about writes of some resources, and binds it.
func (c *Cluster) admissionPolicy(t *testing.T, name string, resources []string, expressions ...string) {
	t.Helper()
	var validations []any
	for _, e := range expressions {
		validations = append(validations, map[string]any{"expression": e})
	}
	rule := map[string]any{"apiGroups": []string{"*"}, "apiVersions": []string{"*"}, "resources": resources, "operations": []string{"*"}}
	c.bindPolicy(t, name, map[string]any{"failurePolicy": "Fail", "matchConstraints": map[string]any{"resourceRules": []any{rule}}, "validations": validations})
}

// bindPolicy makes a ValidatingAdmissionPolicy of a spec, and binds it.
func (c *Cluster) bindPolicy(t *testing.T, name string, spec map[string]any) {
	t.Helper()
	for _, m := range []Made{
		{webhooksPath + "validatingadmissionpolicies", map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": name}, "spec": spec,
		}},
		{webhooksPath + "validatingadmissionpolicybindings", map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"policyName": name, "validationActions": []string{"Deny"}},
		}},
	} {
		if err := c.Make(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

const configMaps = "/api/v1/namespaces/default/configmaps?dryRun=All"

// configMap is one that says who signs.
func configMap(signer string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"generateName": "signed-"}, "data": map[string]any{"signer": signer}}
}

// writes waits until a write of a user is answered with a code, and says what it is answered otherwise.
func (c *Cluster) writes(t *testing.T, u *User, code int) {
	t.Helper()
	last := Response{}
	if err := until(t.Context(), fmt.Sprintf("a write is answered %d", code), func(ctx context.Context) (_ bool, err error) {
		last, err = c.Send(ctx, u, http.MethodPost, configMaps, "", configMap("anna"))
		return last.Code == code, err
	}); err != nil {
		t.Errorf("%v, but %d %s", err, last.Code, last.Status())
	}
}

// TestSecondaryChecks: a ValidatingAdmissionPolicy that asks by the function authorizer asks the whole chain about what no
// API server serves, never for conditions, and once for each request. Conditions that come nevertheless allow nothing (section
// "ValidatingAdmissionPolicies": such checks fail closed).
func TestSecondaryChecks(t *testing.T) {
	c := start(t, StartOptions{})
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
				if asked.ResourceAttributes.Name != "bert" || asked.User != "ann" || strings.Contains(s.raw[i], "conditionalAuthorization") {
					t.Errorf("it is asked %s", s.raw[i])
				}
			}
		})
	}
}

// TestStaticFalse: whoever can make a ValidatingAdmissionPolicy can block every write with the expression false, that of
// cluster administrators too; only admission policies themselves are left to be taken away. The same expression as a policy of
// an authorizer blocks nobody (section "Why not just use ValidatingAdmissionPolicies?").
func TestStaticFalse(t *testing.T) {
	c := start(t, StartOptions{})
	admin, ann := &User{Name: "root", Groups: []string{"system:masters"}, Outside: true}, &User{Name: "ann"}
	policies := []vectors.Policy{{ID: "ann", Effect: vectors.Allow, Expression: `request.userInfo.username == "ann" && request.resource == "configmaps"`}}
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
		r, err := c.Send(t.Context(), admin, http.MethodPost, path, "", map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": "any"}})
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, r.Code)
	}
	if want := []int{http.StatusUnprocessableEntity, http.StatusUnprocessableEntity}; !slices.Equal(codes, want) {
		t.Errorf("the administrator's other writes are answered %v, want %v", codes, want)
	}
	if r, err := c.Send(t.Context(), admin, http.MethodDelete, webhooksPath+"validatingadmissionpolicybindings/never", "", nil); err != nil || r.Code != http.StatusOK {
		t.Fatalf("the policy cannot be taken away: %d %s, %v", r.Code, r.Status(), err)
	}
	for _, u := range []*User{ann, admin} {
		c.writes(t, u, http.StatusCreated)
	}
}
