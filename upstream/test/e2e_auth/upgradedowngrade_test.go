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

package e2eauth

import (
	"testing"

	"k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// initialTestFunc runs on the previous release and returns what runs after the upgrade.
type initialTestFunc func(tCtx ktesting.TContext) upgradedTestFunc

// upgradedTestFunc runs after the upgrade and returns what runs after the downgrade.
type upgradedTestFunc func(tCtx ktesting.TContext) downgradedTestFunc

// downgradedTestFunc runs after the downgrade and returns what runs after the second upgrade.
type downgradedTestFunc func(tCtx ktesting.TContext) upgradedAgainTestFunc

// upgradedAgainTestFunc runs after the second upgrade.
type upgradedAgainTestFunc func(tCtx ktesting.TContext)

func TestUpgradeDowngradeUpgrade(t *testing.T) { testUpgradeDowngradeUpgrade(ktesting.Init(t)) }

// testUpgradeDowngradeUpgrade has the flow that the production readiness review asks for: previous release, current code,
// previous release, current code, with the same etcd. A feature gate can be off in the previous release, which is how a
// feature comes that is new or is enabled by default for the first time.
func testUpgradeDowngradeUpgrade(tCtx ktesting.TContext) {
	initSuite(tCtx)
	current, previous := binDir(tCtx, currentBinDirEnv), binDir(tCtx, previousBinDirEnv)

	subTests := map[string]struct {
		test initialTestFunc
		// previousGates and currentGates are the feature gates of the two releases.
		previousGates, currentGates string
	}{
		"constrained-impersonation": {
			test:          constrainedImpersonationUpgradeDowngrade(true),
			previousGates: "ConstrainedImpersonation=true",
			currentGates:  "ConstrainedImpersonation=true",
		},
		"constrained-impersonation-off-in-previous-release": {
			test:          constrainedImpersonationUpgradeDowngrade(false),
			previousGates: "ConstrainedImpersonation=false",
			currentGates:  "ConstrainedImpersonation=true",
		},
	}

	for name, def := range subTests {
		tCtx.Run(name, func(tCtx ktesting.TContext) {
			phase := "0-previous"
			cluster, tCtx := startControlPlane(tCtx, phase, previous, def.previousGates, nil)
			var upgraded upgradedTestFunc
			if !tCtx.Run(phase, func(tCtx ktesting.TContext) {
				upgraded = def.test(tCtx)
			}) {
				return
			}

			phase = "1-upgraded"
			modifyControlPlane(tCtx, cluster, phase, current, def.currentGates)
			var downgraded downgradedTestFunc
			if !tCtx.Run(phase, func(tCtx ktesting.TContext) {
				downgraded = upgraded(tCtx)
			}) {
				return
			}

			phase = "2-downgraded"
			modifyControlPlane(tCtx, cluster, phase, previous, def.previousGates)
			var upgradedAgain upgradedAgainTestFunc
			if !tCtx.Run(phase, func(tCtx ktesting.TContext) {
				upgradedAgain = downgraded(tCtx)
			}) {
				return
			}

			phase = "3-upgraded-again"
			modifyControlPlane(tCtx, cluster, phase, current, def.currentGates)
			tCtx.Run(phase, func(tCtx ktesting.TContext) {
				upgradedAgain(tCtx)
			})
		})
	}
}
