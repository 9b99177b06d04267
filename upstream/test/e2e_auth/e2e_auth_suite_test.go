/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package e2eauth tests what becomes of features of SIG Auth when the control plane is upgraded and downgraded, and when
// their feature gates are switched. It starts the components itself, see README.md.
package e2eauth

import (
	"fmt"
	"os"
	"path"

	"github.com/onsi/gomega"

	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
	"k8s.io/kubernetes/test/utils/localupcluster"
)

const (
	// currentBinDirEnv names the directory of the components that were built from this source code.
	currentBinDirEnv = "KUBERNETES_SERVER_BIN_DIR"
	// previousBinDirEnv names the directory of the components of the previous release.
	previousBinDirEnv = "KUBERNETES_PREVIOUS_SERVER_BIN_DIR"
)

// controlPlane are the components that these tests need. Authentication and authorization can be tested without a node.
var controlPlane = []localupcluster.ClusterComponentName{
	localupcluster.KubeAPIServer,
	localupcluster.KubeControllerManager,
	localupcluster.KubeScheduler,
}

func init() {
	ktesting.SetDefaultVerbosity(2)
}

// initSuite prepares a test as test/e2e does.
func initSuite(tCtx ktesting.TContext) {
	gomega.RegisterFailHandler(func(message string, callerSkip ...int) {
		tCtx.Helper()
		tCtx.Fatal(message)
	})
}

// binDir returns the directory that an environment variable names.
func binDir(tCtx ktesting.TContext, envName string) string {
	tCtx.Helper()
	dir := os.Getenv(envName)
	if dir == "" {
		tCtx.Fatalf("%s must be set.", envName)
	}
	return dir
}

// startControlPlane brings up a control plane without a node and returns it with a context that has its clients. It is
// stopped when the test ends.
func startControlPlane(
	tCtx ktesting.TContext,
	state, dir, featureGates string,
	extraEnv map[string]string,
) (*localupcluster.Cluster, ktesting.TContext) {
	tCtx.Helper()
	env := map[string]string{
		"START_MODE":              "nokubelet,nokubeproxy",
		"KUBE_ENABLE_CLUSTER_DNS": "false",
	}
	for name, value := range extraEnv {
		env[name] = value
	}
	cluster := localupcluster.New()
	tCtx.CleanupCtx(func(tCtx ktesting.TContext) {
		tCtx.Step("cleanup", cluster.Stop)
	})
	cluster.Start(tCtx, state, dir, env, featureGates)
	restConfig := cluster.LoadConfig(tCtx)
	restConfig.UserAgent = fmt.Sprintf("%s -- auth", restclient.DefaultKubernetesUserAgent())
	return cluster, tCtx.WithRESTConfig(restConfig)
}

// modifyControlPlane restarts the control plane with feature gates, and with the components of a directory unless it is
// empty.
func modifyControlPlane(tCtx ktesting.TContext, cluster *localupcluster.Cluster, state, dir, featureGates string) {
	tCtx.Helper()
	options := localupcluster.ModifyOptions{
		FileByComponent:         map[localupcluster.ClusterComponentName]string{},
		FeatureGatesByComponent: map[localupcluster.ClusterComponentName]string{},
	}
	for _, component := range controlPlane {
		options.FeatureGatesByComponent[component] = featureGates
		if dir != "" {
			options.FileByComponent[component] = path.Join(dir, string(component))
		}
	}
	cluster.Modify(tCtx, state, options)
}
