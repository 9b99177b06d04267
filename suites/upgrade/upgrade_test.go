// Package upgrade is the suite of upgrade paths: scenarios and claims on each stage.
package upgrade

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/authzconf/authzconf/conformance/upgrade"
	"github.com/authzconf/authzconf/suites"
)

var suite = suites.Register(suites.Suite{
	Name:    "upgrade",
	Prefix:  "[sig-auth] Impersonation along upgrades [FeatureGate:ConstrainedImpersonation] [Beta]",
	Product: upgrade.Product,
})

func TestUpgrade(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite.RunSpecs(t)
}
