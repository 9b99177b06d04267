package environment_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/suites/environment"
	"github.com/authzconf/authzconf/verdicts"
)

var testenv = environment.New(environment.Options{Kubernetes: "1.37", Gate: scenarios.GateOn})

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: starts a control plane")
		os.Exit(0)
	}
	os.Exit(testenv.Run(m))
}

// TestScenarios checks that built-in scenarios can be steps of a feature.
func TestScenarios(t *testing.T) {
	feature := features.New("constrained impersonation").
		Assess("one object by its name", environment.Scenario("kep-5284/requests/get-by-name")).
		Assess("a chain that is not here", environment.Scenario("kubernetes/chains/abac-readonly-allows-the-action")).
		Feature()
	testenv.Test(t, feature)
}

// TestReviews checks that a step sees what the API server asked, at both ends of the chain.
func TestReviews(t *testing.T) {
	feature := features.New("the recorder").
		Assess("sees the review of a request that nobody allows", func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
			target := environment.ServerOf(ctx)
			client, err := kubernetes.NewForConfig(target.UserConfig(scenarios.Requestor{User: "alice"}))
			if err != nil {
				t.Fatal(err)
			}
			mark := target.Mark()
			_, err = client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			if !apierrors.IsForbidden(err) {
				t.Errorf("%v", err)
			}
			seen := target.Reviews(mark, "alice")
			if len(seen) != 2 || seen[0].Point != verdicts.Front || seen[0].Spec.ResourceAttributes.Verb != "list" {
				t.Errorf("the reviews are %+v", seen)
			}
			return ctx
		}).
		Feature()
	testenv.Test(t, feature)
}

// TestOptions checks that impossible options are an error before anything starts.
func TestOptions(t *testing.T) {
	for want, o := range map[string]environment.Options{
		`the provider "existing" gives no cluster with a recorder: expected one of ["local" "kind"`: {Provider: "existing"},
		`the provider "moon" gives no cluster with a recorder: expected one of ["local" "kind"`:     {Provider: "moon"},
		`there is no authorizer chain "moon"`:                                                       {Chain: "moon"},
	} {
		if _, err := environment.NewProvider(o).Create(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v (expected %s)", err, want)
		}
	}
}
