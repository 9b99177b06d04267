package mutants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/server"
)

// upstreamSuite is the program of the tests in upstream/, which are written for Kubernetes' own repository.
type upstreamSuite struct {
	program string
	folder  string
	runs    int
}

// upstreamTimeout is how long one run may take. Without a fault it takes seconds.
const upstreamTimeout = 2 * time.Minute

// newUpstreamSuite takes the program that UPSTREAM_E2E names.
func newUpstreamSuite(t *testing.T) *upstreamSuite {
	t.Helper()
	program := os.Getenv("UPSTREAM_E2E")
	if program == "" {
		t.Skip("UPSTREAM_E2E names no program of the tests in upstream/ (make upstream-mutants)")
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("UPSTREAM_E2E: %v: expected the program that make upstream-mutants builds", err)
	}
	return &upstreamSuite{program: program, folder: t.TempDir()}
}

// prepare writes a kubeconfig of a server and creates a Node object, which nothing else does on a control plane without a
// kubelet.
func (u *upstreamSuite) prepare(ctx context.Context, s *server.Server) (kubeconfig string, err error) {
	client, err := kubernetes.NewForConfig(s.Admin())
	if err != nil {
		return "", err
	}
	nodes := client.CoreV1().Nodes()
	node, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "upstream-e2e"}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	node.Spec.Taints = nil
	if node, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return "", err
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return "", err
	}
	text, err := clusters.Kubeconfig("upstream", s.Admin())
	if err != nil {
		return "", err
	}
	u.runs++
	kubeconfig = filepath.Join(u.folder, fmt.Sprintf("kubeconfig-%d", u.runs))
	return kubeconfig, os.WriteFile(kubeconfig, text, 0o600)
}

// run runs the tests on a server, and returns the name of the first that fails, or nothing if all pass. Without the feature
// gate those of constrained impersonation are left out, as they are in the project's jobs.
func (u *upstreamSuite) run(ctx context.Context, kubeconfig string, gateOn bool) (failed string, err error) {
	u.runs++
	report := filepath.Join(u.folder, fmt.Sprintf("report-%d.json", u.runs))
	args := []string{
		"--kubeconfig", kubeconfig, "--provider", "skeleton", "--e2e-verify-service-account=false",
		"--ginkgo.fail-fast", "--ginkgo.seed=1", "--ginkgo.json-report", report,
	}
	if !gateOn {
		args = append(args, "--ginkgo.label-filter", "!FeatureGate:ConstrainedImpersonation")
	}
	inTime, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	command := exec.CommandContext(inTime, u.program, args...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	output, err := command.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err == nil:
		return "", nil
	case inTime.Err() != nil:
		return "(no end in " + upstreamTimeout.String() + ")", nil
	}
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		return "", err
	}
	if failed, err = failedSpec(report); err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	return failed, nil
}

// failedSpec returns the name of the spec that failed by Ginkgo's report, without its labels.
func failedSpec(report string) (string, error) {
	text, err := os.ReadFile(report)
	if err != nil {
		return "", err
	}
	var suites []struct {
		SpecReports []struct {
			State        string
			LeafNodeText string
			Failure      struct{ Message string }
		}
	}
	if err := json.Unmarshal(text, &suites); err != nil {
		return "", err
	}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			switch spec.State {
			case "passed", "skipped", "pending":
			default:
				name, _, _ := strings.Cut(spec.LeafNodeText, " [")
				return name, nil
			}
		}
	}
	return "", errors.New("the tests failed, and no test of the report did")
}
