package nodes

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/authzconf/authzconf/clusters/image"
	"github.com/authzconf/authzconf/fixtures"
)

const (
	// program is the agent's package, built from the module that this is.
	program = "github.com/authzconf/authzconf/engine/nodes/agent"
	// agentPath is the agent within its image.
	agentPath = "/agent"
	// AgentVariable names an agent that is built already, where there are no sources
	// or no Go: a static executable for the nodes' architecture.
	AgentVariable = "AUTHZCONF_NODE_AGENT"
	// manifest is the fixture with the objects that run the agent.
	manifest = "nodes/agent.yaml"
)

// agentImage builds the agent and wraps it into its image.
func agentImage(ctx context.Context) (image.Image, error) {
	set, err := daemonSet()
	if err != nil {
		return image.Image{}, err
	}
	return image.Of(ctx, set.Spec.Template.Spec, AgentVariable, program, agentPath)
}

// LoadAgent builds the image and puts it on the nodes.
func LoadAgent(ctx context.Context, nodes image.Loader) error {
	agent, err := agentImage(ctx)
	if err != nil {
		return fmt.Errorf("the node agent: %w", err)
	}
	return agent.Load(ctx, nodes)
}

// object is what both typed objects and their metadata are.
type object interface {
	metav1.Object
	GetObjectKind() schema.ObjectKind
}

// documents are the parts of the manifest.
func documents() ([]string, error) {
	raw, err := fixtures.FS.ReadFile(manifest)
	if err != nil {
		return nil, err
	}
	return strings.Split(string(raw), "\n---\n"), nil
}

// objects are what runs the agent on every node, in the order in which they are
// created. All names of the manifest, which are one, become name.
func objects(name string) ([]object, error) {
	parts, err := documents()
	if err != nil {
		return nil, err
	}
	var all []object
	for _, text := range parts {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", manifest, err)
		}
		named, ok := o.(object)
		if !ok {
			return nil, fmt.Errorf("%s has a %T", manifest, o)
		}
		rename(named, name)
		all = append(all, named)
	}
	return all, nil
}

// daemonSet is that of the manifest, under its own name.
func daemonSet() (*appsv1.DaemonSet, error) {
	parts, err := documents()
	if err != nil {
		return nil, err
	}
	var set appsv1.DaemonSet
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(parts[len(parts)-1]), nil, &set); err != nil {
		return nil, fmt.Errorf("%s: %w", manifest, err)
	}
	return &set, nil
}

// Pod is a single pod with the agent on a node, made like those of the DaemonSet. It does nothing by itself.
func Pod(name, account, node string) (*corev1.Pod, error) {
	set, err := daemonSet()
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: set.Spec.Template.Spec}
	pod.Spec.NodeName, pod.Spec.ServiceAccountName = node, account
	pod.Spec.Containers[0].Args = []string{"idle"}
	return pod, nil
}

// rename puts name in place of every name that an object of the manifest has or refers to.
func rename(o object, name string) {
	o.SetName(name)
	if o.GetNamespace() != "" {
		o.SetNamespace(name)
	}
	switch o := o.(type) {
	case *rbacv1.ClusterRoleBinding:
		o.RoleRef.Name = name
		for i := range o.Subjects {
			o.Subjects[i].Name, o.Subjects[i].Namespace = name, name
		}
	case *appsv1.DaemonSet:
		o.Spec.Template.Spec.ServiceAccountName = name
	}
}

// others tells the agents of a DaemonSet the names of all nodes, so that each tries to be the others too.
func others(set *appsv1.DaemonSet, nodes []string) {
	container := &set.Spec.Template.Spec.Containers[0]
	container.Env = append(container.Env, corev1.EnvVar{Name: "OTHER_NODE_NAMES", Value: strings.Join(nodes, ",")})
}
