// Package granular is the suite of granular verbs (KEP-3617), which no release implements.
package granular

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/authzconf/authzconf/drafts/granular"
	"github.com/authzconf/authzconf/suites"
)

var suite = suites.Register(suites.Suite{
	Name: "granular", Prefix: "[sig-auth] Granular verbs [Alpha]", Product: granular.Product,
})

func TestGranular(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite.RunSpecs(t)
}
