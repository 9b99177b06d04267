package main

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/verdicts"
)

// repeated are scenarios of every kind of requestor, without long waits.
const repeated = `^kep-5284/(integration/(user-info|associated-node|serviceaccount)|e2e|user-stories)/`

// TestRepeatability runs the same scenarios four times, two runs at a time. Runs with the same seed have to give the
// same evidence, and runs with different seeds the same verdicts.
func TestRepeatability(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	found, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := append(os.Environ(), "TEST_ASSET_ETCD="+found.Etcd, "TEST_ASSET_KUBE_APISERVER="+found.KubeAPIServer,
		local.StateVariable+"="+filepath.Join(dir, "state"))
	runs := []string{filepath.Join(dir, "one"), filepath.Join(dir, "one-again"), filepath.Join(dir, "two"), filepath.Join(dir, "three")}
	for i, seeds := range [][2]int{{1, 1}, {2, 3}} {
		var both sync.WaitGroup
		for j, seed := range seeds {
			both.Go(func() { runRepeated(t, runs[2*i+j], seed, env) })
		}
		both.Wait()
	}
	if left := children(filepath.Join(dir, "state")); len(left) > 0 {
		t.Errorf("processes left behind: %v", left)
	}
	if t.Failed() {
		return
	}
	first := verdictsOf(t, runs[0])
	if len(first) < 20 {
		t.Errorf("only %d scenarios were run", len(first))
	}
	for _, other := range runs[1:] {
		if diff := cmp.Diff(first, verdictsOf(t, other)); diff != "" {
			t.Errorf("other verdicts in %s:\n%s", filepath.Base(other), diff)
		}
	}
	compareEvidence(t, runs[0], runs[1])
	if bytes.Equal(anyEvidence(t, runs[0]), anyEvidence(t, runs[2])) {
		t.Error("another seed gives the same names, so that the same seed does proves nothing")
	}
}

func runRepeated(t *testing.T, report string, seed int, env []string) {
	cmd := exec.CommandContext(t.Context(), "authzconf", "run", "--focus", repeated, "--seed", strconv.Itoa(seed), "--report-dir", report)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", filepath.Base(report), err, out)
	}
}

// verdictsOf are the verdicts of a report by cell and scenario.
func verdictsOf(t *testing.T, dir string) map[string]verdicts.Verdict {
	t.Helper()
	saved, err := conformance.ReadSaved(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]verdicts.Verdict{}
	for _, g := range saved.Report.Groups {
		for _, r := range g.Cases {
			found[g.Name+" "+r.Case] = r.Verdict
		}
	}
	return found
}

// madeUp matches everything in evidence that the server generates or that comes from the clock. The list is closed, so
// anything else that differs is a difference.
var madeUp = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "<time>"},
	// uid, auditID, credential-id, pod-uid, node-uid
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uuid>"},
	{regexp.MustCompile(`(resourceVersion\\?":\s*\\?")\d+`), "$1<version>"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "<address>"},
	// the sums of duration histograms
	{regexp.MustCompile(`("seconds": )[0-9.e-]+`), "$1<duration>"},
}

func normalised(data []byte) []byte {
	for _, m := range madeUp {
		data = m.what.ReplaceAll(data, []byte(m.as))
	}
	return data
}

// evidence are the files with the evidence of the scenarios of a report, by path.
func evidence(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, "evidence", func(path string, d fs.DirEntry, err error) error {
		isScenario := strings.Count(path, "/") > 2 // others belong to the run or to a whole cell
		if err != nil || d.IsDir() || !isScenario {
			return err
		}
		data, err := fs.ReadFile(root, path)
		files[path] = normalised(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func compareEvidence(t *testing.T, a, b string) {
	t.Helper()
	one, other := evidence(t, a), evidence(t, b)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(one)), slices.Sorted(maps.Keys(other))); diff != "" {
		t.Fatalf("other files:\n%s", diff)
	}
	for path := range one {
		if diff := cmp.Diff(string(one[path]), string(other[path])); diff != "" {
			t.Errorf("the same seed gave other evidence in %s:\n%s", path, diff)
		}
	}
}

// anyEvidence is that of the first scenario.
func anyEvidence(t *testing.T, dir string) []byte {
	t.Helper()
	files := evidence(t, dir)
	return files[slices.Min(slices.Collect(maps.Keys(files)))]
}
