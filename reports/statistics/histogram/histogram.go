// Package histogram counts durations in buckets of one fixed log-linear layout. All histograms have the same buckets
// and contain only integers, so the histograms of shards merge, in any order, to exactly what one process would have
// counted.
package histogram

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

const (
	// subBits determines the width of buckets. Below 2^subBits ns they are 1 ns wide, and above every power of two is
	// cut into 2^subBits equal parts. So a bucket is narrower than 1/128 of its values, and its middle is within 0.4 %
	// of each.
	subBits = 7
	sub     = 1 << subBits
	// topBits is the end of the layout. Values of 2^topBits ns (some 73 min) and more are counted in the last bucket.
	topBits = 42
	// Buckets is the number of buckets.
	Buckets = (topBits - subBits + 1) * sub
)

// Histogram counts durations. The zero value is ready for use. It is not safe for concurrent use, but goroutines can
// merge theirs later.
type Histogram struct {
	counts []int64
	count  int64
	sum    int64 // ns, exact
	min    int64
	max    int64
}

// index returns the bucket of a number of ns.
func index(v int64) int {
	switch {
	case v < sub:
		return int(max(v, 0))
	case v >= 1<<topBits:
		return Buckets - 1
	}
	shift := bits.Len64(uint64(v)) - subBits - 1
	return shift*sub + int(v>>shift)
}

// Bounds are the smallest value of a bucket and the smallest of the next.
func Bounds(bucket int) (from, to time.Duration) {
	if bucket < sub {
		return time.Duration(bucket), time.Duration(bucket + 1)
	}
	shift := bucket/sub - 1
	low := int64(bucket-shift*sub) << shift
	return time.Duration(low), time.Duration(low + 1<<shift)
}

// Record counts a duration. A negative one counts as 0.
func (h *Histogram) Record(d time.Duration) { h.RecordN(d, 1) }

// RecordN counts a duration n times.
func (h *Histogram) RecordN(d time.Duration, n int64) {
	if n <= 0 {
		return
	}
	v := max(int64(d), 0)
	if h.counts == nil {
		h.counts = make([]int64, Buckets)
	}
	h.counts[index(v)] += n
	if h.count == 0 {
		h.min, h.max = v, v
	}
	h.min, h.max = min(h.min, v), max(h.max, v)
	h.count += n
	h.sum += v * n
}

// Merge adds everything that other has counted.
func (h *Histogram) Merge(other *Histogram) {
	if other.count == 0 {
		return
	}
	if h.counts == nil {
		h.counts = make([]int64, Buckets)
	}
	for i, n := range other.counts {
		h.counts[i] += n
	}
	if h.count == 0 {
		h.min, h.max = other.min, other.max
	}
	h.min, h.max = min(h.min, other.min), max(h.max, other.max)
	h.count += other.count
	h.sum += other.sum
}

// Count is the number of durations.
func (h *Histogram) Count() int64 { return h.count }

// Sum returns the exact sum of the durations.
func (h *Histogram) Sum() time.Duration { return time.Duration(h.sum) }

// Min and Max return exact values, or 0 if nothing was counted.
func (h *Histogram) Min() time.Duration { return time.Duration(h.min) }

// Max is the longest duration.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max) }

// Quantile returns the smallest value that at least a part q (0 to 1) of the durations does not exceed, to within half
// a bucket, or 0 if nothing was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	// 0.07 · 100 is a little more than 7 in floating point, and means the 7th.
	rank := int64(math.Ceil(q * float64(h.count) * (1 - 1e-15)))
	return h.Rank(min(max(rank, 1), h.count))
}

// Rank is the k-th shortest duration (1 is the shortest), to within half a bucket.
func (h *Histogram) Rank(k int64) time.Duration {
	if k <= 1 {
		return h.Min()
	}
	if k >= h.count {
		return h.Max()
	}
	var count int64
	for i, n := range h.counts {
		if count += n; count >= k {
			from, to := Bounds(i)
			middle := int64(from+to-1) / 2
			return time.Duration(min(max(middle, h.min), h.max))
		}
	}
	return h.Max()
}

