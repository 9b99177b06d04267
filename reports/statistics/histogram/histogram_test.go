package histogram

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var distributions = map[string]func(*rand.Rand) time.Duration{
	"uniform":     func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(time.Second))) },
	"exponential": func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(5*time.Millisecond)) },
	"lognormal":   func(r *rand.Rand) time.Duration { return time.Duration(math.Exp(15 + r.NormFloat64())) },
	"pareto": func(r *rand.Rand) time.Duration {
		return time.Duration(float64(time.Millisecond) * math.Pow(1-r.Float64(), -1/1.2))
	},
	"bimodal": func(r *rand.Rand) time.Duration {
		if r.IntN(10) == 0 {
			return time.Second + time.Duration(r.Int64N(int64(time.Millisecond)))
		}
		return 2*time.Millisecond + time.Duration(r.Int64N(int64(time.Millisecond)))
	},
	"tiny":     func(r *rand.Rand) time.Duration { return time.Duration(r.IntN(200)) },
	"constant": func(*rand.Rand) time.Duration { return 12345678 * time.Nanosecond },
}

func drawn(name string, n int) []time.Duration {
	r := rand.New(rand.NewPCG(uint64(len(name)), uint64(n)))
	values := make([]time.Duration, n)
	for i := range values {
		values[i] = distributions[name](r)
	}
	return values
}

func recorded(values []time.Duration) *Histogram {
	h := &Histogram{}
	for _, v := range values {
		h.Record(v)
	}
	return h
}

func TestQuantileError(t *testing.T) {
	var worst float64
	for name := range distributions {
		values := drawn(name, 100_000)
		h := recorded(values)
		slices.Sort(values)
		for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 0.999} {
			want := values[int(math.Ceil(q*float64(len(values))))-1]
			got := h.Quantile(q)
			off := math.Abs(float64(got-want)) / max(1, float64(want))
			worst = max(worst, off)
			if off > 0.005 {
				t.Errorf("%s: quantile %g is %s, exactly %s: %.2f %% off", name, q, got, want, 100*off)
			}
		}
		if h.Min() != values[0] || h.Max() != values[len(values)-1] || h.Quantile(0) != values[0] || h.Quantile(1) != h.Max() {
			t.Errorf("%s: minimum %s and maximum %s are not exact", name, h.Min(), h.Max())
		}
		var sum time.Duration
		for _, v := range values {
			sum += v
		}
		if h.Sum() != sum || h.Mean() != sum/time.Duration(len(values)) {
			t.Errorf("%s: sum %s, want %s", name, h.Sum(), sum)
		}
	}
	t.Logf("worst error of a quantile: %.3f %%", 100*worst)
}

func TestRankOfFew(t *testing.T) {
	h := recorded([]time.Duration{40, 10, 30, 20})
	for k, want := range map[int64]time.Duration{-1: 10, 1: 10, 2: 20, 3: 30, 4: 40, 9: 40} {
		if got := h.Rank(k); got != want {
			t.Errorf("rank %d is %d, want %d", k, got, want)
		}
	}
	// At least its part of the durations does not exceed a quantile.
	for q, want := range map[float64]time.Duration{0: 10, 0.25: 10, 0.26: 20, 0.5: 20, 0.75: 30, 0.76: 40, 1: 40} {
		if got := h.Quantile(q); got != want {
			t.Errorf("quantile %g is %d, want %d", q, got, want)
		}
	}
	// 0.07 * 100 is more than 7 in floating point.
	var hundred Histogram
	for i := range 100 {
		hundred.Record(time.Duration(i + 1))
	}
	for i := 1; i <= 100; i++ {
		if got := hundred.Quantile(float64(i) / 100); got != time.Duration(i) {
			t.Errorf("quantile %d/100 of 1 to 100 is %d", i, got)
		}
	}
}

