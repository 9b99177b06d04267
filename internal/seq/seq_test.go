package seq

import (
	"slices"
	"strconv"
	"testing"
)

func even(n int) bool { return n%2 == 0 }

func TestMap(t *testing.T) {
	if got := Map([]int{3, 1, 2}, strconv.Itoa); !slices.Equal(got, []string{"3", "1", "2"}) {
		t.Errorf("got %q", got)
	}
	if got := Map(nil, strconv.Itoa); got != nil {
		t.Errorf("of a nil list: got %q, want nil", got)
	}
	if got := Map([]int{}, strconv.Itoa); got == nil || len(got) != 0 {
		t.Errorf("of an empty list: got %#v, want an empty list", got)
	}
}

func TestMapInParallel(t *testing.T) {
	numbers := make([]int, 1000)
	for i := range numbers {
		numbers[i] = i
	}
	for _, list := range [][]int{nil, {}, {7}, numbers} {
		got, want := MapInParallel(list, strconv.Itoa), Map(list, strconv.Itoa)
		if !slices.Equal(got, want) {
			t.Errorf("of %d elements: got %q, want %q", len(list), got, want)
		}
		if (got == nil) != (want == nil) {
			t.Errorf("of %d elements: got nil is %t, want %t", len(list), got == nil, want == nil)
		}
	}
}

func TestFilter(t *testing.T) {
	list := []int{4, 1, 2, 3}
	if got := Filter(list, even); !slices.Equal(got, []int{4, 2}) {
		t.Errorf("got %d", got)
	}
	if !slices.Equal(list, []int{4, 1, 2, 3}) {
		t.Errorf("the list became %d", list)
	}
	if got := Filter([]int{1}, even); got != nil {
		t.Errorf("of a list without such an element: got %d, want nil", got)
	}
}

func TestAppendMissing(t *testing.T) {
	if got := AppendMissing([]int{2, 2, 1}, 1, 3, 3); !slices.Equal(got, []int{2, 2, 1, 3}) {
		t.Errorf("got %d", got)
	}
}

func TestUniqueBy(t *testing.T) {
	last := func(n int) string { return strconv.Itoa(n % 10) }
	if got := UniqueBy([]int{11, 21, 3, 1, 13}, last); !slices.Equal(got, []int{11, 3}) {
		t.Errorf("got %d", got)
	}
}

func TestCountAndSum(t *testing.T) {
	list := []int{1, 2, 4}
	if got := Count(list, even); got != 2 {
		t.Errorf("Count: got %d, want 2", got)
	}
	if got := Sum(list, func(n int) float64 { return float64(n) / 2 }); got != 3.5 {
		t.Errorf("Sum: got %v, want 3.5", got)
	}
}
