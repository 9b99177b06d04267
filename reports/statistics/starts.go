// Package statistics has the few statistical procedures that a load report needs. They work on pairs of blocks within
// starts of the servers, and never on single requests. Requests of one block are autocorrelated, and a test that treats
// them as independent finds a difference between any two blocks. Pairs of one start share two processes, and a test
// that treats them as independent finds a difference between any two processes. Nothing is random, so everybody who
// recomputes a report gets the same figures.
package statistics

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/authzconf/authzconf/internal/seq"
)

// Interval is an estimate with its confidence interval.
type Interval struct {
	Estimate float64 `json:"estimate"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
}

// Map applies a monotone function to the three numbers.
func (i Interval) Map(f func(float64) float64) Interval {
	return Interval{Estimate: f(i.Estimate), Low: f(i.Low), High: f(i.High)}
}

// LogRatios returns ln(b/a) of each pair. A slow-down and a speed-up by the same factor are then equally far from zero.
func LogRatios(a, b []float64) ([]float64, error) {
	if len(a) != len(b) {
		return nil, fmt.Errorf("%d values cannot be paired with %d", len(a), len(b))
	}
	ratios := make([]float64, len(a))
	for i := range a {
		if !isPositive(a[i]) || !isPositive(b[i]) {
			return nil, fmt.Errorf("pair %d: there is no ratio of %g and %g", i, b[i], a[i])
		}
		ratios[i] = math.Log(b[i] / a[i])
	}
	return ratios, nil
}

// isPositive reports whether a number is above 0 and finite.
func isPositive(x float64) bool { return x > 0 && !math.IsInf(x, 0) }

// MinStarts is how many starts of the servers a statement about their difference needs. A process that is 1 % slower by
// chance makes every pair of its start differ, so only further starts show anything about the next start, and pairs do
// not.
const MinStarts = 5

// Alpha is the level of tests.
const Alpha = 0.05

// PairsNeeded returns how many pairs a statement needs that is one of the given number of tests. With fewer, even a
// test of only the signs of the differences, all of them equal, could not reach Alpha after the adjustment for the
// other tests.
func PairsNeeded(tests int) int { return int(math.Ceil(math.Log2(2 * float64(max(tests, 1)) / Alpha))) }

// StartMeans returns the mean of the values of each start, in the order of the starts. These means are independent, so
// intervals and tests are based on them.
func StartMeans(starts []int, x []float64) []float64 {
	groups := map[int][]float64{}
	for i, start := range starts {
		groups[start] = append(groups[start], x[i])
	}
	return seq.Map(slices.Sorted(maps.Keys(groups)), func(start int) float64 { return stat.Mean(groups[start], nil) })
}

// TTest returns the two-sided p-value for the mean of values being 0, by Student's t. It is below 0.05 exactly if the
// interval of MeanInterval at 0.95 does not contain 0. Fewer than two values show nothing, so p is 1.
func TTest(x []float64) float64 {
	if len(x) < 2 {
		return 1
	}
	mean, deviation := stat.MeanStdDev(x, nil)
	if mean == 0 {
		return 1
	}
	// Equal values have no deviation, so t is infinite and p is 0.
	t := math.Abs(mean) / stat.StdErr(deviation, float64(len(x)))
	return 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(len(x) - 1)}.Survival(t)
}

// Holm adjusts p-values because there are several: if nothing differs, the chance that any of them is at or below a
// level is at most that level.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	adjusted := make([]float64, len(p))
	var highest float64
	for rank, i := range order {
		highest = max(highest, min(1, float64(len(p)-rank)*p[i]))
		adjusted[i] = highest
	}
	return adjusted
}

// Equivalence says where a difference lies relative to a margin.
type Equivalence string

// These are the possible answers.
const (
	// Equivalent means that the whole 90 % interval is within the margin. Unlike a large p-value, that shows that the
	// difference is small.
	Equivalent Equivalence = "equivalent"
	// Above means that the whole 90 % interval is above the margin.
	Above Equivalence = "above"
	// Below means that the whole 90 % interval is below the margin.
	Below Equivalence = "below"
	// Undecided means that the interval crosses a bound of the margin. More pairs could decide.
	Undecided Equivalence = "undecided"
)

// Equivalent90 compares the 90 % interval of a mean log-ratio with a margin, which is the part, such as 0.05, by which
// one side may exceed the other. The margin has to be declared before measuring. The result is the same as that of two
// one-sided tests at 5 %.
func Equivalent90(ninety Interval, margin float64) Equivalence {
	bound := math.Log1p(margin)
	switch {
	case math.IsNaN(ninety.Low) || math.IsNaN(ninety.High):
		return Undecided
	case ninety.Low > -bound && ninety.High < bound:
		return Equivalent
	case ninety.Low >= bound:
		return Above
	case ninety.High <= -bound:
		return Below
	}
	return Undecided
}

// StartsToDecide returns how many starts are needed until means that scatter like these are found Equivalent in four of
// five runs, if nothing differs. The scatter of few starts is itself only a rough figure.
func StartsToDecide(means []float64, margin float64) int {
	deviation := stat.StdDev(means, nil)
	for n := MinStarts; n < 10_000; n++ {
		t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(n - 1)}
		// Either end of the interval may cross its bound, in one run of ten each.
		if (t.Quantile(0.95)+t.Quantile(0.9))*stat.StdErr(deviation, float64(n)) <= math.Log1p(margin) {
			return n
		}
	}
	return 10_000
}

// Mean returns the mean of values, such as those of the blocks of one side, or NaN if there are none.
func Mean(x []float64) float64 { return stat.Mean(x, nil) }

// MeanInterval returns the mean of values, of blocks or of starts, with its interval by Student's t at a level such as
// 0.95. With fewer than two values there is no interval, and ok is false.
func MeanInterval(x []float64, level float64) (i Interval, ok bool) {
	if len(x) == 0 {
		return Interval{}, false
	}
	mean, deviation := stat.MeanStdDev(x, nil)
	if len(x) == 1 {
		return Interval{Estimate: mean, Low: mean, High: mean}, false
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(len(x) - 1)}.Quantile(1 - (1-level)/2)
	half := t * stat.StdErr(deviation, float64(len(x)))
	return Interval{Estimate: mean, Low: mean - half, High: mean + half}, true
}

// QuantileRanks returns the ranks (1 is the smallest of n) of the values that bound the quantile q of the distribution
// from which n values were drawn, at a two-sided level such as 0.95, whatever the distribution. ok is false if n is too
// small for both bounds: a p99 needs 368.
func QuantileRanks(n int64, q, level float64) (low, high int64, ok bool) {
	tail := (1 - level) / 2
	distribution := distuv.Binomial{N: float64(n), P: q} // how many values are below the quantile
	// The lower bound is too high if fewer than low values are below the quantile. The upper bound is too low if at
	// least high values are.
	low = int64(sort.Search(int(n), func(k int) bool { return distribution.CDF(float64(k)) > tail }))
	high = int64(sort.Search(int(n), func(k int) bool { return 1-distribution.CDF(float64(k)) <= tail })) + 1
	if low < 1 || high > n {
		return 0, 0, false
	}
	return low, high, true
}

// SamplesNeeded returns the smallest n for which QuantileRanks has both bounds. With fewer, the chance that all values
// lie on one side of the quantile is larger than the tail.
func SamplesNeeded(q, level float64) int64 {
	return int64(math.Ceil(math.Log((1-level)/2) / math.Log(max(q, 1-q))))
}

// Trend returns the result of the Mann-Kendall test of values in the order in which they were measured: the two-sided
// p-value, and the change from the first to the last value by the line of least squares. p is computed by the normal
// approximation with a correction for continuity. Fewer than 4 values show no trend, so p is 1.
func Trend(x []float64) (p, change float64) {
	n := len(x)
	if n < 4 {
		return 1, 0
	}
	index := make([]float64, n)
	ties := map[float64]int{}
	s := 0
	for i := range x {
		index[i] = float64(i)
		ties[x[i]]++
		for j := range i {
			s += cmp.Compare(x[i], x[j])
		}
	}
	_, slope := stat.LinearRegression(index, x, nil, false)
	change = slope * float64(n-1)
	variance := kendallTerm(n)
	for _, size := range ties {
		variance -= kendallTerm(size)
	}
	if s == 0 || variance <= 0 {
		return 1, change
	}
	z := (math.Abs(float64(s)) - 1) / math.Sqrt(variance)
	return min(1, 2*distuv.UnitNormal.Survival(z)), change
}

func kendallTerm(n int) float64 { return float64(n*(n-1)*(2*n+5)) / 18 }

// Displaced returns the part of arrivals, by slots of time, that came in another slot than planned. An arrival that
// never came counts as displaced. 0 means that both are the same.
func Displaced(plan, actual []int64) float64 {
	var planned, missing, added int64
	for i := range max(len(plan), len(actual)) {
		var p, a int64
		if i < len(plan) {
			p = plan[i]
		}
		if i < len(actual) {
			a = actual[i]
		}
		planned += p
		missing += max(0, p-a)
		added += max(0, a-p)
	}
	if planned == 0 {
		if added > 0 {
			return 1
		}
		return 0
	}
	return float64(max(missing, added)) / float64(planned)
}
