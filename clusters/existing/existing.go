// Package existing is a cluster that somebody else made: what it is made of is read, nothing of it is changed, and
// everything that is made in it carries a label and is removed again.
package existing

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/authzconf/authzconf/reports"
)

// Cluster is an existing one, reached by a kubeconfig.
type Cluster struct {
	config  *rest.Config
	context string
	made    *made
	done    chan struct{}
}

// Open reads a kubeconfig. Nothing is sent yet.
func Open(kubeconfig, run string) (*Cluster, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read as a kubeconfig", kubeconfig)
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", kubeconfig, err)
	}
	config.QPS = -1
	c := &Cluster{config: config, context: raw.CurrentContext, made: newMade(run), done: make(chan struct{})}
	return c, nil
}

// Admin is whom the kubeconfig is for. What is created with it is labelled, and remembered.
func (c *Cluster) Admin() *rest.Config {
	config := rest.CopyConfig(c.config)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &labeller{c.made, next} })
	return config
}

// FrontProxy is nil: nobody may name users there.
func (c *Cluster) FrontProxy() *rest.Config { return nil }

// Anonymous carries no credentials.
func (c *Cluster) Anonymous() *rest.Config { return rest.AnonymousClientConfig(c.config) }

// Done is never closed: the cluster is not this process's to watch.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// Err is always nil.
func (c *Cluster) Err() error { return nil }

// Facts are what a cluster says of itself.
type Facts struct {
	// GitVersion is that of the API server, such as v1.37.1; Emulated the minor that it behaves as.
	GitVersion, Emulated string
	// GateOn says whether ConstrainedImpersonation is on.
	GateOn bool
	// Risks are the reasons to think that it is not there for tests.
	Risks []string
}

// maxNodes is how many nodes a cluster for tests has at most.
const maxNodes = 5

var (
	production = regexp.MustCompile(`(?i)(^|[^a-z])(prod|prd|production|live)([^a-z]|$)`)
	ownSpaces  = regexp.MustCompile(`^(kube-.*|default|local-path-storage|authzconf-.*)$`)
)

// Inspect reads what the cluster is. It changes nothing.
func (c *Cluster) Inspect(ctx context.Context) (f Facts, err error) {
	client, err := kubernetes.NewForConfig(rest.CopyConfig(c.config))
	if err != nil {
		return f, err
	}
	v, err := client.ServerVersionWithContext(ctx)
	if err != nil {
		return f, fmt.Errorf("the API server: %w", err)
	}
	f.GitVersion = v.GitVersion
	if f.Emulated = v.EmulationMajor + "." + v.EmulationMinor; v.EmulationMajor == "" {
		f.Emulated = ""
	}
	// Groups without a user are refused before anybody is asked for permission, in words that depend on the gate.
	err = client.RESTClient().Get().AbsPath("/version").SetHeader("Impersonate-Group", "authzconf").Do(ctx).Error()
	answer := fmt.Sprint(err)
	gate := reports.ProbedGate(answer)
	if f.GateOn = gate == "on"; gate == "unknown" {
		return f, fmt.Errorf("the API server does not say whether ConstrainedImpersonation is on: groups without a user are answered with %s", answer)
	}
	f.Risks, err = c.risks(ctx, client)
	return f, err
}

// risks looks for signs of production: names, many nodes, somebody's workload.
func (c *Cluster) risks(ctx context.Context, client kubernetes.Interface) (risks []string, err error) {
	for what, name := range map[string]string{"its context": c.context, "its address": c.config.Host} {
		if production.MatchString(name) {
			risks = append(risks, fmt.Sprintf("%s is %q", what, name))
		}
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: maxNodes + 1})
	if err != nil {
		return nil, fmt.Errorf("reading its nodes: %w", err)
	}
	if len(nodes.Items) > maxNodes {
		risks = append(risks, fmt.Sprintf("it has more than %d nodes", maxNodes))
	}
	spaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading its namespaces: %w", err)
	}
	for _, s := range spaces.Items {
		if s.Labels[Label] != "" {
			continue // an earlier run's
		}
		if production.MatchString(s.Name) {
			risks = append(risks, fmt.Sprintf("it has a namespace %q", s.Name))
		}
		if ownSpaces.MatchString(s.Name) {
			continue
		}
		pods, err := client.CoreV1().Pods(s.Name).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return nil, fmt.Errorf("reading the pods of its namespaces: %w", err)
		}
		if len(pods.Items) > 0 {
			risks = append(risks, fmt.Sprintf("somebody's pods run in namespace %q", s.Name))
		}
	}
	slices.Sort(risks)
	return risks, nil
}
