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

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// signing is a webhook that allows every write, and says to the verb sign, which no API server serves, what it is told to.
type signing struct {
	mu     sync.Mutex
	status string
	asked  []string // the reviews about sign
}

func (s *signing) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var review json.RawMessage
	var about struct {
		Spec struct{ ResourceAttributes struct{ Verb, Name string } }
	}
	status := `{"allowed":true}`
	if json.NewDecoder(req.Body).Decode(&review) != nil || json.Unmarshal(review, &about) != nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	if about.Spec.ResourceAttributes.Verb == "sign" {
		status, s.asked = s.status, append(s.asked, string(review))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":%s}`, status)
}

// admissionPolicy makes a ValidatingAdmissionPolicy about writes of some resources, and binds it.
func (c *Cluster) admissionPolicy(t *testing.T, name string, resources []string, expressions ...string) {
	var validations []any
	for _, e := range expressions {
		validations = append(validations, map[string]any{"expression": e})
	}
	rule := map[string]any{"apiGroups": []string{"*"}, "apiVersions": []string{"*"}, "resources": resources, "operations": []string{"*"}}
	for _, m := range []Made{
		{webhooksPath + "validatingadmissionpolicies", map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"failurePolicy": "Fail", "matchConstraints": map[string]any{"resourceRules": []any{rule}}, "validations": validations},
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
			s.status, s.asked = step.status, nil
			r, err := c.Send(t.Context(), ann, http.MethodPost, configMaps, "", configMap("bert"))
			if err != nil || r.Code != step.code {
				t.Errorf("code %d (%s), %v; want %d", r.Code, r.Status(), err, step.code)
			}
			if len(s.asked) != 1 {
				t.Errorf("two checks of one request ask %d times", len(s.asked))
			}
			for _, asked := range s.asked {
				if !strings.Contains(asked, `"name":"bert"`) || !strings.Contains(asked, `"user":"ann"`) || strings.Contains(asked, "conditionalAuthorization") {
					t.Errorf("it is asked %s", asked)
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
