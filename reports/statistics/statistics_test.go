package statistics

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var about = cmpopts.EquateApprox(0, 1e-6)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !cmp.Equal(got, want, about) {
		t.Errorf("%s: got %.9g, want %.9g", what, got, want)
	}
}

func TestLogRatios(t *testing.T) {
	got, err := LogRatios([]float64{1, 2, 4}, []float64{math.E, 2, 1})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{1, 0, -math.Log(4)}, got, about); diff != "" {
		t.Error(diff)
	}
	for _, c := range [][2][]float64{
		{{1}, {1, 2}}, {{0}, {1}}, {{1}, {0}}, {{1}, {-1}}, {{math.NaN()}, {1}}, {{1}, {math.Inf(1)}},
	} {
		if got, err := LogRatios(c[0], c[1]); err == nil {
			t.Errorf("%v and %v have the ratios %v, expected an error", c[0], c[1], got)
		}
	}
}

func TestStartMeans(t *testing.T) {
	got := StartMeans([]int{1, 0, 1, 4, 1}, []float64{1, 7, 2, -1, 6})
	if diff := cmp.Diff([]float64{7, 3, -1}, got, about); diff != "" {
		t.Error(diff)
	}
}

func TestTTest(t *testing.T) {
	for _, c := range []struct {
		name string
		x    []float64
		want float64
	}{
		{"nothing", nil, 1},
		{"one start", []float64{3}, 1},
		{"no difference at all", []float64{0, 0, 0}, 1},
		{"the same difference each time", []float64{2, 2, 2}, 0},
		// With 1 degree of freedom t is Cauchy's: 3/1 has p 1 - 2/π·atan 3.
		{"two starts", []float64{2, 4}, 1 - 2/math.Pi*math.Atan(3)},
	} {
		near(t, c.name, TTest(c.x), c.want)
	}
	// t of 4 degrees at 0.975 is 2.776445: the interval of the same values ends at 0.
	x := []float64{-2, -1, 0, 1, 2}
	for i := range x {
		x[i] += 2.776445105 * math.Sqrt(0.5)
	}
	near(t, "at the end of the interval", TTest(x), 0.05)
}

func TestHolm(t *testing.T) {
	for _, c := range []struct{ p, want []float64 }{
		{nil, []float64{}},
		{[]float64{0.03}, []float64{0.03}},
		{[]float64{0.01, 0.04, 0.03, 0.005}, []float64{0.03, 0.06, 0.06, 0.02}},
		{[]float64{0.6, 0.7}, []float64{1, 1}},
	} {
		if diff := cmp.Diff(c.want, Holm(c.p), about); diff != "" {
			t.Errorf("%v: %s", c.p, diff)
		}
	}
}

func TestEquivalence(t *testing.T) {
	bound := math.Log(1.05)
	for _, c := range []struct {
		low, high float64
		want      Equivalence
	}{
		{-0.01, 0.01, Equivalent},
		{0.01, bound - 1e-9, Equivalent},
		{0.01, bound, Undecided},
		{-bound, 0, Undecided},
		{-1, 1, Undecided},
		{bound, 0.2, Above},
		{bound - 1e-9, 0.2, Undecided},
		{-0.2, -bound, Below},
		{math.NaN(), 0, Undecided},
	} {
		if got := Equivalent90(Interval{Low: c.low, High: c.high}, 0.05); got != c.want {
			t.Errorf("[%g, %g] is %s, want %s", c.low, c.high, got, c.want)
		}
	}
	if got := Equivalent90(Interval{}, 0); got == Equivalent {
		t.Error("nothing lies within no margin")
	}
}

func TestMeanInterval(t *testing.T) {
	// t of 4 degrees at 0.975 is 2.776445, the standard error √(2.5/5).
	got, ok := MeanInterval([]float64{1, 2, 3, 4, 5}, 0.95)
	half := 2.776445105 * math.Sqrt(0.5)
	if want := (Interval{3, 3 - half, 3 + half}); !ok || !cmp.Equal(got, want, about) {
		t.Errorf("got %v %v, want %v", got, ok, want)
	}
	if got, ok := MeanInterval([]float64{3, 3}, 0.95); !ok || got != (Interval{3, 3, 3}) {
		t.Errorf("two equal values: got %v %v", got, ok)
	}
	if got, ok := MeanInterval([]float64{3}, 0.95); ok || got.Estimate != 3 {
		t.Errorf("one value: got %v %v", got, ok)
	}
	if _, ok := MeanInterval(nil, 0.95); ok {
		t.Error("no value has an interval")
	}
}

