package verification_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/advice/verification"
	"github.com/authzconf/authzconf/conformance/matrix/matrixtest"
	"github.com/authzconf/authzconf/scenarios"
)

// TestRun verifies permissions that are too few and too many. What was seen and is not granted must be reported, and
// what is granted and was not seen. The test of the command checks that right permissions pass.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	cells := matrixtest.NewestCells(t, scenarios.GateOn)
	summary, err := advice.NewSummary(advice.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{"/api/v1/namespaces/default/pods/web", "/api/v1/namespaces/shop/pods/web", "/apis/apps/v1/namespaces/shop/deployments/web"} {
		err := summary.Add(&auditv1.Event{
			Stage: "ResponseComplete", Verb: "get", RequestURI: uri, User: authenticationv1.UserInfo{Username: "d"},
			ImpersonatedUser: &authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}},
		}, false)
		if err != nil {
			t.Fatal(err)
		}
	}
	grants := slices.DeleteFunc(summary.Advice().Grants, func(g scenarios.Grant) bool { return g.Namespace == "default" }) // too few
	for i, g := range grants {
		if slices.Contains(g.Resources, "pods") {
			grants[i].Verbs = append(slices.Clone(g.Verbs), "impersonate-on:user-info:delete", "impersonate-on:user-info:patch", "impersonate-on:user-info:update") // too many
		}
	}
	manifests, err := advice.Manifests(advice.RBAC(grants))
	if err != nil {
		t.Fatal(err)
	}
	seen := summary.Seen()
	neighbours, _ := advice.Neighbours(seen)
	result, err := verification.Run(context.Background(), verification.Options{
		Target: cells[0], Manifests: manifests, Seen: seen, Neighbours: neighbours, Progress: func(line string) { t.Log(line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	few, many := 0, 0
	for _, w := range result.Wrong {
		switch {
		case strings.Contains(w, "in default was seen, and is not allowed"):
			few++
		case strings.Contains(w, "was not seen (another verb), and is not denied"):
			many++
		default:
			t.Errorf("unexpected: %s", w)
		}
	}
	if few != 1 || many != 1 || result.Allowed != 2 || result.Denied != len(neighbours)-many {
		t.Errorf(
			"%d too few, %d too many, %d allowed, %d denied of %d: %q",
			few,
			many,
			result.Allowed,
			result.Denied,
			len(neighbours),
			result.Wrong,
		)
	}
}