// Each calls f for every bucket that is not empty, shortest first.
func (h *Histogram) Each(f func(bucket int, count int64)) {
	for i, n := range h.counts {
		if n > 0 {
			f(i, n)
		}
	}
}

// encoded is the form in files. Empty buckets are left out.
type encoded struct {
	Layout string     `json:"layout"`
	Sum    int64      `json:"sumNanoseconds"`
	Min    int64      `json:"minNanoseconds"`
	Max    int64      `json:"maxNanoseconds"`
	Counts [][2]int64 `json:"counts"` // bucket, count
}

// layout identifies the buckets, so that files of another layout are not merged.
const layout = "log-linear-7-42"

// MarshalJSON implements json.Marshaler.
func (h Histogram) MarshalJSON() ([]byte, error) {
	e := encoded{Layout: layout, Sum: h.sum, Min: h.min, Max: h.max, Counts: [][2]int64{}}
	h.Each(func(bucket int, count int64) { e.Counts = append(e.Counts, [2]int64{int64(bucket), count}) })
	return json.Marshal(e)
}

// UnmarshalJSON implements json.Unmarshaler. It refuses another layout, and numbers that cannot have been counted.
func (h *Histogram) UnmarshalJSON(data []byte) error {
	var e struct {
		encoded
		// It is a slice, because a third number would be ignored in an array of two.
		Counts [][]int64 `json:"counts"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return err
	}
	if e.Layout != layout {
		return fmt.Errorf("histogram layout %q, expected %q", e.Layout, layout)
	}
	read := Histogram{sum: e.Sum, min: e.Min, max: e.Max}
	if len(e.Counts) > 0 {
		read.counts = make([]int64, Buckets)
	}
	last := int64(-1)
	for _, c := range e.Counts {
		isPair := len(c) == 2
		inOrder := isPair && c[0] > last && c[0] < Buckets
		countable := isPair && c[1] >= 1 && c[1] <= math.MaxInt64-read.count
		if !inOrder || !countable {
			return fmt.Errorf(
				"histogram: %v is not a bucket and a count, expected ascending buckets below %d with positive counts",
				c,
				Buckets,
			)
		}
		last = c[0]
		read.counts[c[0]] = c[1]
		read.count += c[1]
	}
	if err := read.check(); err != nil {
		return err
	}
	*h = read
	return nil
}

// check returns an error if the numbers contradict each other.
func (h *Histogram) check() error {
	if h.count == 0 {
		if h.sum != 0 || h.min != 0 || h.max != 0 {
			return errors.New("histogram: nothing was counted, and yet there is a sum, minimum or maximum")
		}
		return nil
	}
	first, last := -1, 0
	var least, most float64
	h.Each(func(bucket int, count int64) {
		if first < 0 {
			first = bucket
		}
		last = bucket
		from, to := Bounds(bucket)
		least += float64(max(int64(from), h.min)) * float64(count)
		most += float64(max(min(int64(to)-1, h.max), int64(from))) * float64(count)
		if bucket == Buckets-1 {
			most += float64(h.max) * float64(count) // the last bucket has no end
		}
	})
	ordered := h.min >= 0 && h.min <= h.max
	if !ordered || index(h.min) != first || index(h.max) != last {
		return fmt.Errorf("histogram: minimum %d and maximum %d are not in the first and the last bucket that is not empty", h.min, h.max)
	}
	// The bounds of the sum are rounded. A sum beyond an int64 has wrapped.
	const rounding = 1e-9
	sum := float64(h.sum)
	isWithin := sum >= least*(1-rounding) && sum <= most*(1+rounding)
	if most < math.MaxInt64 && !isWithin {
		return fmt.Errorf("histogram: the counts cannot have the sum %d", h.sum)
	}
	return nil
}
