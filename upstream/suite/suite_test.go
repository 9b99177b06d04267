// Package suite runs the tests of test/e2e/auth as the project's own e2e.test does, without the packages of other groups, so
// that it is compiled in minutes.
package suite

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"

	// The tests.
	_ "github.com/authzconf/authzconf/upstream/test/e2e/auth"

	// What e2e.test reconfigures of the framework.
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/utils/ktesting/format"
)

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

// TestE2E has the name that it has in e2e.test. A cluster is taken as it is: nodes are not waited for.
func TestE2E(t *testing.T) {
	logs.InitLogs()
	defer logs.FlushLogs()
	klog.EnableContextualLogging(true)
	gomega.RegisterFailHandler(framework.Fail)
	suiteConfig, reporterConfig := framework.CreateGinkgoConfig()
	ginkgo.RunSpecs(t, "Kubernetes e2e suite", suiteConfig, reporterConfig)
}

// What --spec-dump names is read by test/conformance/walk.go, which writes conformance.yaml.
var _ = ginkgo.ReportAfterSuite("specs", func(report ginkgo.Report) {
	path := framework.TestContext.SpecSummaryOutput
	if path == "" {
		return
	}
	file, err := os.Create(path)
	framework.ExpectNoError(err)
	encoder := json.NewEncoder(file)
	for _, spec := range report.SpecReports {
		framework.ExpectNoError(encoder.Encode(spec))
	}
	framework.ExpectNoError(file.Close())
})
