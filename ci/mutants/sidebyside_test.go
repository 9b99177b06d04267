package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/authzconf/authzconf/reports"
)

// TestSideBySide sends generated cases side by side to an API server that refuses what is granted while it is busy. Each case passes
// alone; what differs side by side twice is a failure, and the API server's.
func TestSideBySide(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a kube-apiserver, and sends cases to it")
	}
	faults := parseFixes(t, faultsFile, "faults")
	i := slices.IndexFunc(faults, func(f fix) bool { return f.Finding == "refuses-when-busy" })
	if i < 0 {
		t.Fatal("there is no fault refuses-when-busy")
	}
	program := buildInto(t, t.TempDir(), faults[i])
	report := filepath.Join(t.TempDir(), "report")
	command := exec.CommandContext(t.Context(), "go", "run", "./cmd/authzconf", "explore", "--cases", "5600", "--focus", "crowded",
		"--api-server", program, "--report-dir", report)
	command.Dir = filepath.Join(ownFolder, "../..")
	output, err := command.CombinedOutput()
	if err == nil {
		t.Fatalf("it passed: %s", output)
	}
	text, err := os.ReadFile(filepath.Join(report, "report.yaml"))
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	judged, err := reports.DecodeJudged("report.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if judged.Outcome.ExitCode != reports.ExitFailed {
		t.Errorf("exit code %d: %s", judged.Outcome.ExitCode, output)
	}
	expectBlame(t, judged)
}
