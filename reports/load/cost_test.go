package load

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/reports/load/run"
)

// costOf is of simulated runs with one number of agents each.
func costOf(t *testing.T, agents ...int) *Cost {
	t.Helper()
	var runs []*run.Run
	for _, n := range agents {
		s := simulation{seed: 3, pairs: 2, requests: 400, noise: 0.02, agents: []int{n}}
		r := s.run()
		r.Agents = n
		runs = append(runs, &r)
	}
	c, err := NewCost(runs...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Runs with one number of agents each make a curve together.
func TestCostOfSeveralRuns(t *testing.T) {
	c := costOf(t, 1000, 10, 100)
	page, err := c.HTML()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(page), "<svg"); n != 2 || !strings.Contains(string(page), "associated-node on gate-on") || strings.Contains(string(page), "ZgotmplZ") {
		t.Errorf("%d plots", n)
	}
	pictures := c.Pictures()
	if len(pictures) != 2 || !strings.Contains(string(pictures["cpu.svg"]), `xmlns="http://www.w3.org/2000/svg"`) {
		t.Errorf("pictures %d", len(pictures))
	}
	text := string(c.Markdown("cpu.svg"))
	if !strings.Contains(text, "| variant | 10 agents | 100 agents | 1000 agents |") || strings.Contains(text, "not run") || !strings.Contains(text, "(cpu.svg)") {
		t.Errorf("not in order of agents:\n%s", text)
	}
}

// Where a variant did not run, or no curve is to be had, it says so.
func TestCostOfWhatDidNotRun(t *testing.T) {
	if _, err := NewCost(&run.Run{}); err == nil {
		t.Error("one run makes a curve")
	}
	c := costOf(t, 10, 10)
	if _, err := c.HTML(); err == nil || !strings.Contains(err.Error(), "several numbers of agents") {
		t.Errorf("one number of agents makes a curve: %v", err)
	}
	other := *c.columns[0].run
	other.Blocks = nil
	c, err := NewCost(c.columns[0].run, &other)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(c.Markdown()); !strings.Contains(text, "not run") || !strings.Contains(text, "executed broken") && !strings.Contains(text, "executed unknown") {
		t.Errorf("a run without blocks looks sound:\n%s", text)
	}
}
