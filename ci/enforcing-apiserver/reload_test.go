package enforcing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	kubeauthorizer "k8s.io/kubernetes/pkg/kubeapiserver/authorizer"
)

// chainOf is an AuthorizationConfiguration with one webhook of a name, which nobody serves.
func chainOf(name, kubeconfig string) string {
	return fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: %s
  webhook:
    authorizedTTL: 1s
    unauthorizedTTL: 1s
    timeout: 1s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}
`, name, kubeconfig)
}

const nobody = `{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: "https://127.0.0.1:1/"}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`

// write puts a file in the place of another at once, as who reloads a configuration does.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// TestReload: kube-apiserver's own authorizer, nothing of ours before it, evaluates conditions by the configuration of the
// moment. A decision of an authorizer that was renamed or taken away in between fails closed; the one that has its name by then is
// asked. No authorizer of this version answers with conditions, so the decision is made here, as its union would make it.
func TestReload(t *testing.T) {
	folder := t.TempDir()
	kubeconfig, file := filepath.Join(folder, "kubeconfig"), filepath.Join(folder, "authorization.yaml")
	write(t, kubeconfig, nobody)
	write(t, file, chainOf("before", kubeconfig))
	config, read, err := kubeauthorizer.LoadAndValidateFile(file, authorizationcel.NewDefaultCompiler(), nil)
	if err != nil {
		t.Fatal(err)
	}
	reloadable, _, err := kubeauthorizer.Config{
		AuthorizationConfiguration: config, InitialAuthorizationConfigurationData: read, ReloadFile: file,
		WebhookRetryBackoff: &wait.Backoff{Steps: 1},
	}.New(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	var chain authorizer.ConditionsAwareDecisionUnion
	chain.Add(
		"before",
		authorizer.ConditionsAwareDecisionConditionsMap(
			[]authorizer.Condition{authorizer.GenericCondition{ID: "example.com/a", Condition: "true"}},
			nil,
			nil,
		),
	)
	evaluate := func() (authorizer.Decision, error) {
		d, _, err := reloadable.EvaluateConditions(t.Context(), chain.ToDecision(), nil)
		return d, err
	}
	// The webhook that has the name is asked: it knows no conditions in this version.
	if d, err := evaluate(); d != authorizer.DecisionDeny || !errors.Is(err, authorizer.ErrorConditionEvaluationNotSupported) {
		t.Errorf("before: %s, %v; want Deny by the webhook, which does not support it", d, err)
	}
	for _, step := range []struct{ name, problem string }{
		{"after", `couldn't find authorizer with name: "before"`},
		{"before", authorizer.ErrorConditionEvaluationNotSupported.Error()},
	} {
		write(t, file, chainOf(step.name, kubeconfig))
		var last error
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
			d, err := evaluate()
			if last = err; d != authorizer.DecisionDeny {
				return false, fmt.Errorf("a decision that may be Deny is evaluated to %s, %w", d, err)
			}
			return err != nil && strings.Contains(err.Error(), step.problem), nil
		})
		if err != nil {
			t.Fatalf("the webhook is called %s by now: %v, %v; want %q", step.name, last, err, step.problem)
		}
	}
}
