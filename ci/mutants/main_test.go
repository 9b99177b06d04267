package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/ci/mutants/campaign"
	"github.com/authzconf/authzconf/ci/mutants/coverage"
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

// mutants are three of a function, at lines 10, 20 and 30.
func mutants() []mutate.Mutant {
	return []mutate.Mutant{
		{Number: 1, Key: "a.go:f:call-removed:1", File: "a.go", Line: 10, Function: "f", Operator: "call-removed", Snippet: "x()", Change: "left out"},
		{Number: 2, Key: "a.go:f:call-removed:2", File: "a.go", Line: 20, Function: "f", Operator: "call-removed", Snippet: "y()", Change: "left out"},
		{Number: 3, Key: "a.go:f:call-removed:3", File: "a.go", Line: 30, Function: "f", Operator: "call-removed", Snippet: "z()", Change: "left out"},
	}
}

// TestLoadEquivalent refuses arguments that fit no mutant.
func TestLoadEquivalent(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"good":          {`{key: "a.go:f:call-removed:1", snippet: "x()", reason: why}`, ""},
		"unknown":       {`{key: "a.go:f:call-removed:9", snippet: "x()", reason: why}`, "there is no mutant"},
		"other snippet": {`{key: "a.go:f:call-removed:1", snippet: "y()", reason: why}`, `changes "x()", not "y()"`},
		"no reason":     {`{key: "a.go:f:call-removed:1", snippet: "x()"}`, "has no reason"},
		"unknown field": {`{key: "a.go:f:call-removed:1", why: "x"}`, "unknown field"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "equivalent.yaml")
			if err := os.WriteFile(path, []byte("equivalent:\n  - "+test.text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := loadEquivalent(path, mutants())
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestBook counts, resumes, and publishes.
func TestBook(t *testing.T) {
	folder := t.TempDir()
	all := mutants()
	sources := &program.Sources{Mutants: all}
	equivalent := map[string]argument{}
	addUnreachable(equivalent, []coverage.Argument{{File: "a.go", From: 29, To: 31, Reason: "never"}}, all)
	first := newBook(local.Release{Version: "1.37.1"}, sources, equivalent)
	first.add(campaign.Result{Mutant: all[0], Status: campaign.Killed, Scenario: "s/a", Cell: "on"})
	first.add(campaign.Result{Mutant: all[1], Status: campaign.Survived})
	if err := first.write(folder); err != nil {
		t.Fatal(err)
	}
	if got := first.score(); got != 0.5 {
		t.Errorf("score %v, want 0.5: one of the two that are not equivalent", got)
	}
	page := first.markdown()
	for _, want := range []string{"score 50.0 %", "| a.go:f:call-removed:1 | 10 | `x()` | left out | killed | s/a (on) |", "No client reaches it. never"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	second := newBook(local.Release{Version: "1.37.1"}, sources, equivalent)
	if err := second.resume(folder); err != nil {
		t.Fatal(err)
	}
	if !second.caught(all[0].Key) || second.caught(all[1].Key) {
		t.Error("resuming has to keep what was caught, and nothing else")
	}
	other := newBook(local.Release{Version: "1.38.0"}, sources, equivalent)
	if err := other.resume(folder); err == nil {
		t.Error("the results of another release were resumed")
	}
	second.add(campaign.Result{Mutant: all[2], Status: campaign.Killed})
	if got := second.contradictions(); len(got) != 1 {
		t.Errorf("contradictions %v, want the equivalent mutant that was caught", got)
	}
}
