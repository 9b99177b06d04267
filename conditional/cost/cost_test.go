package cost

import (
	"bytes"
	"strings"
	"testing"
)

// TestCost measures little, and looks at the counts.
func TestCost(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	c, err := MeasureCost(t.Context(), CostOptions{Rounds: 2, Requests: 5, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Agrees() || len(c.Calls) != 2 {
		t.Errorf("calls %+v", c.Calls)
	}
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{variantCompiled, variantWebhook, variantToday, "all-finalizers", "2 rounds"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, out.String())
		}
	}
}

func TestCompare(t *testing.T) {
	blocks := map[string][]float64{"a": {1, 2, 4, 1, 2, 4}, "b": {2, 4, 8, 2, 4, 8}}
	rows, err := compare(blocks, "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; r.Ratio.Estimate < 1.999 || r.Ratio.Estimate > 2.001 || r.Median != 4 || r.P > 0.05 {
		t.Errorf("%+v", r)
	}
	if _, err := compare(blocks, "a", "none"); err == nil {
		t.Error("what was not measured is compared")
	}
}

// TestCallsThatDisagree is the control: what differs is seen.
func TestCallsThatDisagree(t *testing.T) {
	for calls, want := range map[Calls]bool{
		{Cached: true, Judged: 1}: true, {Reviews: 1, Judged: 1}: true,
		{Cached: true, Reviews: 1, Judged: 1}: false, {Reviews: 1}: false,
	} {
		if got := (&Cost{Calls: []Calls{calls}}).Agrees(); got != want {
			t.Errorf("%+v agrees: %t, want %t", calls, got, want)
		}
	}
}
