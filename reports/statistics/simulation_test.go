package statistics

import (
	"math"
	"math/rand/v2"
	"testing"
)

// simulated is a kind of run. The log-ratio of a pair is the sum of the effect, of the difference of two processes
// (which is the same in all pairs of a start), and of the difference of two blocks. One block in 20 is disturbed by
// something else on the machine, and is three times as noisy. Noise that both blocks of a pair share is not in their
// ratio.
type simulated struct {
	// pairs has the number of each start.
	pairs []int
	// process and block are deviations of the logarithm of one process and of one block.
	process, block float64
	effect         float64
}

// These are the smallest numbers with which a statement is allowed: two quantiles of an A/A comparison, and 14 tests.
var (
	fewestAA    = []int{2, 2, 1, 1, 1}
	fewestOf14  = []int{2, 2, 2, 2, 2}
	twentyPairs = []int{4, 4, 4, 4, 4}
)

// simulatedRuns is so large that 1 % is six standard errors of a part of 5 %.
const simulatedRuns = 20_000

func (s simulated) pair(r *rand.Rand, processes float64) float64 {
	noise := func() float64 {
		if r.IntN(20) == 0 {
			return 3 * s.block * r.NormFloat64()
		}
		return s.block * r.NormFloat64()
	}
	return math.Log1p(s.effect) + processes + noise() - noise()
}

// run draws the pairs of a run, and the start to which each belongs.
func (s simulated) run(r *rand.Rand) (starts []int, x []float64) {
	for start, n := range s.pairs {
		processes := s.process * (r.NormFloat64() - r.NormFloat64())
		for range n {
			starts, x = append(starts, start), append(x, s.pair(r, processes))
		}
	}
	return starts, x
}

// part returns how often a condition holds for the start means of simulated runs.
func (s simulated) part(seed uint64, holds func(means []float64) bool) float64 {
	r := rand.New(rand.NewPCG(seed, 16))
	n := 0
	for range simulatedRuns {
		if holds(StartMeans(s.run(r))) {
			n++
		}
	}
	return float64(n) / simulatedRuns
}

// within fails a test unless a part is the expected one, plus or minus 1 %.
func within(t *testing.T, what string, got, want float64) {
	t.Helper()
	t.Logf("%s: %.2f %%, nominal %.0f %%", what, 100*got, 100*want)
	if math.Abs(got-want) > 0.01 {
		t.Errorf("%s: %.2f %%, want %.0f %% within 1 %%", what, 100*got, 100*want)
	}
}

func TestFewest(t *testing.T) {
	for tests, want := range map[int]int{1: 6, 2: 7, 14: 10} {
		if got := PairsNeeded(tests); got != want {
			t.Errorf("%d tests need %d pairs, want %d", tests, got, want)
		}
	}
	for tests, pairs := range map[int][]int{2: fewestAA, 14: fewestOf14} {
		n := 0
		for _, p := range pairs {
			n += p
		}
		if n != PairsNeeded(tests) || len(pairs) != MinStarts {
			t.Errorf("%d pairs in %d starts are simulated as the fewest for %d tests", n, len(pairs), tests)
		}
	}
}

// TestCoverage checks that an interval contains the truth as often as it claims, with the fewest starts and pairs that
// are allowed, whether processes or blocks differ.
func TestCoverage(t *testing.T) {
	for _, s := range []simulated{
		{pairs: fewestAA, process: 0.01, block: 0.01, effect: 0.03},
		{pairs: fewestAA, process: 0.03, block: 0.005, effect: 0.03},
		{pairs: fewestOf14, process: 0.01, block: 0.01, effect: 0.03},
		{pairs: fewestOf14, process: 0.01, block: 0.03, effect: 0.03},
		{pairs: twentyPairs, process: 0.01, block: 0.03, effect: 0.03},
	} {
		for _, level := range []float64{0.9, 0.95} {
			truth := math.Log1p(s.effect)
			within(t, "coverage", s.part(1, func(means []float64) bool {
				i, ok := MeanInterval(means, level)
				return ok && i.Low <= truth && truth <= i.High
			}), level)
		}
	}
}

// TestFalsePositivesOfStarts checks that two equal servers, whose processes differ by 1 % by chance, are not told apart
// more often than the level says, however many pairs there are. It also checks that a comparison by pairs would tell
// them apart, so that the simulation can show the mistake.
func TestFalsePositivesOfStarts(t *testing.T) {
	s := simulated{pairs: []int{20, 20, 20, 20, 20}, process: 0.01, block: 0.01}
	within(t, "false positives", s.part(2, func(means []float64) bool { return TTest(means) <= Alpha }), Alpha)
	r := rand.New(rand.NewPCG(3, 16))
	byPairs := 0
	for range 1000 {
		if _, x := s.run(r); TTest(x) <= Alpha {
			byPairs++
		}
	}
	t.Logf("by pairs: %d of 1000", byPairs)
	if byPairs < 300 {
		t.Errorf("a test that takes pairs for units errs in %d of 1000 runs: the simulation has no starts to speak of", byPairs)
	}
}

