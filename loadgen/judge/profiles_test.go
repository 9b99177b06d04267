package judge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/simulated"
)

// TestProfileDifference checks that only shares that differ by more than chance are reported, the largest difference
// first.
func TestProfileDifference(t *testing.T) {
	a := run.CPUProfile{Samples: 1000, Functions: map[string]int64{"syscall": 400, "authorize": 50, "noise": 100}}
	b := run.CPUProfile{Samples: 2000, Functions: map[string]int64{"syscall": 500, "authorize": 300, "noise": 210, "new": 2}}
	for i := range 10 {
		a.Functions[fmt.Sprint("small", i)] = 3
	}
	d := compareProfile("API server", a, b)
	if len(d.Differ) != 2 || d.Differ[0] != (FunctionShare{"syscall", 0.4, 0.25}) ||
		d.Differ[1] != (FunctionShare{"authorize", 0.05, 0.15}) {
		t.Errorf("differ: %v", d.Differ)
	}
	if len(d.Top) != shownFunctions ||
		d.Top[0].Function != "syscall" ||
		d.Top[2].Function != "authorize" && d.Top[1].Function != "noise" {
		t.Errorf("top: %v", d.Top)
	}
	if same := compareProfile("API server", a, a); len(same.Differ) != 0 {
		t.Errorf("a profile differs from itself: %v", same.Differ)
	}
	with, without := &run.Block{Profiles: map[string]run.CPUProfile{"API server": a}}, &run.Block{}
	got := compareProfiles([]pair{{a: []*run.Block{with}, b: with}, {a: []*run.Block{with}, b: without}})
	if len(got) != 1 || got[0].SamplesB != 1000 {
		t.Errorf("the last pair with both: %v", got)
	}
}

// TestTakenOut checks that what a block counts twice is removed from one of the two counts.
func TestTakenOut(t *testing.T) {
	for want, spoil := range map[string]func(*run.Run){
		"block 3: answers that were not expected, in all and by second: 0 and 5": func(r *run.Run) { r.Blocks[3].Timeline[0].Errors = 5 },
		"block 3: latencies, of all requests and by kind: ":                      func(r *run.Run) { r.Blocks[3].Kinds = nil },
	} {
		r := simulated.Sound().Run()
		spoil(&r)
		if result := Judge(r, Thresholds{}); result.Outcome != Inconclusive || !strings.Contains(strings.Join(result.Reasons, "\n"), want) {
			t.Errorf("want %q; got %s", want, reasonsText(result))
		}
	}
}

// TestOwnUnknown checks that a limit of all reviews stays undecided if those of the requests themselves are not
// counted.
func TestOwnUnknown(t *testing.T) {
	r := simulated.Sound().Run()
	r.OwnUnknown = true
	result := Judge(r, Thresholds{Limits: Limits{ReviewsPerRequest: 2}})
	if want := "the checks of the requests themselves are not counted"; result.Outcome != Inconclusive ||
		!strings.Contains(strings.Join(result.Reasons, "\n"), want) {
		t.Errorf("want %q; got %s", want, reasonsText(result))
	}
	if of := result.Variants[0].Reviews.Of; !strings.HasPrefix(of, "impersonation alone, ") {
		t.Errorf("reviews of %q", of)
	}
}
