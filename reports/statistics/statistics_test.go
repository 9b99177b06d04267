package statistics

import (
	"math"
	"math/rand/v2"
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

func TestBootstrap(t *testing.T) {
	// All resamples are the same.
	if got, want := Bootstrap([]float64{2, 2, 2}, 1).Interval(0.95), (Interval{2, 2, 2}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	// A quarter of the resamples of two values has the mean of either, the others
	// that of both: 90 % reach from end to end, 40 % do not.
	two := Bootstrap([]float64{0, 1}, 1)
	if got, want := two.Interval(0.9), (Interval{0.5, 0, 1}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := two.Interval(0.4), (Interval{0.5, 0.5, 0.5}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	// Means of many values are normal.
	r := rand.New(rand.NewPCG(7, 7))
	x := make([]float64, 400)
	var squares, mean float64
	for i := range x {
		x[i] = r.NormFloat64()
		mean += x[i] / 400
	}
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	got, half := Bootstrap(x, 3).Interval(0.95), 1.959964*math.Sqrt(squares/400)/math.Sqrt(400)
	want := Interval{mean, mean - half, mean + half}
	if !cmp.Equal(got, want, cmpopts.EquateApprox(0, 0.05*half)) {
		t.Errorf("got %v, want about %v", got, want)
	}
	if again := Bootstrap(x, 3).Interval(0.95); again != got {
		t.Errorf("the same seed gives %v, then %v", got, again)
	}
	if other := Bootstrap(x, 4).Interval(0.95); other == got {
		t.Error("another seed draws the same resamples")
	}
}

func TestSignFlip(t *testing.T) {
	for _, c := range []struct {
		name string
		x    []float64
		want float64
	}{
		{"nothing", nil, 1},
		{"one pair", []float64{3}, 1},
		{"all zero", []float64{0, 0, 0}, 1},
		{"five on one side", []float64{1, 2, 3, 4, 5}, 2.0 / 32},
		{"six on the other side", []float64{-1, -2, -3, -4, -5, -6}, 2.0 / 64},
		// Of the 16 sums of ±1 ±2 ±3 ±4 only 1-2-3+4 and its opposite are nearer to
		// 0 than 1+2+3-4.
		{"both sides", []float64{1, 2, 3, -4}, 14.0 / 16},
		// Of the sums of ±5 ±2 ±2 ±5 the four with 5-5 and 2-2 are 0, all others at
		// least 4, as this is. In floating point not all of the 4 are equal.
		{"rounding", []float64{-0.5, 0.2, 0.2, 0.5}, 12.0 / 16},
	} {
		near(t, c.name, SignFlip(c.x, 1), c.want)
	}
	// Drawn: of 20 pairs with equal distances, 15 up and 5 down, the number of ups
	// is binomial: P(≤ 5 or ≥ 15) = 2 · 21700 / 2^20.
	x := make([]float64, 20)
	for i := range x {
		x[i] = 1
		if i < 5 {
			x[i] = -1
		}
	}
	want := 2 * 21700.0 / (1 << 20)
	if got := SignFlip(x, 1); math.Abs(got-want) > 4*math.Sqrt(want/Resamples) {
		t.Errorf("20 pairs: got %g, want about %g", got, want)
	}
	if SignFlip(x, 5) != SignFlip(x, 5) {
		t.Error("the same seed gives two values")
	}
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
	// The tails are below 2.5 %, and one rank nearer they are not, by the
	// probabilities of the binomial distribution added up.
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

// below is P(at most k of n values are below their p99).
func below(n, k int64) (p float64) {
	lgamma := func(x int64) float64 { l, _ := math.Lgamma(float64(x)); return l }
	for i := int64(0); i <= k; i++ {
		p += math.Exp(lgamma(n+1) - lgamma(i+1) - lgamma(n-i+1) + float64(i)*math.Log(0.99) + float64(n-i)*math.Log(0.01))
	}
	return p
}

func TestTrend(t *testing.T) {
	for _, c := range []struct {
		name      string
		x         []float64
		p, change float64
	}{
		{"too few", []float64{1, 2, 3}, 1, 0},
		{"four up", []float64{1, 2, 3, 4}, 2.0 / 24, 3},
		{"five down", []float64{5, 4, 3, 2, 1}, 2.0 / 120, -4},
		{"one inversion", []float64{1, 2, 3, 5, 4}, 2 * (1 + 4) / 120.0, 3.6},
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

func TestAA(t *testing.T) {
	six := []float64{1, 2, 3, 4, 5, 6}
	if p, ok := AA(six, nil, 0, 1); !ok || p != 2.0/64 {
		t.Errorf("six pairs: p %g, %v", p, ok)
	}
	if _, ok := AA(nil, six, 20, 1); ok {
		t.Error("there is no pair, and yet it is judged")
	}
	if _, ok := AA([]float64{1}, []float64{1, -1}, 1, 1); ok {
		t.Error("one pair without a spread to hold it against is judged")
	}
	// Deviation 1 with 10 degrees: t of one pair is its value; 2.228139 has p 0.05.
	residuals := []float64{1, -1, 1, -1, 1, -1, 1, -1, 1, -1}
	p, ok := AA([]float64{2.228138852}, residuals, 10, 1)
	if !ok {
		t.Fatal("not judged")
	}
	near(t, "one pair", p, 0.05)
	if p, ok := AA([]float64{0}, []float64{0, 0}, 10, 1); !ok || p != 1 {
		t.Errorf("no difference and no spread: p %g, %v", p, ok)
	}
	if p, ok := AA([]float64{0.1}, []float64{0, 0}, 10, 1); !ok || p != 0 {
		t.Errorf("a difference and no spread: p %g, %v", p, ok)
	}
}

func TestResiduals(t *testing.T) {
	if diff := cmp.Diff([]float64{-1, 0, 1}, Residuals([]float64{4, 5, 6}), about); diff != "" {
		t.Error(diff)
	}
}
