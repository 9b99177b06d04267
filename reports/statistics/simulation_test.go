package statistics

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/authzconf/authzconf/reports/load/histogram"
)

// A simulated run is 20 pairs of blocks with 500 requests each. Both blocks of a
// pair share what the machine does at the time (deviation 10 %), each has some of
// its own (3 %), and successive requests are alike (autoregressive, 0.8): the
// reasons for which single requests are not compared.
const (
	simulatedRuns  = 200
	simulatedPairs = 20
	simulatedBlock = 500
)

func simulatedLogRatios(t *testing.T, r *rand.Rand, effect float64) []float64 {
	t.Helper()
	a, b := make([]float64, simulatedPairs), make([]float64, simulatedPairs)
	for i := range simulatedPairs {
		shared := 0.10 * r.NormFloat64()
		a[i] = simulatedP50(r, shared)
		b[i] = simulatedP50(r, shared+math.Log1p(effect))
	}
	x, err := LogRatios(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func simulatedP50(r *rand.Rand, level float64) float64 {
	level += 0.03 * r.NormFloat64()
	var h histogram.Histogram
	var noise float64
	for range simulatedBlock {
		noise = 0.8*noise + 0.6*r.NormFloat64()
		h.Record(time.Duration(float64(4*time.Millisecond) * math.Exp(level+0.15*noise)))
	}
	return float64(h.Quantile(0.5))
}

// simulate counts runs in which the test is significant, and in which the 95 %
// interval does not hold the truth.
func simulate(t *testing.T, seed uint64, effect float64) (significant, outside int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	for run := range simulatedRuns {
		x := simulatedLogRatios(t, r, effect)
		if SignFlip(x, uint64(run)) <= 0.05 {
			significant++
		}
		i := Bootstrap(x, uint64(run)).Interval(0.95)
		if truth := math.Log1p(effect); truth < i.Low || truth > i.High {
			outside++
		}
	}
	return significant, outside
}

// mostBy is how many of 200 runs are at most false by chance (99.9 %) if a part p
// of them is.
func mostBy(p float64) int {
	k := 0
	for (distuv.Binomial{N: simulatedRuns, P: p}).CDF(float64(k)) < 0.999 {
		k++
	}
	return k
}

func TestFalsePositives(t *testing.T) {
	significant, outside := simulate(t, 42, 0)
	t.Logf("A/A: %d of %d runs significant at 5 %%, %d outside of their 95 %% interval", significant, simulatedRuns, outside)
	if limit := mostBy(0.05); significant > limit {
		t.Errorf("%d of %d runs without a difference are significant, expected at most %d", significant, simulatedRuns, limit)
	}
	if significant == 0 {
		t.Error("no run is significant: a test at 5 % that never errs does not test")
	}
	// Percentile intervals of 20 values are known to be a little too narrow.
	if limit := mostBy(0.075); outside > limit {
		t.Errorf("%d of %d intervals miss the truth, expected at most %d", outside, simulatedRuns, limit)
	}
}

func TestPower(t *testing.T) {
	significant, outside := simulate(t, 43, 0.05)
	t.Logf("+5 %% of p50: %d of %d runs significant, %d outside of their 95 %% interval", significant, simulatedRuns, outside)
	if significant < simulatedRuns*90/100 {
		t.Errorf("+5 %% is found in %d of %d runs, expected 90 %%", significant, simulatedRuns)
	}
	if limit := mostBy(0.075); outside > limit {
		t.Errorf("%d of %d intervals miss the truth, expected at most %d", outside, simulatedRuns, limit)
	}
}

// One A/A pair is held against the spread of the others, with as few false
// positives.
func TestFalsePositivesOfOneAAPair(t *testing.T) {
	r := rand.New(rand.NewPCG(44, 1))
	significant := 0
	for run := range simulatedRuns {
		x := simulatedLogRatios(t, r, 0.02)
		aa := simulatedLogRatios(t, r, 0)[:1]
		p, ok := AA(aa, Residuals(x), len(x)-1, uint64(run))
		if !ok {
			t.Fatal("not judged")
		}
		if p <= 0.05 {
			significant++
		}
	}
	t.Logf("one A/A pair: %d of %d runs differ at 5 %%", significant, simulatedRuns)
	if limit := mostBy(0.05); significant > limit || significant == 0 {
		t.Errorf("%d of %d runs differ, expected 1 to %d", significant, simulatedRuns, limit)
	}
}
