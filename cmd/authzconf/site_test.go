package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/reports/load"
)

// TestSite makes pages of reports of several products, one of which says more than its evidence does.
func TestSite(t *testing.T) {
	storm := savedRun(t, time.Millisecond)
	r, thresholds := profiled(t, storm)
	if err := load.Write(storm, r, load.Judge(r, thresholds)); err != nil {
		t.Fatal(err)
	}
	good, forged := recordedFolder(t, "library"), recordedFolder(t, "conditions")
	forged.edit(forged.marker, func(r map[string]any) { r["outcome"] = "failed" })
	out := filepath.Join(t.TempDir(), "site")
	printed := good.run(exitFailed, "site", good.dir, forged.dir, storm, "--out", out)
	index := page(t, out, "index.html")
	if !strings.Contains(printed, "2 of 3 reports verified") {
		t.Errorf("printed %q, and the index says %s", printed, index[strings.Index(index, "<main>"):])
	}
	for _, want := range []string{"not verified", "explore.yaml: not what the evidence gives", `href="reports/out/report.html"`, `href="reports/out-3/report.html"`, `href="load.html"`} {
		if !strings.Contains(index, want) {
			t.Errorf("the index has no %s", want)
		}
	}
	if strings.Contains(index, `reports/out-2`) {
		t.Error("a report that does not hold is on the site")
	}
	if !strings.Contains(page(t, out, "load.html"), "<svg") {
		t.Error("the load page has no plot")
	}
	// The copy can be verified again, and the site takes the place of an earlier one.
	good.run(exitPassed, "verify", filepath.Join(out, "reports", "out"))
	good.run(exitPassed, "site", good.dir, "--out", out)
	if _, err := os.Stat(filepath.Join(out, "load.html")); err == nil {
		t.Error("a page of an earlier site is still there")
	}
}

func page(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Bad input is one clear error, and nothing is made.
func TestSiteUsage(t *testing.T) {
	empty, out := t.TempDir(), filepath.Join(t.TempDir(), "site")
	taken := t.TempDir()
	if err := os.WriteFile(filepath.Join(taken, "index.html"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	good := recordedFolder(t, "library")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{empty, "--out", out}, "error: " + empty + " holds no complete report"},
		{[]string{good.dir, empty, "--out", out}, "error: " + empty + " holds no complete report"},
		{[]string{filepath.Join(empty, "none"), "--out", out}, "error: cannot open the report folder"},
		{[]string{good.dir}, "error: --out is missing"},
		{[]string{good.dir, "--out", taken}, "is not empty and holds no earlier site of authzconf"},
	} {
		printed := good.run(exitUsage, append([]string{"site"}, c.args...)...)
		if !strings.Contains(printed, c.want) || strings.Count(printed, "error:") != 1 {
			t.Errorf("%v: %s", c.args, printed)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("something was made of bad input")
	}
}
