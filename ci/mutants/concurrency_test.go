package mutants

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

//go:embed concurrency.yaml
var concurrencyFile []byte

// TestConcurrency runs all scenarios, and then a storm of the profile concurrency, on an API server with one fault after the
// other that only requests at once show. Scenarios pass, and the storm fails and blames the API server. The same program
// without a fault passes both.
func TestConcurrency(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a kube-apiserver, and runs the suite and a storm on it")
	}
	faults := parseFaults(t, concurrencyFile, "concurrency")
	program := buildFaults(t, &local.Binaries{Progress: os.Stderr}, local.Newest(), faults)
	tool := buildTool(t)
	t.Run("no fault", func(t *testing.T) {
		expectOutcome(t, faultyServer{tool, program, 0, len(faults)}, reports.ExitPassed, "load", "--profile", "concurrency")
	})
	for i, f := range faults {
		t.Run(f.Name, func(t *testing.T) {
			server := faultyServer{tool, program, i + 1, len(faults)}
			expectOutcome(t, server, reports.ExitPassed, "run", "--gate", "on", "--require", "core,extended")
			report := expectOutcome(t, server, reports.ExitFailed, "load", "--profile", "concurrency")
			expectBlame(t, report)
		})
	}
}

// faultyServer is a program with several faults, and the authzconf that tries it. fault is the number of the one that is on.
type faultyServer struct {
	tool, program string
	fault, faults int
}

// expectOutcome runs a command of authzconf on a faulty API server, and compares the outcome of its report.
func expectOutcome(t *testing.T, s faultyServer, want int, args ...string) *reports.Report {
	t.Helper()
	shared := filepath.Join(t.TempDir(), "shared")
	writeChoice(t, shared, s.fault, s.faults)
	return runTool(t, s.tool, []string{"TEST_ASSET_KUBE_APISERVER=" + s.program, SharedVariable + "=" + shared}, want, args...)
}

// writeChoice writes the file through which a program with several faults is told which one it has, from 1; 0 is none.
func writeChoice(t *testing.T, path string, fault, faults int) {
	t.Helper()
	number := binary.LittleEndian.AppendUint32(nil, uint32(fault))
	if err := os.WriteFile(path, append(number, make([]byte, faults+1)...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// buildTool builds authzconf.
func buildTool(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "authzconf")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/authzconf")
	build.Dir = filepath.Join(ownFolder, "../..")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return program
}

// runTool runs a command of authzconf, with variables of the environment, and compares the outcome of its report.
func runTool(t *testing.T, tool string, env []string, want int, args ...string) *reports.Report {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "report")
	command := exec.CommandContext(t.Context(), tool, append(args, "--report-dir", folder)...)
	command.Env = append(os.Environ(), env...)
	output, err := command.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, reports.ReportFile))
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	report, err := reports.DecodeJudged(reports.ReportFile, text)
	if err != nil {
		t.Fatal(err)
	}
	if report.Outcome.ExitCode != want {
		t.Errorf("%v: exit code %d, want %d: %s", args, report.Outcome.ExitCode, want, output)
	}
	return report
}

// expectBlame looks for a case that failed because of the API server. How many answers are errors is nobody's to blame by
// itself.
func expectBlame(t *testing.T, r *reports.Report) {
	t.Helper()
	blamed := 0
	for _, g := range r.Groups {
		for _, result := range g.Cases {
			if result.Verdict != verdicts.Failed {
				continue
			}
			t.Logf("%s (blame: %s): %s", result.Case, result.Blame, result.Reason)
			switch result.Blame {
			case verdicts.BlameAPIServer:
				blamed++
			case "":
			default:
				t.Errorf("%s: blame %q", result.Case, result.Blame)
			}
		}
	}
	if blamed == 0 {
		t.Error("no case failed because of the API server")
	}
}