func TestQuantileRanks(t *testing.T) {
	for _, c := range []struct {
		n         int64
		q         float64
		low, high int64
		ok        bool
	}{
		{10, 0.5, 2, 9, true}, // from tables of intervals of the median
		{20, 0.5, 6, 15, true},
		{5, 0.5, 0, 0, false},
		{367, 0.99, 0, 0, false},
		{368, 0.99, 360, 368, true},
		{0, 0.99, 0, 0, false},
	} {
		low, high, ok := QuantileRanks(c.n, c.q, 0.95)
		if low != c.low || high != c.high || ok != c.ok {
			t.Errorf("n %d, quantile %g: got %d, %d, %v, want %d, %d, %v", c.n, c.q, low, high, ok, c.low, c.high, c.ok)
		}
	}
	if got := SamplesNeeded(0.99, 0.95); got != 368 {
		t.Errorf("a p99 needs %d, want 368", got)
	}
	// The tails are below 2.5 %, and with a bound one rank nearer they are not. This is checked by adding up the
	// probabilities of the binomial distribution.
	for _, n := range []int64{368, 500, 1000, 12345} {
		low, high, _ := QuantileRanks(n, 0.99, 0.95)
		if below(n, low-1) > 0.025 || below(n, low) <= 0.025 {
			t.Errorf("n %d: rank %d is not the best lower bound", n, low)
		}
		if 1-below(n, high-1) > 0.025 || 1-below(n, high-2) <= 0.025 {
			t.Errorf("n %d: rank %d is not the best upper bound", n, high)
		}
	}
}

// below returns the probability that at most k of n values are below their p99.
func below(n, k int64) (p float64) {
	lgamma := func(x int64) float64 { l, _ := math.Lgamma(float64(x)); return l }
	for i := int64(0); i <= k; i++ {
		p += math.Exp(lgamma(n+1) - lgamma(i+1) - lgamma(n-i+1) + float64(i)*math.Log(0.99) + float64(n-i)*math.Log(0.01))
	}
	return p
}

func TestTrend(t *testing.T) {
	// It uses the score less 1, and the variance n(n-1)(2n+5)/18.
	normal := func(score, n float64) float64 { return math.Erfc(score / math.Sqrt(n*(n-1)*(2*n+5)/18) / math.Sqrt2) }
	for _, c := range []struct {
		name      string
		x         []float64
		p, change float64
	}{
		{"too few", []float64{1, 2, 3}, 1, 0},
		{"four up", []float64{1, 2, 3, 4}, normal(5, 4), 3},
		{"five down", []float64{5, 4, 3, 2, 1}, normal(9, 5), -4},
		{"one inversion", []float64{1, 2, 3, 5, 4}, normal(7, 5), 3.6},
		{"none", []float64{2, 4, 1, 3}, 1, 0},
		{"constant", []float64{2, 2, 2, 2}, 1, 0},
		// s = 14, variance 510/18 - 18/18 = 27.3333, z = 13/√27.3333.
		{"a tie", []float64{1, 1, 2, 3, 4, 5}, math.Erfc(13 / math.Sqrt(510.0/18-1) / math.Sqrt2), 30.0 / 7},
	} {
		p, change := Trend(c.x)
		near(t, c.name+" p", p, c.p)
		near(t, c.name+" change", change, c.change)
	}
}

func TestDisplaced(t *testing.T) {
	for _, c := range []struct {
		plan, actual []int64
		want         float64
	}{
		{nil, nil, 0},
		{[]int64{5, 5}, []int64{5, 5}, 0},
		{[]int64{10, 10}, []int64{8, 12}, 0.1},
		{[]int64{10, 10}, []int64{10, 8, 2}, 0.1},
		{[]int64{10, 10}, []int64{10}, 0.5},
		{[]int64{10}, []int64{20}, 1},
		{[]int64{0}, []int64{1}, 1},
	} {
		near(t, "displaced", Displaced(c.plan, c.actual), c.want)
	}
}
