package mutants

import (
	"slices"
	"testing"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// TestSideBySide sends generated cases side by side to an API server that refuses what is granted while it is busy. Each case passes
// alone; what differs side by side twice is a failure, and the API server's.
func TestSideBySide(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a kube-apiserver, and sends cases to it")
	}
	program := buildFault(t, "refuses-when-busy")
	expectBlame(
		t,
		runTool(t, buildTool(t), nil, reports.ExitFailed, "explore", "--cases", "5600", "--focus", "crowded", "--api-server", program),
	)
}

// TestOneMemberOnce walks an upgrade path with two API servers behind a balancer. On the last stage the second of them runs one
// request as its requestor, and never again: one wrong answer among all those that flow meanwhile is enough.
func TestOneMemberOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a kube-apiserver, and walks an upgrade path")
	}
	const member = "3-1.37-b"
	program := buildFault(t, "once-a-process")
	judged := runTool(
		t,
		buildTool(t),
		nil,
		reports.ExitFailed,
		"upgrade",
		"--high-availability",
		"--path",
		"1.37,1.37-gate,1.37",
		"--api-server",
		member+"="+program,
	)
	expectBlame(t, judged)
	for _, g := range judged.Groups {
		for _, r := range g.Cases {
			if r.Verdict == verdicts.Failed && g.Name != member {
				t.Errorf("%s failed on %s, and the fault is in %s", r.Case, g.Name, member)
			}
		}
	}
}

// buildFault compiles a kube-apiserver with a fault of faults.yaml.
func buildFault(t *testing.T, name string) (program string) {
	t.Helper()
	faults := parseFaults(t, faultsFile, "faults")
	i := slices.IndexFunc(faults, func(f fault) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("there is no fault %s", name)
	}
	return buildInto(t, t.TempDir(), faults[i])
}
