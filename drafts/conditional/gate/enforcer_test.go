package gate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/verdicts"
)

const enforcer = "../../../ci/enforcing-apiserver"

// enforcing builds ci/enforcing-apiserver and runs it instead of every kube-apiserver.
func enforcing(t *testing.T) {
	pinned, err := os.ReadFile(filepath.Join(enforcer, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version := "v" + local.Newest().Version
	if !strings.Contains(string(pinned), "\tk8s.io/kubernetes "+version+"\n") {
		t.Fatalf("%s/go.mod does not require k8s.io/kubernetes %s, the newest that there is", enforcer, version)
	}
	path, b := filepath.Join(t.TempDir(), "enforcing-apiserver"), &local.Binaries{}
	_, err = b.GoOutput(
		t.Context(),
		enforcer,
		"test",
		"-c",
		"-trimpath",
		"-vet=off",
		"-ldflags",
		"-s -w -X k8s.io/component-base/version.gitVersion="+version+"+authzconf-enforcer",
		"-o",
		path,
		".",
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_ASSET_KUBE_APISERVER", path)
}

func builtin(t *testing.T, which func(*vectors.Vector) bool) (out []*vectors.Vector) {
	t.Helper()
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if which(v) {
			out = append(out, v)
		}
	}
	return out
}

// TestEnforcingServer runs every vector on a kube-apiserver with our enforcer. Every vector that can run must pass.
// Then the enforcer gets one fault at a time, and each fault must be detected.
func TestEnforcingServer(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a kube-apiserver")
	}
	enforcing(t)
	for _, w := range wire.Revisions() {
		t.Run(w.Name, func(t *testing.T) {
			t.Setenv("ENFORCING_APISERVER_WIRE", w.Name)
			o := Options{Release: local.Newest(), Binaries: &local.Binaries{}, Wire: w, Played: func() {}}
			all := builtin(t, func(*vectors.Vector) bool { return true })
			play, err := Run(t.Context(), all, o)
			if err != nil {
				t.Fatal(err)
			}
			can := 0
			for _, v := range all {
				if Cannot(v, w) == "" {
					can++
				}
			}
			results, totals, reading := judgeAll(all, w, play)
			t.Logf("%s, %s: %v", play.Server, reading, totals)
			if totals[verdicts.Passed] != can || can < 700 || len(results) != can || reading != vectors.Lazy ||
				!strings.HasSuffix(play.Server, "+authzconf-enforcer") {
				t.Errorf("%d of %d passed, by %s, which reads chains %s", totals[verdicts.Passed], can, play.Server, reading)
			}
			for id, one := range results {
				if one.Verdict != verdicts.Passed {
					t.Errorf("%s: %s: %v", id, one.Verdict, one.Why)
				}
			}
			if play.Form != newestForm {
				t.Errorf("the configuration has the field %s", play.Form)
			}
			for id, one := range judgeChecks(t, o) {
				if one.Verdict != verdicts.Passed {
					t.Errorf("check %s: %v", id, one.Why)
				}
			}
		})
	}
	for _, c := range faults {
		t.Run(c.fault, func(t *testing.T) { fails(t, c.fault, c.vector) })
	}
	for _, c := range checkFaults {
		t.Run(c.fault, func(t *testing.T) {
			t.Setenv("ENFORCING_APISERVER_FAULT", c.fault)
			results := judgeChecks(t, Options{Release: local.Newest(), Binaries: &local.Binaries{}, Wire: wire.Merged, Played: func() {}})
			if results[c.check].Verdict != verdicts.Failed {
				t.Errorf("%s does not fail: %v", c.check, results)
			}
		})
	}
	t.Run("an older configuration", takesOlderForm)
}

// judgeChecks runs all checks and judges them, by their IDs.
func judgeChecks(t *testing.T, o Options) map[string]vectors.Result {
	t.Helper()
	t.Setenv("ENFORCING_APISERVER_WIRE", o.Wire.Name)
	seen, err := RunChecks(t.Context(), Checks(), o)
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]vectors.Result{}
	for _, c := range Checks() {
		results[c.ID] = vectors.Result{Verdict: verdicts.Invalid}
		for _, s := range seen {
			if s.Check == c.ID {
				results[c.ID] = c.Judge(s)
			}
		}
	}
	return results
}