func TestEmpty(t *testing.T) {
	var h Histogram
	h.RecordN(time.Second, 0)
	h.RecordN(time.Second, -1)
	h.Merge(&Histogram{})
	h.Each(func(bucket int, count int64) { t.Errorf("bucket %d has %d", bucket, count) })
	if h.Count() != 0 || h.Sum() != 0 || h.Min() != 0 || h.Max() != 0 || h.Mean() != 0 || h.Quantile(0.5) != 0 || h.Rank(1) != 0 {
		t.Errorf("%+v is not empty", h)
	}
}

// TestBucketsAreOneLayout checks that every bucket begins where the previous one ends, and contains its own bounds.
func TestBucketsAreOneLayout(t *testing.T) {
	var last time.Duration
	for i := range Buckets {
		from, to := Bounds(i)
		if from != last || to <= from {
			t.Fatalf("bucket %d is from %d to %d, the one before ends at %d", i, from, to, last)
		}
		last = to
		if index(int64(from)) != i || index(int64(to)-1) != i {
			t.Fatalf("bucket %d does not hold %d to %d", i, from, to)
		}
		if width := to - from; width > 1 && float64(width) > float64(from)/128 {
			t.Fatalf("bucket %d is %d wide at %d", i, width, from)
		}
	}
	for _, v := range []int64{1 << topBits, 1<<topBits + 1, math.MaxInt64} {
		if index(v) != Buckets-1 {
			t.Errorf("%d is in bucket %d", v, index(v))
		}
	}
	if index(-1) != 0 {
		t.Error("a negative value is not in the first bucket")
	}
}

// TestMergeIsExact checks that any number of shards, in any order, merge to what one process counts.
func TestMergeIsExact(t *testing.T) {
	for name := range distributions {
		values := drawn(name, 10_000)
		one := recorded(values)
		for _, shards := range []int{1, 2, 3, 7, 64} {
			parts := make([]Histogram, shards)
			for i, v := range values {
				parts[i%shards].Record(v)
			}
			var forward, backward Histogram
			for i := range parts {
				forward.Merge(&parts[i])
				backward.Merge(&parts[shards-1-i])
			}
			if !same(one, &forward) || !same(one, &backward) {
				t.Errorf("%s: %d shards merge to something else than one process counts", name, shards)
			}
		}
	}
}

// TestMergeCopies checks that a merge does not change what was merged, and shares nothing with it.
func TestMergeCopies(t *testing.T) {
	a, b := recorded([]time.Duration{1, 2}), &Histogram{}
	b.Merge(a)
	b.Record(3)
	if a.Count() != 2 || b.Count() != 3 || a.Max() != 2 {
		t.Errorf("a has %d, b %d", a.Count(), b.Count())
	}
	a.Merge(a)
	if a.Count() != 4 || a.Sum() != 6 {
		t.Errorf("merged with itself: %d durations of together %d", a.Count(), a.Sum())
	}
}

func same(a, b *Histogram) bool { return cmp.Equal(a, b, cmp.AllowUnexported(Histogram{})) }

