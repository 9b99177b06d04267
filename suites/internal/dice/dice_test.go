// Package dice is a suite that needs no cluster. The tests of the suites run it as users run theirs.
package dice

import (
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/suites"
)

var suite = suites.Register(suites.Suite{
	Name: "dice", Prefix: "[sig-test] Dice", Product: producttest.Dice, Arguments: []string{"--limit=3"},
})

func TestDice(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite.RunSpecs(t)
}
