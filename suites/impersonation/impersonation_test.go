// Package impersonation is the suite of scenarios about impersonation, on the cells of its flags.
package impersonation

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/suites"
)

var suite = suites.Register(suites.Suite{
	Name:      "impersonation",
	Prefix:    "[sig-auth] Impersonation [FeatureGate:ConstrainedImpersonation] [Beta]",
	Product:   conformance.Product,
	Arguments: []string{"--suite=impersonation"},
})

func TestImpersonation(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite.RunSpecs(t)
}
