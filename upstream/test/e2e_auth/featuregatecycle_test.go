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

// gateOnFunc runs while the feature gate is ON and returns the next phase.
type gateOnFunc func(tCtx ktesting.TContext) gateOffFunc

// gateOffFunc runs while the feature gate is OFF and returns the next phase.
type gateOffFunc func(tCtx ktesting.TContext) gateOnAgainFunc

// gateOnAgainFunc runs after the feature gate is re-enabled.
type gateOnAgainFunc func(tCtx ktesting.TContext)

func TestFeatureGateCycle(t *testing.T) { testFeatureGateCycle(ktesting.Init(t)) }

func testFeatureGateCycle(tCtx ktesting.TContext) {
	initSuite(tCtx)
	dir := binDir(tCtx, currentBinDirEnv)

	subTests := map[string]struct {
		test gateOnFunc
		// toggledGate starts ON in phase 0, is OFF in phase 1, and ON again in phase 2.
		toggledGate string
		// emulatedVersion is the last version where the gate can be toggled, so that the test keeps working once the gate is
		// locked. Empty if there is none yet.
		emulatedVersion string
	}{
		"constrained-impersonation": {
			test:            constrainedImpersonationGateCycle,
			toggledGate:     "ConstrainedImpersonation",
			emulatedVersion: "1.37",
		},
	}

	for name, def := range subTests {
		tCtx.Run(name, func(tCtx ktesting.TContext) {
			phase := "phase-0-gate-on"
			cluster, tCtx := startControlPlane(
				tCtx,
				phase,
				dir,
				def.toggledGate+"=true",
				map[string]string{"EMULATED_VERSION": def.emulatedVersion},
			)

			var gateOff gateOffFunc
			if !tCtx.Run(phase, func(tCtx ktesting.TContext) {
				gateOff = def.test(tCtx)
			}) {
				return
			}

			phase = "phase-1-gate-off"
			modifyControlPlane(tCtx, cluster, phase, "", def.toggledGate+"=false")
			var gateOnAgain gateOnAgainFunc
			if !tCtx.Run(phase, func(tCtx ktesting.TContext) {
				gateOnAgain = gateOff(tCtx)
			}) {
				return
			}

			phase = "phase-2-gate-on-again"
			modifyControlPlane(tCtx, cluster, phase, "", def.toggledGate+"=true")
			tCtx.Run(phase, func(tCtx ktesting.TContext) {
				gateOnAgain(tCtx)
			})
		})
	}
}
