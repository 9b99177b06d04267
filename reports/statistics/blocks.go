package statistics

import (
	"math"
	"sort"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// MeanInterval is the mean of values, of blocks or of starts, with its interval by Student's t at a level such as 0.95. With fewer than two
// values there is no interval, and ok is false.
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

// QuantileRanks are the ranks (1 is the smallest of n) whose values bound the quantile q of what the n values were
// drawn from, at a two-sided level such as 0.95, whatever the distribution. ok is false if n is too small for both
// bounds: a p99 needs 368.
func QuantileRanks(n int64, q, level float64) (low, high int64, ok bool) {
	tail := (1 - level) / 2
	below := distuv.Binomial{N: float64(n), P: q} // How many values are below the quantile.
	// The lower bound is too high if fewer than low values are below the quantile, the upper one too low if at
	// least high are.
	low = int64(sort.Search(int(n), func(k int) bool { return below.CDF(float64(k)) > tail }))
	high = int64(sort.Search(int(n), func(k int) bool { return 1-below.CDF(float64(k)) <= tail })) + 1
	if low < 1 || high > n {
		return 0, 0, false
	}
	return low, high, true
}

// SamplesNeeded is the smallest n for which QuantileRanks has both bounds: for fewer the chance that all values
// lie on one side of the quantile is above the tail.
func SamplesNeeded(q, level float64) int64 {
	tail := (1 - level) / 2
	return int64(math.Ceil(math.Log(tail) / math.Log(max(q, 1-q))))
}

// Trend is the Mann-Kendall test of values in the order of their measuring: the two-sided p-value, and the change
// from the first to the last of them by the line of least squares. p is by the normal approximation with a correction for
// continuity. Fewer than 4 values show no trend: p is 1.
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
			switch {
			case x[i] > x[j]:
				s++
			case x[i] < x[j]:
				s--
			}
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

// Displaced is the part of arrivals, by slots of time, that came in another slot than in the plan; one that never
// came counts as displaced. 0 means that both are the same.
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
