package scenarios

import "slices"

// Each is what fn makes of each of a list; nil of none.
func Each[T, U any](l []T, fn func(T) U) []U {
	if l == nil {
		return nil
	}
	out := make([]U, len(l))
	for i, v := range l {
		out[i] = fn(v)
	}
	return out
}

// Where are those of a list that fit, in its order.
func Where[T any](l []T, fits func(T) bool) (out []T) {
	for _, v := range l {
		if fits(v) {
			out = append(out, v)
		}
	}
	return out
}

// Add is a list with those of others that it lacks, each once.
func Add[T comparable](l []T, others ...T) []T {
	for _, v := range others {
		if !slices.Contains(l, v) {
			l = append(l, v)
		}
	}
	return l
}

// Once are those of a list that have not the key of an earlier one.
func Once[T any](l []T, key func(T) string) []T {
	known := map[string]bool{}
	return Where(l, func(v T) bool {
		k := key(v)
		before := known[k]
		known[k] = true
		return !before
	})
}

// Count is how many of a list fit.
func Count[T any](l []T, fits func(T) bool) (n int) {
	for _, v := range l {
		if fits(v) {
			n++
		}
	}
	return n
}

// Sum adds up what fn says of each of a list.
func Sum[T any, N ~int | ~int64 | ~float64](l []T, fn func(T) N) (sum N) {
	for _, v := range l {
		sum += fn(v)
	}
	return sum
}
