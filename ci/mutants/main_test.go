package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/ci/mutants/campaign"
	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/ci/mutants/program"
	"github.com/authzconf/authzconf/clusters/local"
)

// TestUsage wants one clear error, and exit code 2, before anything is started.
func TestUsage(t *testing.T) {
	folder := t.TempDir()
	tests := map[string]struct {
		args []string
		want string
	}{
		"no folder":           {[]string{"run", "--folder", filepath.Join(folder, "none")}, "there is no such folder"},
		"folder is a file":    {[]string{"run", "--folder", "main.go"}, "there is no such folder"},
		"coverage, no folder": {[]string{"coverage", "--folder", filepath.Join(folder, "none")}, "there is no such folder"},
		"seed without sample": {[]string{"run", "--folder", folder, "--seed", "3"}, "--seed chooses a sample"},
		"sample and only":     {[]string{"run", "--folder", folder, "--sample", "3", "--only", "x"}, "exclude each other"},
		"sample and resume":   {[]string{"run", "--folder", folder, "--sample", "3", "--resume"}, "exclude each other"},
		"sample of nothing":   {[]string{"run", "--folder", folder, "--sample", "0"}, "at least 1"},
		"no workers":          {[]string{"run", "--folder", folder, "--workers", "0"}, "at least 1"},
		"bad expression":      {[]string{"run", "--folder", folder, "--only", "("}, "--only"},
		"no scenarios":        {[]string{"run", "--folder", folder, "--scenarios", filepath.Join(folder, "none")}, "there is no such folder"},
		"unknown flag":        {[]string{"run", "--faster"}, "unknown flag"},
		"argument":            {[]string{"run", "all"}, "unknown command"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := run(test.args, &out, &errs); code != exitUsage {
				t.Errorf("exit code %d, want %d", code, exitUsage)
			}
			if got := errs.String(); !strings.HasPrefix(got, "error: ") || !strings.Contains(got, test.want) {
				t.Errorf("printed %q, want an error with %q", got, test.want)
			}
		})
	}
}