// checkFaults are the faults that the enforcer can have, each with the check that detects it.
var checkFaults = []struct{ fault, check string }{
	{"no-conditions-reviews", "conditions-review"},
	{"wildcards-on-conditions", "wildcards"},
	{"not-counted", "metric"},
	{"takes-impossible", "impossible-decision"},
	{"in-the-stored-version", "versions"},
	{"never-reloads", "reload"},
	{"stays-off", "off-and-on"},
	{"off-by-default", "plugin-by-default"},
}

// takesOlderForm checks that a server that knows only the field of the KEP's text gets a configuration with that field.
func takesOlderForm(t *testing.T) {
	t.Setenv("ENFORCING_APISERVER_FORM", "conditionsEndpointKubeConfigContext")
	t.Setenv("ENFORCING_APISERVER_WIRE", wire.Merged.Name)
	all := builtin(t, func(v *vectors.Vector) bool { return strings.HasSuffix(v.ID, "/enforcer/only-allow") })
	play, err := Run(t.Context(), all, Options{Release: local.Newest(), Binaries: &local.Binaries{}, Wire: wire.Merged, Played: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	results, totals, _ := judgeAll(all, wire.Merged, play)
	if play.Form != "conditionsEndpointKubeConfigContext" || len(all) != 1 || totals[verdicts.Passed] != 1 {
		t.Errorf("the configuration has the field %s: %v", play.Form, results)
	}
}

// faults are the faults that the enforcer can have, each with a vector that detects it.
var faults = []struct{ fault, vector string }{
	{"ignores-deny-conditions", "chain/order-deny-first"},
	{"first-set-only", "status/first-set-denies"},
	{"evaluates-nothing", "enforcer/only-allow"},
	{"shown-as-allowed", "chain/may-deny-then-allow"},
	{"asks-on", "chain/words/allow.deny"},
	{"deny-goes-on", "chain/lazy-then-asked"},
	{"compound-not-evaluated", "compound/update-to-create-true-false"},
	{"reads-on-conditions", "filter/verb-list"},
	{"starts-without-plugin", "enforcer/gate-on-plugin-off"},
	{"no-object", "status/two-sets"},
	{"takes-invalid", "validation/duplicate-deny"},
	{"errors-allow", "evaluators/cannot-deny"},
	{"no-old-object", "enforcer/refuses-delete"},
	{"operation-by-verb", "compound/update-to-create-allow-true"},
	{"proxies-by-get", "compound/proxy-no-opinion"},
	{"any-check-on-conditions", "enforcer/escalate-conditional"},
	{"conditions-when-off", "enforcer/rolled-back-webhook"},
	{"self-without-conditions", "enforcer/only-allow"},
	{"not-in-the-audit-log", "enforcer/only-allow"},
	{"tells-admission", "enforcer/only-allow"},
	{"enforces-last", "enforcer/only-allow"},
	{"says-nothing", "enforcer/refuses-update"},
}

// fails checks that a fault makes a run fail, and makes its vector fail.
func fails(t *testing.T, fault, vector string) {
	t.Setenv("ENFORCING_APISERVER_FAULT", fault)
	t.Setenv("ENFORCING_APISERVER_WIRE", wire.Merged.Name)
	// Chains of three authorizers detect no fault that shorter chains do not.
	all := builtin(t, func(v *vectors.Vector) bool { return v.APIServer != nil && len(v.APIServer.Chain) < 3 })
	play, err := Run(t.Context(), all, Options{Release: local.Newest(), Binaries: &local.Binaries{}, Wire: wire.Merged, Played: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	results, totals, _ := judgeAll(all, wire.Merged, play)
	t.Logf("%v", totals)
	for id, one := range results {
		if strings.HasSuffix(id, "/"+vector) && one.Verdict == verdicts.Failed {
			return
		}
	}
	t.Errorf("%s does not fail: %v", vector, totals)
}

// judgeAll judges the vectors that can be played, by their IDs. One that was not played is invalid.
func judgeAll(
	all []*vectors.Vector,
	w *wire.Revision,
	p *Play,
) (results map[string]vectors.Result, totals map[verdicts.Verdict]int, reading vectors.Reading) {
	seen := map[string]*VectorEvidence{}
	for _, s := range p.Seen {
		seen[s.Vector] = s
	}
	reading = ChooseReading(all, seen)
	results, totals = map[string]vectors.Result{}, map[verdicts.Verdict]int{}
	for _, v := range all {
		if Cannot(v, w) != "" {
			continue
		}
		results[v.ID] = vectors.Result{Verdict: verdicts.Invalid}
		if s := seen[v.ID]; s != nil {
			results[v.ID], _ = s.Judge(v, reading)
		}
		totals[results[v.ID].Verdict]++
	}
	return results, totals, reading
}
