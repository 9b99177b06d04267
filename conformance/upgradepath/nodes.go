package upgradepath

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/server"
)

// nodesPrefix begins a stage on the command line that replaces the kubelets.
const nodesPrefix = "nodes="

// ReplacesNodes reports whether the kubelets of all nodes are replaced on the way to the stage, and nothing else.
func (l Stage) ReplacesNodes() bool { return l.Nodes != "" }

// inheritServers gives each stage that replaces nodes the API server of the stage before. at says where a stage is written.
func (p *Path) inheritServers(at func(stage int) string) error {
	for i := range p.Stages {
		stage := &p.Stages[i]
		if !stage.ReplacesNodes() {
			continue
		}
		nodesStage := Stage{Nodes: stage.Nodes, Make: stage.Make}
		isOnly := stage.Kubernetes+stage.Emulate+string(stage.Gate)+stage.Chain+string(stage.Fault) == ""
		switch {
		case !isOnly:
			return fmt.Errorf(
				"%s: nodes are replaced on a stage of their own (expected nothing beside nodes: the API server stays what it is)",
				at(i),
			)
		case i == 0:
			return fmt.Errorf("%s: nodes are replaced after another stage (expected a version of the API server first)", at(i))
		}
		*stage = p.Stages[i-1]
		stage.Nodes, stage.Make, stage.Fault = nodesStage.Nodes, nodesStage.Make, ""
	}
	return nil
}

// checkNodes checks that a stage that replaces the nodes names a version that they do not have yet.
func (p *Path) checkNodes(i int, stage Stage) error {
	if p.HighAvailability {
		return errors.New("highAvailability is for paths whose nodes stay")
	}
	release, err := local.ParseRelease(stage.Nodes)
	if err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")) // a hint has a line of its own
	}
	for _, before := range slices.Backward(p.Stages[:i]) {
		if before.ReplacesNodes() && before.Nodes == stage.Nodes {
			return fmt.Errorf("the nodes are of %s already: a stage has to change something", release.Minor)
		}
		if before.ReplacesNodes() {
			break
		}
	}
	return nil
}

// followNodes sets in the options of each stage which versions its nodes have, and checks them against the version skew policy.
func (p *Path) followNodes(base matrix.Matrix, targets []server.Options) error {
	if !base.Capabilities().Nodes {
		if i := slices.IndexFunc(p.Stages, Stage.ReplacesNodes); i >= 0 {
			return fmt.Errorf(
				"stage %d: clusters of the provider %s have no nodes to replace: expected --provider %s",
				i+1,
				base.Provider,
				server.Kind,
			)
		}
		return nil
	}
	kubelets := listKubelets(targets[0])
	isOwn := len(base.Nodes) > 0 // whether nodes have versions of their own
	for i, stage := range p.Stages {
		o := &targets[i]
		if stage.ReplacesNodes() {
			release, err := local.ParseRelease(stage.Nodes)
			if err != nil {
				return err
			}
			kubelets, isOwn = slices.Repeat([]string{release.Version}, len(kubelets)), true
			o.Cell.Name += "-nodes-" + release.Minor
		}
		if err := kind.CheckSkew([]string{o.Release.Version}, kubelets); err != nil {
			return fmt.Errorf("stage %d, %s: %w", i+1, stage, err)
		}
		if isOwn {
			o.Cell.Nodes = strings.Join(kubelets[1:], ",")
		}
	}
	return nil
}

// listKubelets returns the versions of the kubelets that a cluster is made with, that of its control plane first.
func listKubelets(o server.Options) []string {
	kubelets := []string{o.Release.Version}
	if len(o.Workers) == 0 {
		return append(kubelets, o.Release.Version)
	}
	for _, w := range o.Workers {
		kubelets = append(kubelets, w.Version)
	}
	return kubelets
}

// NodeImage returns the node image that the kubelets of a stage come from, empty if it is the usual one of their version.
func (l Stage) NodeImage(base matrix.Matrix) string {
	release, err := local.ParseRelease(l.Nodes)
	if err != nil {
		return ""
	}
	return base.NodeImages[release.Minor]
}
