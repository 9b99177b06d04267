// Package deputy is the suite of proxies and dashboards that act for their users.
package deputy

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/authzconf/authzconf/deputy"
	"github.com/authzconf/authzconf/suites"
)

var suite = suites.Register(suites.Suite{
	Name: "deputy", Prefix: "[sig-auth] Deputies that impersonate [FeatureGate:ConstrainedImpersonation] [Beta]", Product: deputy.Product,
})

func TestDeputy(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite.RunSpecs(t)
}
