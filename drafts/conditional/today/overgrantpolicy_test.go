package today

import (
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// policyAboutCreates is a ValidatingAdmissionPolicy about creates of ConfigMaps.
func policyAboutCreates(validations ...any) map[string]any {
	rule := map[string]any{
		"apiGroups":   []string{""},
		"apiVersions": []string{"v1"},
		"resources":   []string{"configmaps"},
		"operations":  []string{"CREATE"},
	}
	return map[string]any{
		"failurePolicy":    "Fail",
		"matchConstraints": map[string]any{"resourceRules": []any{rule}},
		"validations":      validations,
	}
}

// unbind deletes the binding of a policy.
func (c *Cluster) unbind(t *testing.T, name string) {
	t.Helper()
	r, err := c.Send(t.Context(), nil, http.MethodDelete, webhooksPath+"validatingadmissionpolicybindings/"+name, "", nil)
	if err != nil || r.Code != http.StatusOK {
		t.Fatalf("the policy %s cannot be taken away: %d %s, %v", name, r.Code, r.Status(), err)
	}
}

// TestOverGrantByPolicy checks what the text says about a use case by RBAC and a ValidatingAdmissionPolicy (section
// "Why not just use ValidatingAdmissionPolicies?"). RBAC grants too much, and the policy restricts it. The policy has
// to name the user again, or it also judges other users. An access review does not show the policy. Without the policy
// the grant stays.
func TestOverGrantByPolicy(t *testing.T) {
	p := newPlayer(startForTest(t, StartOptions{}))
	c, ann, carl := p.Cluster, &User{Name: "ann"}, &User{Name: "carl"}
	for _, u := range []*User{ann, carl} {
		for _, m := range mayCreateConfigMaps(u.Name) {
			if err := c.Make(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		c.writes(t, u, http.StatusCreated)
	}
	own := map[string]any{"expression": "object.data.signer == 'ann'"}
	c.bindPolicy(t, "about-everybody", policyAboutCreates(own))
	c.writes(t, ann, http.StatusUnprocessableEntity)
	c.writes(t, carl, http.StatusUnprocessableEntity) // carl's grant was not meant to be restricted
	c.unbind(t, "about-everybody")
	c.writes(t, ann, http.StatusCreated)
	about := policyAboutCreates(own)
	about["matchConditions"] = []any{map[string]any{"name": "user", "expression": "request.userInfo.username == 'ann'"}}
	c.bindPolicy(t, "about-ann", about)
	c.writes(t, ann, http.StatusUnprocessableEntity)
	for _, step := range []struct {
		u      *User
		signer string
		code   int
	}{{ann, "ann", http.StatusCreated}, {ann, "bert", http.StatusUnprocessableEntity}, {carl, "bert", http.StatusCreated}} {
		r, err := c.Send(t.Context(), step.u, http.MethodPost, configMaps, "", configMap(step.signer))
		if err != nil || r.Code != step.code {
			t.Errorf("%s creates one of %s: code %d (%s), %v; want %d", step.u.Name, step.signer, r.Code, r.Status(), err, step.code)
		}
	}
	attributes := authorizationv1.ResourceAttributes{Verb: "create", Version: "v1", Resource: "configmaps", Namespace: "default"}
	if allowed, err := p.canI(t.Context(), ann, attributes); err != nil || !allowed {
		t.Errorf("an access review of what a policy may refuse says allowed: %t, %v", allowed, err)
	}
	c.unbind(t, "about-ann")
	c.writes(t, ann, http.StatusCreated) // the signer is anna, which was not meant to be allowed
}

// TestErrorsAreAbsorbed checks the CEL of an API server: an error beside && or || has no effect if the other side
// decides, whichever side the error is on (section "Computing a concrete decision from a ConditionSet" says that these
// operators do not commute).
func TestErrorsAreAbsorbed(t *testing.T) {
	c := startForTest(t, StartOptions{})
	c.answer(&signing{status: `{"allowed":false}`}) // which allows every write
	ann := &User{Name: "ann"}
	c.writes(t, ann, http.StatusCreated)
	const isError = "object.data.missing == 'x'"
	absorbed := []string{"!(" + isError + " && false)", "!(false && " + isError + ")", isError + " || true", "true || " + isError}
	last := "!(" + isError + " && true)"
	var validations []any
	for _, e := range append(absorbed, last) {
		validations = append(validations, map[string]any{"expression": e})
	}
	c.bindPolicy(t, "absorbs", policyAboutCreates(validations...))
	c.writes(t, ann, http.StatusUnprocessableEntity)
	// The answer names the first expression that refuses the request.
	r, err := c.Send(t.Context(), ann, http.MethodPost, configMaps, "", configMap("anna"))
	if want := "expression '" + last + "' resulted in error: no such key: missing"; err != nil || !strings.Contains(r.Status(), want) {
		t.Errorf("code %d (%s), %v; want %q", r.Code, r.Status(), err, want)
	}
}
