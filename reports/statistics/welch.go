package statistics

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// DifferenceInterval returns the mean of b less the mean of a, with its interval at a level such as 0.95 by Welch's t.
// The two may scatter differently, and need not have the same number of values. With fewer than two values on a side
// there is no interval, and ok is false.
func DifferenceInterval(a, b []float64, level float64) (i Interval, ok bool) {
	if len(a) == 0 || len(b) == 0 {
		return Interval{}, false
	}
	meanA, deviationA := stat.MeanStdDev(a, nil)
	meanB, deviationB := stat.MeanStdDev(b, nil)
	difference := meanB - meanA
	if len(a) == 1 || len(b) == 1 {
		return Interval{Estimate: difference, Low: difference, High: difference}, false
	}
	n, m := float64(len(a)), float64(len(b))
	u, v := deviationA*deviationA/n, deviationB*deviationB/m
	if u+v == 0 {
		return Interval{Estimate: difference, Low: difference, High: difference}, true
	}
	freedom := (u + v) * (u + v) / (u*u/(n-1) + v*v/(m-1)) // Welch and Satterthwaite
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile(1-(1-level)/2) * math.Sqrt(u+v)
	return Interval{Estimate: difference, Low: difference - half, High: difference + half}, true
}
