// Package storm is the suite of storms of node agents: each prediction, limit and threshold.
package storm

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/authzconf/authzconf/loadgen"
	"github.com/authzconf/authzconf/suites"
)

var suite = suites.Register(suites.Suite{
	Name: "storm", Prefix: "[sig-auth] [sig-scalability] Impersonation under load [FeatureGate:ConstrainedImpersonation] [Beta]", Product: loadgen.Product,
})

func TestStorm(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite.RunSpecs(t)
}