// TestBuildFails wants one clear error, and exit code 3, where a kube-apiserver
// cannot be built, and nothing left of the attempt.
func TestBuildFails(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages of Kubernetes")
	}
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	bin, cache := t.TempDir(), t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = build ]; then echo 'x.go:1:1: undefined: y' >&2; exit 1; fi\nexec %q \"$@\"\n", goCommand)
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(local.CacheVariable, cache)
	for _, command := range []string{"run", "coverage"} {
		var out, errs bytes.Buffer
		if code := run([]string{command, "--folder", "."}, &out, &errs); code != exitInvalid {
			t.Errorf("%s: exit code %d, want %d", command, code, exitInvalid)
		}
		if got := errs.String(); strings.Count(got, "error: ") != 1 || !strings.Contains(got, "undefined: y") {
			t.Errorf("%s printed %q, want one error that says what does not compile", command, got)
		}
	}
	for _, pattern := range []string{"modules/*-*-*", "bin/kube-apiserver-*[0-9a-f]"} {
		if left, _ := filepath.Glob(filepath.Join(cache, pattern)); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// mutants are three of a function, at lines 10, 20 and 30.
func mutants() []mutate.Mutant {
	return []mutate.Mutant{
		{Number: 1, Key: "a.go:f:call-removed:1", File: "a.go", Line: 10, Function: "f", Operator: "call-removed", Snippet: "x()", Change: "left out"},
		{Number: 2, Key: "a.go:f:call-removed:2", File: "a.go", Line: 20, Function: "f", Operator: "call-removed", Snippet: "y()", Change: "left out"},
		{Number: 3, Key: "a.go:f:call-removed:3", File: "a.go", Line: 30, Function: "f", Operator: "call-removed", Snippet: "z()", Change: "left out"},
	}
}

// TestLoadArguments refuses arguments that fit no mutant.
func TestLoadArguments(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"good":          {`{key: "a.go:f:call-removed:1", snippet: "x()", reason: why}`, ""},
		"unknown":       {`{key: "a.go:f:call-removed:9", snippet: "x()", reason: why}`, "there is no mutant"},
		"other snippet": {`{key: "a.go:f:call-removed:1", snippet: "y()", reason: why}`, `changes "x()", not "y()"`},
		"no reason":     {`{key: "a.go:f:call-removed:1", snippet: "x()"}`, "has no reason"},
		"unknown field": {`{key: "a.go:f:call-removed:1", why: "x"}`, "unknown field"},
		"a gap too":     {"{key: \"a.go:f:call-removed:1\", snippet: \"x()\", reason: why}\ngaps:\n  - {key: \"a.go:f:call-removed:1\", snippet: \"x()\", reason: why}", "is there twice"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "equivalent.yaml")
			if err := os.WriteFile(path, []byte("equivalent:\n  - "+test.text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := loadArguments(path, mutants())
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestResults counts, resumes, and publishes.
func TestResults(t *testing.T) {
	folder := t.TempDir()
	all := mutants()
	sources := &program.Sources{Mutants: all}
	argued := arguments{equivalent: map[string]string{}, gaps: map[string]string{all[1].Key: "too far"}}
	argued.addUnreachable([]program.Argument{{File: "a.go", From: 29, To: 31, Reason: "never"}}, all)
	first := newResults(local.Release{Version: "1.37.1"}, sources, argued)
	first.add(campaign.Result{Mutant: all[0], Status: campaign.Killed, Scenario: "s/a", Cell: "on", Difference: "step 0: code: want 403, got 200"})
	first.add(campaign.Result{Mutant: all[1], Status: campaign.Survived})
	if err := first.write(folder); err != nil {
		t.Fatal(err)
	}
	if got := first.Results.score(); got != 0.5 {
		t.Errorf("score %v, want 0.5: one of the two that are not equivalent", got)
	}
	page := first.markdown()
	for _, want := range []string{"score 50.0 %", "| a.go:f:call-removed:1 | 10 | `x()` | left out | killed | s/a (on), step 0: code |", "No client reaches it. never",
		"| `y()` | left out | survived | too far |", "| a.go, `f` | 3 | 1 | 0 | 0 | 1 | 0 | 1 |"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	second := newResults(local.Release{Version: "1.37.1"}, sources, argued)
	if err := second.resume(folder); err != nil {
		t.Fatal(err)
	}
	if !second.caught(all[0].Key) || second.caught(all[1].Key) {
		t.Error("resuming has to keep what was caught, and nothing else")
	}
	other := newResults(local.Release{Version: "1.38.0"}, sources, argued)
	if err := other.resume(folder); err == nil {
		t.Error("the results of another release were resumed")
	}
	if got := first.unexplained(); len(got) != 0 {
		t.Errorf("unexplained %v, want none: the survivor is a known gap", got)
	}
	second.add(campaign.Result{Mutant: all[2], Status: campaign.Killed})
	if got := second.contradictions(); len(got) != 1 {
		t.Errorf("contradictions %v, want the equivalent mutant that was caught", got)
	}
	second.add(campaign.Result{Mutant: all[1], Status: campaign.Killed})
	if got := second.contradictions(); len(got) != 2 {
		t.Errorf("contradictions %v, want the known gap that was caught too", got)
	}
}

// TestCoveragePage shows what was reached, what cannot be, and what could.
func TestCoveragePage(t *testing.T) {
	block := program.Block{File: "a.go", Function: "f", From: 3, To: 4, Code: "if a || b {", Statements: 1}
	r := &coverageResults{
		release: local.Release{Version: "1.37.1"}, scenarios: 7,
		report: &program.Report{
			Functions: []program.Function{{File: "a.go", Name: "f", Statements: 4, Covered: 3}},
			Missed:    []program.Block{block},
		},
		argued: map[program.Block]program.Argument{block: {Reason: "never"}},
	}
	page := r.markdown()
	for _, want := range []string{
		"7 runs", "3 of 4 statements (75.0 %); of the 3 that a client can reach, 100.0 %", "| file | function | statements | reached | share |\n| --- | --- | --: | --: | --: |",
		"| a.go | `f` | 4 | 3 | 75.0 % |", "| a.go:3, `f` | `if a \\|\\| b {` | never |", "## Not reached yet\n\nNothing.\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	r.argued, r.missing = nil, []program.Block{block}
	if page := r.markdown(); !strings.Contains(page, "## Not reached yet\n\n| where | statement |") {
		t.Errorf("the page lacks what could be reached:\n%s", page)
	}
}
