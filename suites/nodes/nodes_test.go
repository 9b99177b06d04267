// Package nodes is the suite about pods on real nodes, and the node agents in them. It needs --provider kind.
package nodes

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/suites"
)

var suite = suites.Register(suites.Suite{
	Name:      "nodes",
	Prefix:    "[sig-auth] [sig-node] Impersonation of nodes [FeatureGate:ConstrainedImpersonation] [Beta]",
	Product:   conformance.Product,
	Arguments: []string{"--focus=^(kep-5284/nodes|node-agents)/"},
})

func TestNodes(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite.RunSpecs(t)
}
