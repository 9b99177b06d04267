// Package statistics has the few statistical procedures that a load report needs. They work on pairs of blocks,
// never on single requests: those of one block are autocorrelated, and a test that takes them for independent
// finds a difference between any two blocks. What draws random numbers takes a seed, so that everybody who
// recomputes a report gets the same figures.
package statistics

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Resamples is how many resamples a bootstrap draws, and how many sign-flips are drawn where there are too many to
// try them all.
const Resamples = 10000

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

// LogRatios are ln(b/a) of each pair. They are used because a slow-down by a factor and a speed-up by the same one
// are then equally far from none.
func LogRatios(a, b []float64) ([]float64, error) {
	if len(a) != len(b) {
		return nil, fmt.Errorf("%d values cannot be paired with %d", len(a), len(b))
	}
	ratios := make([]float64, len(a))
	for i := range a {
		if !(a[i] > 0 && b[i] > 0) || math.IsInf(a[i], 0) || math.IsInf(b[i], 0) {
			return nil, fmt.Errorf("pair %d: there is no ratio of %g and %g", i, b[i], a[i])
		}
		ratios[i] = math.Log(b[i] / a[i])
	}
	return ratios, nil
}

// Bootstrapped are the means of resamples, ascending.
type Bootstrapped struct {
	mean  float64
	means []float64
}

// Bootstrap resamples pairs with replacement. x has one value per pair, and must not be empty.
func Bootstrap(x []float64, seed uint64) Bootstrapped {
	r := rand.New(rand.NewPCG(seed, 0x626f6f747374))
	b := Bootstrapped{mean: stat.Mean(x, nil), means: make([]float64, Resamples)}
	for i := range b.means {
		var sum float64
		for range x {
			sum += x[r.IntN(len(x))]
		}
		b.means[i] = sum / float64(len(x))
	}
	slices.Sort(b.means)
	return b
}

// Interval is the mean with the percentile interval of a level such as 0.95.
func (b Bootstrapped) Interval(level float64) Interval {
	tail := (1 - level) / 2
	return Interval{
		Estimate: b.mean,
		Low:      stat.Quantile(tail, stat.Empirical, b.means, nil),
		High:     stat.Quantile(1-tail, stat.Empirical, b.means, nil),
	}
}

// exactFlips is up to how many pairs every assignment of signs is tried.
const exactFlips = 16

// SignFlip is the two-sided p-value of the sign-flip permutation test: how often a mean at least as far from 0
// comes about if in each pair it is left to chance which side is which. Up to 16 pairs it is exact, else drawn.
func SignFlip(x []float64, seed uint64) float64 {
	if len(x) == 0 {
		return 1
	}
	// Sums of the same numbers in another order may differ in the last bits, and such are as extreme as what was
	// seen.
	var sum, scale float64
	for _, v := range x {
		sum += v
		scale += math.Abs(v)
	}
	observed := math.Abs(sum) - 1e-12*scale
	if len(x) <= exactFlips {
		return exactSignFlip(x, observed)
	}
	r := rand.New(rand.NewPCG(seed, 0x666c6970))
	extreme := 1 // What was seen is one of the assignments.
	for range Resamples {
		var flipped float64
		var signs uint64
		for i, v := range x {
			if i%64 == 0 {
				signs = r.Uint64()
			}
			if signs>>(i%64)&1 == 1 {
				v = -v
			}
			flipped += v
		}
		if math.Abs(flipped) >= observed {
			extreme++
		}
	}
	return float64(extreme) / float64(Resamples+1)
}

func exactSignFlip(x []float64, observed float64) float64 {
	extreme := 0
	for signs := range 1 << len(x) {
		var flipped float64
		for i, v := range x {
			if signs>>i&1 == 1 {
				v = -v
			}
			flipped += v
		}
		if math.Abs(flipped) >= observed {
			extreme++
		}
	}
	return float64(extreme) / float64(int(1)<<len(x))
}

// Holm adjusts p-values for there being several: the chance that any of them is at or below a level though nothing
// differs is at most that level.
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

// Equivalence says where a difference lies against a margin.
type Equivalence string

// The possible answers.
const (
	// Equivalent: the whole 90 % interval lies within the margin. It is shown that the difference is small, which
	// a large p-value does not show.
	Equivalent Equivalence = "equivalent"
	// Above: the whole 90 % interval lies above the margin.
	Above Equivalence = "above"
	// Below: the whole 90 % interval lies below the margin.
	Below Equivalence = "below"
	// Undecided: the interval crosses a bound of the margin. More pairs could tell.
	Undecided Equivalence = "undecided"
)

// Equivalent90 compares the 90 % interval of a mean log-ratio with a margin: the part, such as 0.05, by which the
// one side may exceed the other. The margin has to be declared before anything is measured. Two one-sided tests at
// 5 % are the same as this.
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
