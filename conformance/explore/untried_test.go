package explore

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/verdicts"
)

// TestDescribeUntried says what few cases do not try, and nothing of as many as it names itself.
func TestDescribeUntried(t *testing.T) {
	describe := func(cases int) string {
		p := NewPlan(Options{Cells: []server.Options{{Cell: verdicts.Cell{Name: "c", Kubernetes: "1.37"}}}, Cases: cases, Seed: 1}).(*plan)
		return p.cells[0].describeUntried()
	}
	got := describe(400)
	if !strings.Contains(got, "c: not tried: what has expired, a server that was restarted, a chain that was reloaded") ||
		!strings.Contains(got, "two servers side by side; all batches of --cases 8000 ") {
		t.Errorf("400 cases: %q", got)
	}
	if got := describe(8000); got != "" {
		t.Errorf("8000 cases: %q", got)
	}
}
