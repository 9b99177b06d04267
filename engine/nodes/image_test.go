package nodes

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestObjects checks that no name of the manifest is left: two runs on one
// cluster must not meet.
func TestObjects(t *testing.T) {
	all, _, err := objects("run-x1")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, o := range all {
		kinds[o.GetObjectKind().GroupVersionKind().Kind] = true
		if o.GetName() != "run-x1" ||
			o.GetNamespace() != "" && o.GetNamespace() != "run-x1" {
			t.Errorf("%T is called %s/%s", o, o.GetNamespace(), o.GetName())
		}
		switch o := o.(type) {
		case *rbacv1.ClusterRoleBinding:
			if s := o.Subjects[0]; s.Name != "run-x1" || s.Namespace != "run-x1" || o.RoleRef.Name != "run-x1" {
				t.Errorf("the binding is of %+v to %+v", s, o.RoleRef)
			}
		case *appsv1.DaemonSet:
			if got := o.Spec.Template.Spec.ServiceAccountName; got != "run-x1" {
				t.Errorf("the DaemonSet runs as %s", got)
			}
		}
	}
	if len(all) != 5 || len(kinds) != 5 {
		t.Errorf("%d objects of %d kinds", len(all), len(kinds))
	}
}

// TestPod holds what a token of a real pod depends on.
func TestPod(t *testing.T) {
	pod, err := Pod("agent-0", "agent", "node7")
	if err != nil {
		t.Fatal(err)
	}
	spec := pod.Spec
	if pod.Name != "agent-0" || spec.NodeName != "node7" || spec.ServiceAccountName != "agent" ||
		spec.Containers[0].ImagePullPolicy != corev1.PullNever {
		raw, _ := yaml.Marshal(pod)
		t.Errorf("the pod is\n%s", raw)
	}
	if spec.Volumes[0].Projected == nil || spec.Volumes[0].Projected.Sources[0].ServiceAccountToken == nil {
		t.Error("no token is projected")
	}
	other, err := Pod("agent-1", "agent", "node8")
	if err != nil || other.Spec.NodeName == pod.Spec.NodeName {
		t.Errorf("the second pod is on %s: %v", other.Spec.NodeName, err)
	}
}

// TestImage builds the agent as a user does.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the agent")
	}
	got, err := agentImage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(got.Program), "\x7fELF") || got.Path != agentPath || got.User != 65532 ||
		!strings.Contains(got.Name, "node-agent:") {
		t.Errorf("%s: %d bytes at %s as user %d", got.Name, len(got.Program), got.Path, got.User)
	}
}

func TestImageNeedsTheProgram(t *testing.T) {
	t.Setenv(AgentVariable, t.TempDir()+"/none")
	if _, err := agentImage(t.Context()); err == nil {
		t.Error("an agent that is not there was taken")
	}
}
