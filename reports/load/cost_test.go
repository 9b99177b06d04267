package load

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// costOf is of simulated runs with one number of agents each.
func costOf(t *testing.T, agents ...int) *Cost {
	t.Helper()
	var runs []Saved
	for _, n := range agents {
		s := simulation{seed: 3, pairs: 2, requests: 400, noise: 0.02, agents: []int{n}}
		r := s.run()
		r.Agents = n
		runs = append(runs, Saved{Run: r})
	}
	c, err := NewCost(runs...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func markdownOf(t *testing.T, c *Cost) string {
	t.Helper()
	text, err := c.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Runs with one number of agents each make a curve together.
func TestCostOfSeveralRuns(t *testing.T) {
	c := costOf(t, 1000, 10, 100)
	files, err := c.Files()
	if err != nil {
		t.Fatal(err)
	}
	page := files["cost.html"]
	if n := strings.Count(string(page), "<svg"); n != 2 || !strings.Contains(string(page), "associated-node on gate-on") || strings.Contains(string(page), "ZgotmplZ") {
		t.Errorf("%d plots", n)
	}
	if len(files) != 4 || !strings.Contains(string(files["cpu.svg"]), `xmlns="http://www.w3.org/2000/svg"`) || !strings.Contains(string(files["reviews.svg"]), "<svg") {
		t.Errorf("%d files", len(files))
	}
	text := string(files["README.md"])
	if !strings.Contains(text, "| variant | 10 agents | 100 agents | 1000 agents |") || strings.Contains(text, "not run") || !strings.Contains(text, "(cpu.svg)") {
		t.Errorf("not in order of agents:\n%s", text)
	}
}

// Where a variant did not run, or no curve is to be had, it says so.
func TestCostOfWhatDidNotRun(t *testing.T) {
	if _, err := NewCost(Saved{}); err == nil {
		t.Error("one run makes a curve")
	}
	c := costOf(t, 10, 10)
	if files, err := c.Files(); err != nil || len(files) != 1 {
		t.Errorf("one number of agents makes a curve: %d files, %v", len(files), err)
	}
	other := *c.Columns[0].Run
	other.Blocks = nil
	c, err := NewCost(Saved{Run: *c.Columns[0].Run}, Saved{Run: other})
	if err != nil {
		t.Fatal(err)
	}
	if text := markdownOf(t, c); !strings.Contains(text, "not run") || !strings.Contains(text, "executed broken") && !strings.Contains(text, "executed unknown") {
		t.Errorf("a run without blocks looks sound:\n%s", text)
	}
}

// TestCostJudges expects the outcome to be that of each run's own report, of this version or the one before, and no
// outcome where the thresholds are not known.
func TestCostJudges(t *testing.T) {
	r := sound().run()
	low, old := t.TempDir(), t.TempDir()
	thresholds := Thresholds{Variants: map[string]Limits{"associated-node": {ReviewsPerRequest: 0.5}}}
	for _, dir := range []string{low, old} {
		if err := Write(dir, r, Judge(r, thresholds)); err != nil {
			t.Fatal(err)
		}
	}
	asBefore(t, filepath.Join(old, runFile))
	asBefore(t, filepath.Join(old, reportFile))
	alone := filepath.Join(t.TempDir(), "run.json")
	if data, err := os.ReadFile(filepath.Join(low, runFile)); err != nil || os.WriteFile(alone, data, 0o600) != nil {
		t.Fatal(err)
	}
	var runs []Saved
	for _, path := range []string{low, old, filepath.Join(low, runFile), alone} {
		s, err := LoadSaved(path)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, s)
	}
	c, err := NewCost(runs...)
	if err != nil {
		t.Fatal(err)
	}
	text := markdownOf(t, c)
	if strings.Count(text, "| failed |\n") != 3 || strings.Count(text, "| not judged: its thresholds") != 1 {
		t.Errorf("%s", text)
	}
}

// asBefore makes a file one of the version before.
func asBefore(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("v1alpha2", "v1alpha1", `"variant"`, `"arm"`, `"variants"`, `"arms"`).Replace(string(data))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestVersionBefore expects runs of the version before to be compared, and their reports to be refused by what
// verifies, with the version that is needed.
func TestVersionBefore(t *testing.T) {
	r := sound().run()
	dir := t.TempDir()
	if err := Write(dir, r, Judge(r, allOf())); err != nil {
		t.Fatal(err)
	}
	now, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	asBefore(t, filepath.Join(dir, runFile))
	before, err := Load(dir)
	if err != nil || !reflect.DeepEqual(before, now) {
		t.Errorf("%v, or another run", err)
	}
	if _, _, err := Verify(dir, r.Tool); err == nil || !strings.Contains(err.Error(), "is a load report of authzconf.dev/v1alpha1, which the authzconf that wrote it") {
		t.Errorf("verified: %v", err)
	}
	for _, change := range [][2]string{{"v1alpha1", "v1alpha2"}, {`"arm"`, `"variant"`}} {
		data, _ := os.ReadFile(filepath.Join(dir, runFile))
		path := filepath.Join(t.TempDir(), "run.json")
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(data), change[0], change[1])), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "as another version") {
			t.Errorf("%v: %v", change, err)
		}
	}
}
