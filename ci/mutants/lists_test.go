package mutants

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
)

// TestUsage refuses what cannot be meant, before anything is started.
func TestUsage(t *testing.T) {
	for want, o := range map[string]runOptions{
		"-sample and -only exclude":   {sample: 3, only: "x", workers: 1},
		"-sample and -resume exclude": {sample: 3, resume: true, workers: 1},
		"-sample -1: at least 1":      {sample: -1, workers: 1},
		"-workers 0: at least 1":      {all: true},
		"-only: error parsing":        {only: "(", workers: 1},
		"-limit -1: at least 1":       {all: true, limit: -1, workers: 1},
	} {
		if _, err := o.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := (&runOptions{sample: 3, seed: 2, workers: 1}).check(); err != nil {
		t.Error(err)
	}
}

// TestBuildFails wants to be told what does not compile where a kube-apiserver cannot be built, and nothing left of the
// attempt.
func TestBuildFails(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages of Kubernetes")
	}
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	bin, cache := t.TempDir(), t.TempDir()
	script := fmt.Sprintf(
		"#!/bin/sh\nif [ \"$1\" = build ]; then echo 'x.go:1:1: undefined: y' >&2; exit 1; fi\nexec %q \"$@\"\n",
		goCommand,
	)
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(local.CacheVariable, cache)
	t.Setenv(local.SourceVariable, local.Build)
	if _, _, err := (&runOptions{workers: 1}).measure(t.Context(), t); err == nil || !strings.Contains(err.Error(), "undefined: y") {
		t.Errorf("error %v, want one that says what does not compile", err)
	}
	for _, pattern := range []string{"modules/*-*-*", "bin/kube-apiserver-*[0-9a-f]"} {
		if left, _ := filepath.Glob(filepath.Join(cache, pattern)); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// mutants are three of a function, at lines 10, 20 and 30.
func mutants() []Mutant {
	return []Mutant{
		{Part: "p", Number: 1, Key: "a.go:f:call-removed:1", File: "a.go", Line: 10, Function: "f", Operator: "call-removed", Snippet: "x()", Change: "left out"},
		{Part: "p", Number: 2, Key: "a.go:f:call-removed:2", File: "a.go", Line: 20, Function: "f", Operator: "call-removed", Snippet: "y()", Change: "left out"},
		{Part: "p", Number: 3, Key: "a.go:f:call-removed:3", File: "a.go", Line: 30, Function: "f", Operator: "call-removed", Snippet: "z()", Change: "left out"},
	}
}

// TestLoadArguments refuses lists that fit no mutant, or not each other.
func TestLoadArguments(t *testing.T) {
	const first = `{key: "a.go:f:call-removed:1", snippet: "x()", reason: why}`
	tests := map[string]struct{ equivalent, gaps, open, want string }{
		"good":             {first, "", `"a.go:f:call-removed:2": not covered`, ""},
		"unknown":          {`{key: "a.go:f:call-removed:9", snippet: "x()", reason: why}`, "", "{}", "there is no mutant"},
		"other snippet":    {`{key: "a.go:f:call-removed:1", snippet: "y()", reason: why}`, "", "{}", `changes "x()", not "y()"`},
		"no reason":        {`{key: "a.go:f:call-removed:1", snippet: "x()"}`, "", "{}", "has no reason"},
		"unknown field":    {`{key: "a.go:f:call-removed:1", why: "x"}`, "", "{}", "unknown field"},
		"a gap too":        {first, first, "{}", "is there twice"},
		"open and unknown": {first, "", `"a.go:f:call-removed:9": survived`, "open.yaml: there is no mutant"},
		"open and killed":  {first, "", `"a.go:f:call-removed:2": killed`, `is "killed": want one of ["survived" "not covered" "not run"]`},
		"open and argued":  {first, "", `"a.go:f:call-removed:1": survived`, "argued in another list too"},
		"open is a list":   {first, "", "- survived", "cannot unmarshal"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for file, text := range map[string]string{
				"equivalent.yaml":  "equivalent: [" + test.equivalent + "]\ngaps: [" + test.gaps + "]\n",
				"unreachable.yaml": "unreachable: []\n", openFile: test.open + "\n",
			} {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			argued, err := loadArguments(folder, &Sources{Mutants: mutants()})
			switch {
			case test.want != "" &&
				(err == nil || !strings.Contains(err.Error(), test.want)) ||
				test.want == "" && err != nil:
				t.Errorf("error %v, want %q", err, test.want)
			case test.want == "" &&
				(len(argued) != 2 || !argued.argued("a.go:f:call-removed:1") || argued.argued("a.go:f:call-removed:2")):
				t.Errorf("%v, want one that is argued and one that is open", argued)
			}
		})
	}
}

// TestResults counts, resumes, and publishes.
func TestResults(t *testing.T) {
	folder := t.TempDir()
	all := mutants()
	argued := arguments{
		all[1].Key: {Key: all[1].Key, Reason: "too far", standing: gap},
		all[2].Key: {Key: all[2].Key, Reason: "No client reaches it. never", standing: unreachable},
	}
	fresh := func(version string) *results {
		return &results{Kubernetes: version, mutants: all, arguments: argued, parts: []Part{{Name: "p", Wanted: 51}}}
	}
	first := fresh("1.37.1")
	first.Results = list{
		{Mutant: all[0], Status: Killed, Scenario: "s/a", Cell: "on", Difference: "step 0: code: want 403, got 200"},
		{Mutant: all[1], Status: Survived},
	}
	if err := first.write(folder); err != nil {
		t.Fatal(err)
	}
	if failed, caught := first.Results.scores(); failed != 50 || caught != 50 {
		t.Errorf("scores %v and %v, want 50: one of the two that are not equivalent", failed, caught)
	}
	if _, err := first.wrong(true); err == nil || err.Error() != "p: 50.0 % of the mutants failed a scenario; 51 % are wanted" {
		t.Errorf("wrong: %v, want the part that lacks a mutant", err)
	}
	if _, err := first.wrong(false); err != nil {
		t.Errorf("wrong: %v, want nothing: some mutants say nothing about the share of a part", err)
	}
	page := first.markdown()
	for _, want := range []string{"p: 2 mutants not argued equivalent, 50.0 % failed, 50.0 % failed or detected", "| a.go:f:call-removed:1 | 10 | `x()` | left out | killed | s/a (on), step 0: code |", "No client reaches it. never",
		"| `y()` | left out | survived | too far |", "| a.go, `f` | 3 | 1 | 0 | 0 | 1 | 0 | 1 | 50 | 50 |"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	second := fresh("1.37.1")
	if err := second.resume(folder); err != nil {
		t.Fatal(err)
	}
	if !second.caught(all[0].Key) || second.caught(all[1].Key) {
		t.Error("resuming has to keep what was caught, and nothing else")
	}
	if err := fresh("1.38.0").resume(folder); err == nil {
		t.Error("the results of another release were resumed")
	}
}

// TestLists wants a mutant that is not caught to stand in a list, and one that is caught to stand in none.
func TestLists(t *testing.T) {
	all := mutants()
	const key = "a.go:f:call-removed:1"
	for name, test := range map[string]struct {
		status                Status
		argued, open, whole   bool
		remark, err, openFile string
	}{
		"caught":                    {status: Killed},
		"caught, argued":            {status: Detected, argued: true, err: "argued not to be caught, but caught: " + key},
		"caught, open, a sample":    {status: Killed, open: true, remark: "caught now, to be taken off open.yaml: " + key + "\n"},
		"caught, open, all":         {status: Killed, open: true, whole: true, err: "caught now, take them off open.yaml: " + key},
		"survived":                  {status: Survived, err: "open.yaml: " + key, openFile: `"` + key + "\": survived\n"},
		"not covered":               {status: NotCovered, err: "open.yaml: " + key, openFile: `"` + key + "\": not covered\n"},
		"survived, open":            {status: Survived, open: true, openFile: `"` + key + "\": survived\n"},
		"survived, argued to be so": {status: Survived, argued: true},
		"equivalent":                {status: Equivalent, argued: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &results{mutants: all, Results: list{{Mutant: all[0], Status: test.status}}, arguments: arguments{}}
			if test.argued {
				r.arguments[key] = argument{standing: gap}
			}
			if test.open {
				r.arguments[key] = argument{standing: open}
			}
			remark, err := r.wrong(test.whole)
			if remark != test.remark ||
				(err == nil) != (test.err == "") ||
				err != nil && !strings.HasSuffix(err.Error(), test.err) {
				t.Errorf("remark %q, error %v, want %q and %q", remark, err, test.remark, test.err)
			}
			folder := t.TempDir()
			if err := r.writeOpen(folder); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(folder, openFile))
			if got := strings.TrimPrefix(string(data), openHead); err != nil || got != test.openFile {
				t.Errorf("%s has %q, %v, want %q", openFile, got, err, test.openFile)
			}
		})
	}
}

// TestCoveragePage shows what was reached, what cannot be, and what could.
func TestCoveragePage(t *testing.T) {
	found := &results{
		Kubernetes: "1.37.1",
		mutants:    mutants(),
		parts:      []Part{{Name: "p"}},
		arguments:  arguments{"a.go:f:call-removed:3": {Reason: "never", standing: unreachable}},
	}
	reached := map[int]bool{1: true, 2: true}
	r := newReach(found, func(n int) bool { return reached[n] })
	page := r.markdown()
	for _, want := range []string{
		"- p: 2 of 3 places (66.7 %); of the 2 that a client can reach, 100.0 %", "| part | file | function | places | reached | share |\n| --- | --- | --- | --: | --: | --: |",
		"| p | a.go | `f` | 3 | 2 | 66.7 % |", "| a.go:30, `f` | `z()` | never |", "## Not reached yet\n\nNothing.\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if len(r.wrong) != 0 {
		t.Errorf("wrong %v, want nothing", r.wrong)
	}
	reached = map[int]bool{1: true, 3: true}
	r = newReach(found, func(n int) bool { return reached[n] })
	if len(r.wrong) != 2 || !strings.Contains(r.markdown(), "| a.go:20, `f` | `y()` |") {
		t.Errorf("wrong %v, want what is not reached, and what is all the same", r.wrong)
	}
}
