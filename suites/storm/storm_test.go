// Package storm is the suite of storms of node agents: each prediction, limit and threshold.
package storm

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/authzconf/authzconf/loadgen"
	"github.com/authzconf/authzconf/suites"
)

var suite = suites.Register(suites.Suite{
	Name:    "storm",
	Prefix:  "[sig-auth] [sig-scalability] Impersonation under load [FeatureGate:ConstrainedImpersonation] [Beta]",
	Product: loadgen.Product,
})

// TestMain runs as the recorder or a shard of a storm, if a storm has started this program as one of them.
func TestMain(m *testing.M) {
	isPart, err := loadgen.ServePart(context.Background(), os.Args[1:], os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if isPart {
		return
	}
	m.Run()
}

func TestStorm(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite.RunSpecs(t)
}
