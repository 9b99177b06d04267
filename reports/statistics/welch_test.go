package statistics

import (
	"math/rand/v2"
	"testing"
)

func TestDifferenceInterval(t *testing.T) {
	for _, c := range []struct {
		name  string
		a, b  []float64
		want  Interval
		known bool
	}{
		{"nothing", nil, []float64{1}, Interval{}, false},
		{"one on a side", []float64{1}, []float64{3, 4}, Interval{Estimate: 2.5, Low: 2.5, High: 2.5}, false},
		{"what does not scatter", []float64{3, 3}, []float64{2, 2, 2}, Interval{Estimate: -1, Low: -1, High: -1}, true},
		// Equal variances of 1 and three values each: 4 degrees of freedom, t 2.776445, standard error √(2/3).
		{"equally many", []float64{1, 2, 3}, []float64{4, 5, 6}, Interval{Estimate: 3, Low: 3 - 2.776445*0.8164966, High: 3 + 2.776445*0.8164966}, true},
	} {
		got, known := DifferenceInterval(c.a, c.b, 0.95)
		if known != c.known {
			t.Errorf("%s: known %v", c.name, known)
		}
		near(t, c.name, got.Estimate, c.want.Estimate)
		near(t, c.name, got.Low, c.want.Low)
		near(t, c.name, got.High, c.want.High)
	}
}

// TestDifferenceCoverage checks that intervals at 95 % contain the truth that often, even if one side scatters four
// times as much and has half as many values.
func TestDifferenceCoverage(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	const trials = 4000
	holds := 0
	for range trials {
		a, b := make([]float64, 10), make([]float64, 5)
		for i := range a {
			a[i] = random.NormFloat64()
		}
		for i := range b {
			b[i] = 1 + 4*random.NormFloat64()
		}
		if got, known := DifferenceInterval(a, b, 0.95); known && got.Low <= 1 && 1 <= got.High {
			holds++
		}
	}
	if part := float64(holds) / trials; part < 0.94 || part > 0.96 {
		t.Errorf("%.3f of the intervals hold the truth", part)
	}
}
