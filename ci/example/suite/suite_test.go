// Package suite is an author's own suite of Ginkgo: scenarios of authzconf, and a spec of the author's beside them, on one
// cluster.
package suite

import (
	"context"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/suites"
	"github.com/authzconf/authzconf/suites/environment"
)

// cluster is how the specs reach the cluster.
var cluster *rest.Config

// The author's own spec. Any number of them can stand in any file of the package.
var _ = ginkgo.Describe("[sig-auth] A dashboard", func() {
	ginkgo.It("shows nothing to a user who may see nothing", func(ctx context.Context) {
		config := rest.CopyConfig(cluster)
		config.Impersonate = rest.ImpersonationConfig{UserName: "alice"}
		client, err := kubernetes.NewForConfig(config)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())

		_, err = client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
		gomega.Expect(apierrors.IsForbidden(err)).To(gomega.BeTrue(), "the answer is %v", err)
	})
})

// TestSuite runs both on a cluster that is made for them. Instead, kubeconfig can be that of a cluster of yours.
func TestSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	provider := environment.NewProvider(environment.Options{Kubernetes: "1.37", Gate: scenarios.GateOn})
	kubeconfig, err := provider.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := provider.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if cluster, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		t.Fatal(err)
	}

	run, err := suites.NewRunOf(conformance.Product, "--provider=existing", "--kubeconfig="+kubeconfig,
		"--focus=^kep-5284/requests/(get-by-name|watch)", "--report-dir="+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	suites.Describe("[sig-auth] Impersonation [FeatureGate:ConstrainedImpersonation] [Beta]", run)
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "mine")
}