func TestJSONRoundTrip(t *testing.T) {
	histograms := map[string]*Histogram{
		"empty":       {},
		"zero":        recorded([]time.Duration{0}),
		"last bucket": recorded([]time.Duration{time.Hour, 100 * time.Hour}),
	}
	for name := range distributions {
		histograms[name] = recorded(drawn(name, 1000))
	}
	for name, h := range histograms {
		// It is encoded by value, as in a block.
		data, err := json.Marshal(struct{ H Histogram }{*h})
		if err != nil {
			t.Fatal(err)
		}
		var back struct{ H Histogram }
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !same(h, &back.H) {
			t.Errorf("%s is not the same after a round trip", name)
		}
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	for what, text := range map[string]string{
		"another layout":       `{"layout":"log-linear-8-42","counts":[]}`,
		"no layout":            `{"counts":[]}`,
		"descending buckets":   `{"layout":"log-linear-7-42","sumNanoseconds":3,"minNanoseconds":1,"maxNanoseconds":2,"counts":[[2,1],[1,1]]}`,
		"a bucket twice":       `{"layout":"log-linear-7-42","sumNanoseconds":4,"minNanoseconds":2,"maxNanoseconds":2,"counts":[[2,1],[2,1]]}`,
		"no count":             `{"layout":"log-linear-7-42","counts":[[2,0]]}`,
		"a negative count":     `{"layout":"log-linear-7-42","counts":[[2,-1]]}`,
		"a negative bucket":    `{"layout":"log-linear-7-42","counts":[[-1,1]]}`,
		"a bucket too far":     `{"layout":"log-linear-7-42","counts":[[4608,1]]}`,
		"too many to be added": `{"layout":"log-linear-7-42","sumNanoseconds":3,"minNanoseconds":1,"maxNanoseconds":2,"counts":[[1,9223372036854775807],[2,9223372036854775807]]}`,
		"a foreign minimum":    `{"layout":"log-linear-7-42","sumNanoseconds":100,"minNanoseconds":50,"maxNanoseconds":100,"counts":[[100,1]]}`,
		"a foreign maximum":    `{"layout":"log-linear-7-42","sumNanoseconds":100,"minNanoseconds":100,"maxNanoseconds":50,"counts":[[100,1]]}`,
		"a sum too small":      `{"layout":"log-linear-7-42","sumNanoseconds":1,"minNanoseconds":100,"maxNanoseconds":100,"counts":[[100,2]]}`,
		"a negative sum":       `{"layout":"log-linear-7-42","sumNanoseconds":-1,"minNanoseconds":100,"maxNanoseconds":100,"counts":[[100,2]]}`,
		"a sum of nothing":     `{"layout":"log-linear-7-42","sumNanoseconds":5,"minNanoseconds":0,"maxNanoseconds":0,"counts":[]}`,
		"no object":            `7`,
		"a third number":       `{"layout":"log-linear-7-42","sumNanoseconds":100,"minNanoseconds":100,"maxNanoseconds":100,"counts":[[100,1,5]]}`,
		"an unknown field":     `{"layout":"log-linear-7-42","counts":[],"p99":7}`,
	} {
		var h Histogram
		if err := json.Unmarshal([]byte(text), &h); err == nil {
			t.Errorf("%s: read as %d durations", what, h.Count())
		}
	}
}

// FuzzUnmarshalJSON checks that everything that is read could have been counted, and is written as it was read.
func FuzzUnmarshalJSON(f *testing.F) {
	for name := range distributions {
		data, err := json.Marshal(recorded(drawn(name, 50)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add(`{"layout":"log-linear-7-42","sumNanoseconds":3,"minNanoseconds":1,"maxNanoseconds":2,"counts":[[1,1],[2,1]]}`)
	f.Add(strings.Repeat("[", 100))
	f.Fuzz(func(t *testing.T, text string) {
		var h Histogram
		if err := json.Unmarshal([]byte(text), &h); err != nil {
			return
		}
		if h.Count() < 0 || h.Sum() < 0 || h.Min() > h.Max() {
			t.Errorf("%s: %d durations of together %s from %s to %s", text, h.Count(), h.Sum(), h.Min(), h.Max())
		}
		last := h.Min()
		for _, q := range []float64{0.01, 0.5, 0.99, 1} {
			v := h.Quantile(q)
			if v < last || v > h.Max() {
				t.Errorf("%s: quantile %g is %s", text, q, v)
			}
			last = v
		}
		data, err := json.Marshal(&h)
		if err != nil {
			t.Fatal(err)
		}
		var back Histogram
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatalf("%s is written as %s: %v", text, data, err)
		}
		if !same(&h, &back) {
			t.Errorf("%s is written as %s", text, data)
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	values := drawn("lognormal", 1<<12)
	var h Histogram
	h.Record(1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.Record(values[i&(1<<12-1)])
	}
}

func BenchmarkMerge(b *testing.B) {
	part := recorded(drawn("lognormal", 1<<12))
	var h Histogram
	b.ReportAllocs()
	for b.Loop() {
		h.Merge(part)
	}
}

// Mean returns the mean, exact except for rounding to a nanosecond, or 0 if nothing was counted.
func (h *Histogram) Mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return time.Duration(h.sum / h.count)
}