// TestAAByEquivalence is about the A/A check, which asks for equivalence. Two servers that differ by as much as its
// margin pass it as rarely as the level says. Two equal servers pass if starts scatter little compared with the margin,
// and are undecided otherwise.
func TestAAByEquivalence(t *testing.T) {
	const margin = 0.1
	passes := func(process, effect float64) float64 {
		s := simulated{pairs: twentyPairs, process: process, block: 0.03, effect: effect}
		return s.part(4, func(means []float64) bool {
			ninety, _ := MeanInterval(means, 0.9)
			return Equivalent90(ninety, margin) == Equivalent
		})
	}
	for _, process := range []float64{0.01, 0.03} {
		within(t, "A/A passes, servers that differ by the margin", passes(process, margin), Alpha)
	}
	least, most := map[float64]float64{0.01: 0.99, 0.03: 0.75}, map[float64]float64{0.06: 0.5}
	for process, part := range least {
		got := passes(process, 0)
		t.Logf("A/A passes, no difference, processes differ by %g %%: %.1f %%", 100*process, 100*got)
		if got < part {
			t.Errorf("A/A passes in %.1f %% of runs, want %.0f %%", 100*got, 100*part)
		}
	}
	for process, part := range most {
		got := passes(process, 0)
		t.Logf("A/A passes, no difference, processes differ by %g %%: %.1f %%", 100*process, 100*got)
		if got > part {
			t.Errorf("A/A passes in %.1f %% of runs, though starts scatter as much as the margin", 100*got)
		}
	}
}

// TestPower shows what 20 pairs in 5 starts can detect.
func TestPower(t *testing.T) {
	for effect, least := range map[float64]float64{0.05: 0.75, 0.1: 0.995} {
		s := simulated{pairs: twentyPairs, process: 0.01, block: 0.03, effect: effect}
		got := s.part(5, func(means []float64) bool { return TTest(means) <= Alpha })
		t.Logf("%+.0f %% is found in %.1f %% of runs", 100*effect, 100*got)
		if got < least {
			t.Errorf("%+.0f %% is found in %.1f %% of runs, want %.1f %%", 100*effect, 100*got, 100*least)
		}
	}
}

// TestHolmFamily has 14 tests of a report. Some differ, and some do not. The chance that any of the latter is said to
// differ is the error of the family: at most 5 %, and near to it if none differs. The test also checks that this is not
// achieved by finding nothing.
func TestHolmFamily(t *testing.T) {
	for _, differ := range []int{0, 7} {
		r := rand.New(rand.NewPCG(6, 16))
		wrong, found := 0, 0
		for range simulatedRuns {
			p := make([]float64, 14)
			for i := range p {
				s := simulated{pairs: fewestOf14, process: 0.01, block: 0.01}
				if i < differ {
					s.effect = 0.2
				}
				p[i] = TTest(StartMeans(s.run(r)))
			}
			err := false
			for i, adjusted := range Holm(p) {
				if adjusted <= Alpha && i < differ {
					found++
				}
				err = err ||
					adjusted <= Alpha && i >= differ
			}
			if err {
				wrong++
			}
		}
		within(t, "error of the family", float64(wrong)/simulatedRuns, Alpha)
		if found < differ*simulatedRuns*95/100 {
			t.Errorf("%d of %d real differences of 20 %% are found", found, differ*simulatedRuns)
		}
	}
}

// TestEquivalenceErrors checks that a difference as large as the margin is called "equivalent" in at most 5 % of runs,
// and that no difference nearly always is, if the noise is small compared with the margin. The same holds for "above".
func TestEquivalenceErrors(t *testing.T) {
	const margin = 0.1
	says := func(effect float64, pairs []int, want Equivalence) float64 {
		s := simulated{pairs: pairs, process: 0.01, block: 0.02, effect: effect}
		return s.part(7, func(means []float64) bool {
			i, _ := MeanInterval(means, 0.9)
			return Equivalent90(i, margin) == want
		})
	}
	for _, pairs := range [][]int{fewestAA, fewestOf14, twentyPairs} {
		within(t, "equivalent at the margin", says(margin, pairs, Equivalent), 0.05)
		within(t, "above at the margin", says(margin, pairs, Above), 0.05)
		if got := says(0, pairs, Equivalent); got < 0.95 {
			t.Errorf("no difference is equivalent in %.1f %% of runs", 100*got)
		}
		if got := says(0.2, pairs, Above); got < 0.95 {
			t.Errorf("twice the margin is above in %.1f %% of runs", 100*got)
		}
	}
}

// TestStartsToDecide checks that as many starts as StartsToDecide says decide in four runs of five if nothing differs,
// and that a third of them decide in fewer.
func TestStartsToDecide(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 16))
	const deviation, margin = 0.4, 0.25
	wide := make([]float64, simulatedRuns)
	for i := range wide {
		wide[i] = deviation * r.NormFloat64()
	}
	n := StartsToDecide(wide, margin)
	decided := func(n int) float64 {
		equivalent := 0
		for range simulatedRuns {
			means := make([]float64, n)
			for i := range means {
				means[i] = deviation * r.NormFloat64()
			}
			if ninety, _ := MeanInterval(means, 0.9); Equivalent90(ninety, margin) == Equivalent {
				equivalent++
			}
		}
		return float64(equivalent) / simulatedRuns
	}
	if got := decided(n); math.Abs(got-0.8) > 0.03 {
		t.Errorf("%d starts decide in %.1f %% of runs", n, 100*got)
	}
	if got := decided(n / 3); got > 0.3 {
		t.Errorf("%d starts decide in %.1f %% of runs", n/3, 100*got)
	}
	if got := StartsToDecide([]float64{0.01, 0.01}, 0.1); got != MinStarts {
		t.Errorf("without scatter: %d", got)
	}
}
