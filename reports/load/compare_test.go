package load

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

func TestCompareRuns(t *testing.T) {
	s := sound()
	a := s.run()
	// The same arrivals, other luck, and nothing else.
	again := s
	again.seed = 13
	b := again.run()
	result, err := Compare(a, b, Thresholds{Margin: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Comparisons) != 3 || result.Comparisons[1].Pairs != 40 || result.Comparisons[1].Name != "legacy on gate-off" {
		t.Errorf("%+v", result.Comparisons)
	}
	if result.Outcome != Passed || !strings.Contains(strings.Join(result.Notes, "\n"), "seed: 11 in A, 13 in B") {
		t.Errorf("%s %q", reasonsText(result), result.Notes)
	}
	// The variant with the gate has become slower, the other not.
	slower := s
	slower.effect = 0.3
	result, err = Compare(a, slower.run(), Thresholds{Margin: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Comparisons; result.Outcome != Failed || got[0].P50.Verdict != statistics.Above || got[0].P50.PHolm > 0.001 || got[1].P50.Verdict != statistics.Equivalent {
		t.Errorf("%s %+v", reasonsText(result), result.Comparisons)
	}
	// The other way round it has become faster.
	result, err = Compare(slower.run(), a, Thresholds{Margin: 0.05})
	if err != nil || result.Outcome != Passed || result.Comparisons[0].P50.Verdict != statistics.Below {
		t.Errorf("%v, %s", err, reasonsText(result))
	}
}

func TestCompareCannotSay(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*run.Run)
		why   string
	}{
		{"one run was interrupted", func(r *run.Run) { r.Interrupted = true }, "run B: undisturbed"},
		{"blocks are missing", func(r *run.Run) { r.Blocks = r.Blocks[4:] }, "have no counterpart"},
		{"a block too many", func(r *run.Run) { r.Blocks = append(r.Blocks, r.Blocks[0]) }, "0 blocks of A and 1 of B have no counterpart"},
		{"too few pairs", func(r *run.Run) { r.Blocks = r.Blocks[:24] }, "a claim needs 20"},
		{"other arrivals", func(r *run.Run) {
			for i := range r.Blocks {
				r.Blocks[i].Timeline = append([]run.Second{{}}, r.Blocks[i].Timeline...)
			}
		}, "came in another second"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := sound().run(), sound().run()
			c.spoil(&b)
			result, err := Compare(a, b, Thresholds{Margin: 0.05})
			if err != nil || result.Outcome != Inconclusive || !strings.Contains(reasonsText(result), c.why) {
				t.Errorf("want inconclusive, %q; got %v, %s", c.why, err, reasonsText(result))
			}
		})
	}
	a, b := sound().run(), sound().run()
	for i := range b.Blocks {
		b.Blocks[i].Variant = "other"
	}
	if _, err := Compare(a, b, Thresholds{}); err == nil || !strings.Contains(err.Error(), "no variant in common") {
		t.Errorf("%v", err)
	}
	if _, err := Compare(run.Run{}, run.Run{}, Thresholds{}); err == nil {
		t.Error("nothing was compared with nothing")
	}
}
