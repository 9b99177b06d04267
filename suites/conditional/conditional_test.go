// Package conditional is the suite of conditional authorization (KEP-5681), which no release implements.
package conditional

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/authzconf/authzconf/drafts/conditional/conditions"
	"github.com/authzconf/authzconf/suites"
)

var suite = suites.Register(suites.Suite{
	Name:    "conditional",
	Prefix:  "[sig-auth] Conditional authorization [FeatureGate:ConditionalAuthorization] [Alpha]",
	Product: conditions.Run,
})

func TestConditional(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite.RunSpecs(t)
}
