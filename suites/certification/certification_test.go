// Package certification is the suite of webhook authorizers: what each level of a certification consists of.
package certification

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/suites"
)

var suite = suites.Register(suites.Suite{
	Name: "certification", Prefix: "[sig-auth] Certification of an authorizer", Product: certify.Product,
})

func TestCertification(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite.RunSpecs(t)
}
