package today

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// TestActivationWindow checks two windows. A ValidatingAdmissionPolicy is not yet in force when the API server has
// answered that it is created, and is still in force after it is deleted. A user who grants by an authorizer and
// restricts by a policy has to create the policy first, and to wait (section "Why not just use
// ValidatingAdmissionPolicies?": strict ordering of creates and deletes).
func TestActivationWindow(t *testing.T) {
	c := startForTest(t, StartOptions{})
	c.answer(&signing{status: `{"allowed":false}`}) // which allows every write
	ann, through, after := &User{Name: "ann"}, 0, 0
	for round := range 5 {
		name := fmt.Sprintf("window-%d", round)
		c.admissionPolicy(t, name, []string{"configmaps"}, "false")
		let, opened := c.countWrites(t, ann, http.StatusCreated, http.StatusUnprocessableEntity)
		for _, resource := range []string{"validatingadmissionpolicybindings/", "validatingadmissionpolicies/"} {
			r, err := c.Send(t.Context(), nil, http.MethodDelete, webhooksPath+resource+name, "", nil)
			if err != nil || r.Code != http.StatusOK {
				t.Fatalf("the policy cannot be taken away: %d %s, %v", r.Code, r.Status(), err)
			}
		}
		refused, closed := c.countWrites(t, ann, http.StatusUnprocessableEntity, http.StatusCreated)
		t.Logf(
			"round %d: %d writes are let through in %s after the policy is made, %d refused in %s after it is taken away",
			round,
			let,
			opened,
			refused,
			closed,
		)
		through, after = through+let, after+refused
	}
	if through == 0 || after == 0 {
		t.Errorf(
			"in 5 rounds %d writes are let through by a policy that is made, and %d refused by one that is taken away: there is no window any more",
			through,
			after,
		)
	}
}

// countWrites counts the writes that are answered with a code until one is answered with the next.
func (c *Cluster) countWrites(t *testing.T, u *User, code, next int) (n int, took time.Duration) {
	t.Helper()
	began := time.Now()
	err := until(t.Context(), fmt.Sprintf("a write is answered %d", next), func(ctx context.Context) (bool, error) {
		r, err := c.Send(ctx, u, http.MethodPost, configMaps, "", configMap("anna"))
		switch {
		case err == nil && r.Code == code:
			n++
		case err == nil && r.Code != next:
			err = fmt.Errorf("a write is answered %d: %s", r.Code, r.Status())
		}
		return err == nil && r.Code == next, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n, time.Since(began).Round(time.Millisecond)
}

// TestJudgedForNothing checks that the API server calls an admission webhook for every request that its rules name.
// Nothing in an AdmissionReview says by which decision the request was authorized. So the webhook also judges requests
// without conditions, whoever has allowed them (section "Why not just use ValidatingAdmissionPolicies?": "for every
// request in the worst case").
func TestJudgedForNothing(t *testing.T) {
	c := startForTest(t, StartOptions{})
	s, err := reference.NewSnapshot([]vectors.Policy{
		{ID: "any", Effect: vectors.Allow, Expression: `request.userInfo.username == "carl" && request.resource == "configmaps"`},
		{ID: "blue", Effect: vectors.Allow, Expression: `request.userInfo.username == "ann" && request.resource == "configmaps" && object.data.signer == "ann"`},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Authorizer.Use(s)
	for _, m := range mayCreateConfigMaps("maker") {
		if err := c.Make(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	c.writes(t, &User{Name: "maker"}, http.StatusCreated) // RBAC heeds the role
	c.judgeCreates(t)
	const requests = 10
	for _, by := range []struct {
		user, why string
	}{
		{"ann", "on a condition"}, {"carl", "by the same authorizer, without one"}, {"maker", "by RBAC, the webhook has no opinion"},
	} {
		before := c.Judged.Load()
		for range requests {
			r, err := c.Send(t.Context(), &User{Name: by.user}, http.MethodPost, configMaps, "", configMap("ann"))
			if err != nil || r.Code != http.StatusCreated {
				t.Fatalf("allowed %s: code %d (%s), %v", by.why, r.Code, r.Status(), err)
			}
		}
		if judged := c.Judged.Load() - before; judged != requests {
			t.Errorf("allowed %s: %d requests are judged %d times", by.why, requests, judged)
		}
	}
}

// mayCreateConfigMaps is a role of RBAC for a user, and its binding.
func mayCreateConfigMaps(user string) []Made {
	const group, path = "rbac.authorization.k8s.io", "/apis/rbac.authorization.k8s.io/v1/"
	named := map[string]any{"name": user}
	return []Made{
		{path + "clusterroles", map[string]any{"metadata": named, "rules": []any{map[string]any{"apiGroups": []string{""}, "resources": []string{"configmaps"}, "verbs": []string{"create"}}}}},
		{path + "clusterrolebindings", map[string]any{
			"metadata": named, "roleRef": map[string]any{"apiGroup": group, "kind": "ClusterRole", "name": user},
			"subjects": []any{map[string]any{"apiGroup": group, "kind": "User", "name": user}},
		}},
	}
}
