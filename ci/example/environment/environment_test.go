// Package environment tests with e2e-framework how an API server behaves, as the author of a dashboard, of a proxy or of
// a node agent would: features and steps of that framework, on a cluster whose access reviews can be looked at.
package environment

import (
	"context"
	"os"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/suites/environment"
)

// testenv has an API server with the recorder in its authorizer chain, and with the gate on.
var testenv = environment.New(environment.Options{Kubernetes: "1.37", Gate: scenarios.GateOn})

func TestMain(m *testing.M) { os.Exit(testenv.Run(m)) }

// dashboard is who impersonates; alice is the user that it shows something to.
const dashboard, alice = "dashboard", "alice"

// TestDashboard: a dashboard that may impersonate every user, but only to list pods, lists pods as Alice and nothing else.
func TestDashboard(t *testing.T) {
	feature := features.New("a dashboard with the permission to list pods as anybody").
		Setup(grant).
		Assess("lists pods as Alice", func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
			mark := environment.ServerOf(ctx).Mark()
			if _, err := asAlice(ctx, t).CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
			// The API server has asked whether the dashboard may impersonate, and then whether Alice may list pods.
			for _, user := range []string{dashboard, alice} {
				if len(environment.ServerOf(ctx).Reviews(mark, user)) == 0 {
					t.Errorf("nobody was asked what %s may do", user)
				}
			}
			return ctx
		}).
		Assess("does not list secrets as Alice", func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
			_, err := asAlice(ctx, t).CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
			if !apierrors.IsForbidden(err) {
				t.Errorf("the answer is %v (expected Forbidden)", err)
			}
			return ctx
		}).
		Assess("as the KEP says of all that is like it", environment.Scenario("kep-5284/requests/get-by-name")).
		Feature()
	testenv.Test(t, feature)
}

// asAlice is how the dashboard acts as Alice.
func asAlice(ctx context.Context, t *testing.T) kubernetes.Interface {
	t.Helper()
	config := environment.ServerOf(ctx).UserConfig(scenarios.Requestor{User: dashboard})
	config.Impersonate = rest.ImpersonationConfig{UserName: alice}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// grant gives the dashboard its two permissions of constrained impersonation, and Alice those of a reader.
func grant(ctx context.Context, t *testing.T, cfg *envconf.Config) context.Context {
	roles := map[string][]rbacv1.PolicyRule{
		dashboard: {
			{Verbs: []string{"impersonate:user-info"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"users"}},
			{Verbs: []string{"impersonate-on:user-info:list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		},
		alice: {{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods", "secrets"}}},
	}
	for user, rules := range roles {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
		if err := cfg.Client().Resources().Create(ctx, role); err != nil {
			t.Fatal(err)
		}
		if err := cfg.Client().Resources().Create(ctx, binding); err != nil {
			t.Fatal(err)
		}
	}
	return ctx
}
