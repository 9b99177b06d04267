package simulated

import "github.com/authzconf/authzconf/loadgen/run"

// Profile is the file of a profile whose storms leave behind what OfProfile returns.
const Profile = `apiVersion: authzconf.dev/v1alpha1
kind: LoadProfile
name: simulated
nodes: 100
arrivals: {kind: periodic, every: 12s}
mix: {list: 1}
block: 10s
pairs: 20
starts: 5
comparisons:
- name: same
  a: {variant: legacy-gate-off, server: gate-off}
  b: {variant: legacy-gate-off, server: gate-off-2}
- name: gate
  a: {variant: legacy-gate-off, server: gate-off}
  b: {variant: associated-node, server: gate-on}
  margins: {p50: 0.05, p99: 0.1}
thresholds:
- {variant: associated-node, reviewsPerRequest: 1.5, errorRate: 0.001}
- {variant: legacy-gate-off, p99: 1s}
`

// OfProfile returns a run of Profile in which nothing is wrong.
func OfProfile() run.Run {
	r := Sound().Run()
	for i := range r.Blocks {
		if b := &r.Blocks[i]; b.Variant == "legacy" {
			b.Variant = "legacy-gate-off"
		}
	}
	return r
}
