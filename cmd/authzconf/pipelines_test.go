package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
)

// recordingAuthzconf records how it was called, and writes the files that a pipeline needs afterwards.
const recordingAuthzconf = `#!/usr/bin/env bash
printf '%s\0' "$@" $'\n' >>"$CALLS"
while (($# > 1)); do
  if [[ $1 == --report-dir ]]; then
    mkdir -p "$2"
    touch "$2/junit.xml" "$2/report.yaml"
  fi
  shift
done
`

// recordingMake replaces make. It writes a report where one is requested.
const recordingMake = `#!/usr/bin/env bash
for word; do
  if [[ $word == KIND_REPORT=* ]]; then
    mkdir -p "${word#*=}"
    touch "${word#*=}/junit.xml" "${word#*=}/report.yaml"
  fi
done
`

// calls are the arguments of each authzconf that a pipeline starts.
func calls(t *testing.T, pipeline string) (all [][]string) {
	t.Helper()
	dir := t.TempDir()
	program, log := filepath.Join(dir, "authzconf"), filepath.Join(dir, "calls")
	if err := os.WriteFile(program, []byte(recordingAuthzconf), 0o755); err != nil {
		t.Fatal(err)
	}
	makeProgram := filepath.Join(dir, "make")
	if err := os.WriteFile(makeProgram, []byte(recordingMake), 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "./"+pipeline, filepath.Join(dir, "artifacts"))
	c.Env = append(os.Environ(), "AUTHZCONF="+program, "MAKE="+makeProgram, "KIND_READY=true", "CALLS="+log)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", pipeline, err, out)
	}
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for call := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n\x00"), "\n\x00") {
		all = append(all, strings.Split(strings.TrimSuffix(call, "\x00"), "\x00"))
	}
	return all
}

// checkCall checks a command line without carrying it out: with --dry-run if the command has it, which reads the files
// and knows the versions.
func checkCall(args []string) error {
	c, rest, err := newRoot().Find(args)
	if err != nil {
		return err
	}
	onlyPrintsHelp := c.HasSubCommands() && c.Flags().Lookup("dry-run") == nil // load has subcommands, and is a command itself
	if !c.HasParent() || onlyPrintsHelp {
		return fmt.Errorf("%q is no command", args)
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return err
	}
	commandLine = append([]string{"authzconf"}, args...)
	if err := c.PreRunE(c, c.Flags().Args()); err != nil {
		return err
	}
	if c.Flags().Lookup("dry-run") == nil {
		return nil
	}
	var stderr strings.Builder
	if code := run(append(slices.Clone(args), "--dry-run"), io.Discard, &stderr); code != exitPassed {
		return fmt.Errorf("exit code %d: %s", code, stderr.String())
	}
	return nil
}

// TestPipelinesCall runs the pipelines of ci/pipelines with a program that records how it was called, and checks each
// call against the real command line.
func TestPipelinesCall(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	newest, err := local.ParseRelease("")
	if err != nil {
		t.Fatal(err)
	}
	for pipeline, want := range map[string][]string{
		"ci/pipelines/pull-request": {"run", "verify", "upgrade"},
		"ci/pipelines/nightly":      {"explore"},
		"ci/pipelines/release":      {"run", "verify", "upgrade", "report"},
	} {
		var seen []string
		for _, args := range calls(t, pipeline) {
			if err := checkCall(args); err != nil {
				t.Errorf("%s: authzconf %s: %v", pipeline, strings.Join(args, " "), err)
			}
			seen = append(seen, args[0])
			if i := slices.Index(args, "--path"); i > 0 && !strings.Contains(args[i+1], newest.Minor) {
				t.Errorf("%s: %s does not come to Kubernetes %s", pipeline, args[i+1], newest.Minor)
			}
		}
		for _, w := range want {
			if !slices.Contains(seen, w) {
				t.Errorf("%s calls %v and never %s", pipeline, seen, w)
			}
		}
	}
}

// TestCheckCallSees checks that checkCall can fail.
func TestCheckCallSees(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"", "no command"},
		{"runn", "no command"},
		{"report", "no command"},
		{"report ga", "FOLDER is missing"},
		{"run --gates both", "unknown flag"},
		{"run --gate sometimes", "exit code 2"},
		{"run --kubernetes 1.99", "exit code 2"},
		{"run --known-failing nowhere.yaml", "exit code 2"},
		{"upgrade --file nowhere.yaml", "exit code 2"},
		{"upgrade --path 1.36,1.99", "exit code 2"},
		{"run --matrix nowhere.yaml", "exit code 2"},
		{"run --matrix nowhere.yaml --gate on", "--gate has no effect with --matrix"},
		{"verify", "FOLDER is missing"},
	} {
		if err := checkCall(strings.Fields(test.line)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("authzconf %s: %v, want %s", test.line, err, test.want)
		}
	}
}
