package scenarios

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxNodes is how many nodes a scenario may name: a target with the capability has at least so many.
const maxNodes = 2

// nodes checks the names that stand for real nodes. They are replaced like names that are made unique, so the same
// must hold of them.
func (c *checker) nodes() {
	if len(c.s.Nodes) > maxNodes {
		c.fail(at("nodes"), "there are %d nodes (expected at most %d)", len(c.s.Nodes), maxNodes)
	}
	if len(c.s.Nodes) == 0 {
		if slices.Contains(c.s.Requires.Capabilities, KubeletNodes) {
			c.fail(at("requires", "capabilities"), "capability %q is listed without nodes (expected nodes, from which it follows)", KubeletNodes)
		}
		return
	}
	inText := map[string]bool{}
	for _, n := range c.s.Nodes {
		inText[n] = true
	}
	clash := ambiguous(inText, c.s.words())
	unnamed := *c.s
	unnamed.Nodes = nil
	for i, n := range c.s.Nodes {
		path := at("nodes", i)
		switch _, ambiguous := clash[n]; {
		case len(validation.IsDNS1123Subdomain(n)) > 0:
			c.fail(path, "the node name %q is not valid (expected lower-case letters, digits, '-' and '.')", n)
		case slices.Contains(c.s.Nodes[:i], n):
			c.fail(path, "the node name %q is listed twice (expected each once)", n)
		case ambiguous:
			c.fail(path, "the node name %q is also a word of the scenario or of Kubernetes (expected a name that can be replaced wherever it stands)", n)
		case !unnamed.mentions(n):
			c.fail(path, "the node name %q occurs nowhere (expected a name that the scenario uses)", n)
		}
	}
}

// running checks a service account whose pod really runs.
func (c *checker) running(sa *ServiceAccount, path []any) {
	if !sa.Running {
		if slices.Contains(c.s.Nodes, sa.Node) && sa.Node != "" {
			c.fail(extend(path, "node"), "node %q is a real node, and running is not given (expected both)", sa.Node)
		}
		return
	}
	path = extend(path, "running")
	if sa.Pod == "" {
		c.fail(path, "running is given without pod (expected both)")
	}
	if !slices.Contains(c.s.Nodes, sa.Node) {
		c.fail(path, "running is given with node %q (expected one of the scenario's nodes)", sa.Node)
	}
	if sa.NodeObject != nil {
		c.fail(path, "running is given with nodeObject (expected one of the two: a real node has its object)")
	}
}

// Pods are the pods that the scenario runs on real nodes, by namespace and name: those of requestors, and objects
// that name such a node.
func (s *Scenario) Pods() [][2]string {
	var out [][2]string
	add := func(node, namespace, name string) {
		key := [2]string{namespace, name}
		if slices.Contains(s.Nodes, node) && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	for _, r := range s.Requestors {
		if sa := r.ServiceAccount; sa != nil && sa.Running {
			add(sa.Node, sa.Namespace, sa.Pod)
		}
	}
	for _, m := range slices.Concat(s.Manifests, s.Objects) {
		if Text(m, "kind") == "Pod" {
			add(Text(m, "spec", "nodeName"), Text(m, "metadata", "namespace"), Text(m, "metadata", "name"))
		}
	}
	return out
}
