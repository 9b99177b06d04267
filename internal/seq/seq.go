// Package seq has functions on lists that package slices does not have.
package seq

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Map returns what fn returns for each element of list, in its order; nil for a nil list.
func Map[T, U any](list []T, fn func(T) U) []U {
	if list == nil {
		return nil
	}
	out := make([]U, len(list))
	for i, v := range list {
		out[i] = fn(v)
	}
	return out
}

// MapInParallel does the same as Map, on all processors. fn is called by several goroutines at once.
func MapInParallel[T, U any](list []T, fn func(T) U) []U {
	if list == nil {
		return nil
	}
	out := make([]U, len(list))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(list)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(list)); i = next.Add(1) - 1 {
				out[i] = fn(list[i])
			}
		})
	}
	workers.Wait()
	return out
}

// Filter returns the elements of list for which keep returns true, in its order; nil if there are none.
// It leaves list as it is.
func Filter[T any](list []T, keep func(T) bool) (out []T) {
	for _, v := range list {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}

// AppendMissing appends to list those of values that it does not contain yet, each of them once, and returns it.
func AppendMissing[T comparable](list []T, values ...T) []T {
	for _, v := range values {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// UniqueBy returns list without the elements whose key an earlier element has.
func UniqueBy[T any](list []T, key func(T) string) []T {
	known := map[string]bool{}
	return Filter(list, func(v T) bool {
		k := key(v)
		before := known[k]
		known[k] = true
		return !before
	})
}

// Count returns the number of elements of list for which fits returns true.
func Count[T any](list []T, fits func(T) bool) (n int) {
	for _, v := range list {
		if fits(v) {
			n++
		}
	}
	return n
}

// Sum returns the sum of what fn returns for each element of list.
func Sum[T any, N ~int | ~int64 | ~float64](list []T, fn func(T) N) (sum N) {
	for _, v := range list {
		sum += fn(v)
	}
	return sum
}
