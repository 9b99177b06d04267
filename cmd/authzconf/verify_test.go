package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/loadgen"
	"github.com/authzconf/authzconf/loadgen/simulated"
	"github.com/authzconf/authzconf/reports"
)

// TestVerifyEmpty checks that an empty report is not verified.
func TestVerifyEmpty(t *testing.T) {
	dir := t.TempDir()
	head := "apiVersion: " + reports.ReportVersion + "\nkind: " + reports.ReportKind + "\n"
	if err := os.WriteFile(filepath.Join(dir, reports.ReportFile), []byte(head), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := run([]string{"verify", dir}, &out, &errs); code == exitPassed || strings.Contains(out.String(), "verified") {
		t.Errorf("exit %d, with %q, of a report that says nothing", code, out.String())
	}
}

func TestVerifyLoad(t *testing.T) {
	var out, errs bytes.Buffer
	dir := stormFolder(t)
	if code := run([]string{"verify", dir}, &out, &errs); code != exitPassed || !strings.Contains(out.String(), "\nverified: ") {
		t.Errorf("exit %d: %s%s", code, out.String(), errs.String())
	}
	block := filepath.Join(dir, "evidence", "storm", "blocks", "0000.json")
	data, err := os.ReadFile(block)
	if err == nil {
		err = os.WriteFile(block, append(data, ' '), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if code := run([]string{"verify", dir}, &out, &errs); code != exitFailed {
		t.Errorf("exit %d of a block with a byte more: %s", code, errs.String())
	}
}

// stormFolder returns the folder of the report of a simulated storm.
func stormFolder(t *testing.T) string {
	t.Helper()
	file, dir := filepath.Join(t.TempDir(), "simulated.yaml"), filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(file, []byte(simulated.Profile), 0o600); err != nil {
		t.Fatal(err)
	}
	c := productCommand(loadgen.Replaying(simulated.OfProfile()))
	c.SetArgs([]string{"--profile", file, "--report-dir", dir})
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	commandLine = []string{"authzconf", "load", "--profile", file, "--report-dir", dir}
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir
}
