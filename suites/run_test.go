package suites_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/engine/product/producttest"
	"github.com/authzconf/authzconf/reports"
)

// buildDice compiles the suite of internal/dice, as ginkgo does before it runs a suite.
func buildDice(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "dice.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "./internal/dice").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestDice runs a suite with the flags that ginkgo passes on. It has to judge the same cases as the command line, and a
// case that was not looked at may not be green.
func TestDice(t *testing.T) {
	program := buildDice(t)
	tests := map[string]struct {
		args   string
		passes bool
		want   []string
	}{
		"no flags":           {"", true, nil},
		"passed":             {"--throws=3", true, []string{"3 Passed", "report.html"}},
		"failed":             {"--throws=4", false, []string{"4 is more than 3", "Expected and observed numbers", "3 Passed", "1 Failed"}},
		"not judged":         {"--throws=2 --idle", false, []string{"there is no evidence", "outcome: invalid"}},
		"focus of Ginkgo":    {"--throws=4 -ginkgo.focus=throw-[01]", true, []string{"2 Passed", "2 Skipped"}},
		"labels of Ginkgo":   {"--throws=4 -ginkgo.label-filter=!even", true, []string{"2 Passed", "2 Skipped"}},
		"focus of authzconf": {"--throws=4 --focus=throw-[01]", true, []string{"Ran 2 of 2 Specs"}},
		"nothing is left":    {"--throws=4 -ginkgo.focus=nothing", false, []string{"Ginkgo's filters leave no case"}},
		"required and left":  {"--throws=4 --require=core -ginkgo.focus=throw-0", false, []string{"required and not judged"}},
		"flags behind --":    {"-- --throws=3", false, []string{"are not flags of the suite"}},
		"bad flag":           {"--throws=0", false, []string{"--throws 0: expected at least 1"}},
		"processes": {
			"--throws=2 -ginkgo.parallel.total=2 -ginkgo.parallel.process=1 -ginkgo.parallel.host=127.0.0.1:1",
			false,
			[]string{"-p and --procs are refused"},
		},
		"attempts":            {"--throws=2 -ginkgo.flake-attempts=2", false, []string{"--flake-attempts is refused"}},
		"in a random order":   {"--throws=3 -ginkgo.randomize-all -ginkgo.seed=7", true, []string{"3 Passed"}},
		"with a JUnit report": {"--throws=3 -ginkgo.junit-report=junit.xml", true, []string{"3 Passed"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			args := strings.Fields(test.args)
			if len(args) > 0 {
				args = append(args, "--report-dir=out", "-ginkgo.no-color", "-ginkgo.v")
			}
			command := exec.CommandContext(t.Context(), program, append(args, "-test.v")...)
			command.Dir = dir
			out, err := command.CombinedOutput()
			if (err == nil) != test.passes {
				t.Errorf("%v, passes: %t\n%s", err, test.passes, out)
			}
			for _, want := range test.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			verifyDice(t, filepath.Join(dir, "out"))
			checkWitness(t, filepath.Join(dir, "junit.xml"))
		})
	}
}

// TestGinkgo runs a suite by the program ginkgo. That program recognizes a suite of Ginkgo only by a test file that
// imports Ginkgo. In other folders it runs go test without the flags after --, so that nothing would be looked at and
// everything would be green.
func TestGinkgo(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "out")
	out, err := exec.CommandContext(t.Context(), "go", "run", "github.com/onsi/ginkgo/v2/ginkgo", "--no-color", "./internal/dice", "--", "--throws=3", "--report-dir="+folder).
		CombinedOutput()
	if err != nil || !strings.Contains(string(out), "3 Passed") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(folder, reports.ReportFile)); err != nil {
		t.Error(err)
	}
	verifyDice(t, folder)
	suites, err := filepath.Glob("*/*_test.go")
	if err != nil || len(suites) < 8 {
		t.Fatalf("%q, %v", suites, err)
	}
	for _, path := range suites {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(source); strings.Contains(text, "suite.RunSpecs(") && !strings.Contains(text, `"github.com/onsi/ginkgo/v2"`) {
			t.Errorf("%s does not import Ginkgo, so that ginkgo would run it without its flags", path)
		}
	}
}

// checkWitness checks that the properties of a JUnit file contain the facts of each group, if there is such a file.
func checkWitness(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		return
	}
	for _, want := range []string{`name="table sides" value="6"`, `name="RandomSeed"`, `tests="3"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in\n%s", want, data)
		}
	}
}

// verifyDice verifies the report in a folder, if there is one.
func verifyDice(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, reports.ReportFile)); err != nil {
		return
	}
	v := producttest.VerifyFolder(t, producttest.Dice, dir, nil)
	if len(v.Differences) > 0 {
		t.Errorf("%q", v.Differences)
	}
}
