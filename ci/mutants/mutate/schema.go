package mutate

// HelperName is what the mutated source calls the package of helpers.
const HelperName = "zzmutants"

// SharedVariable names the environment variable with the path of a file that the program shares with whoever
// started it: SharedHeader bytes with the number of the chosen mutant, in little-endian order, which may change at
// any time; and a byte for each number from 0, which the program sets to 1 when it reaches the place of that mutant's
// change. Without it no mutant is chosen.
const SharedVariable = "AUTHZCONF_MUTANTS_SHARED"

// SharedHeader is the length of the number in the shared file.
const SharedHeader = 4

// Helpers is the source of the package that the mutated source imports.
const Helpers = `// Package zzmutants chooses one of the mutants that are compiled into this program.
package zzmutants

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
)

var shared = share()

func share() []byte {
	path := os.Getenv("` + SharedVariable + `")
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	info, err := file.Stat()
	if err != nil {
		panic(err)
	}
	data, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return data
}

// On says whether mutant n is the chosen one, and notes that its place was reached.
func On(n int) bool {
	if shared == nil {
		return false
	}
	shared[4+n] = 1
	return n == int(binary.LittleEndian.Uint32(shared))
}

// Zero is the zero value in place of v.
func Zero[T any](n int, v T) T {
	if On(n) {
		var zero T
		return zero
	}
	return v
}

// Pick is other in place of v.
func Pick[T any](n int, v, other T) T {
	if On(n) {
		return other
	}
	return v
}

// One is 1 for the chosen mutant, and otherwise 0.
func One[T ~int | ~int32 | ~int64 | ~uint | ~uint64 | ~float64](n int) T {
	if On(n) {
		return 1
	}
	return 0
}

// Err is an error in place of none.
func Err(n int, err error) error {
	if On(n) {
		return errors.New("mutant")
	}
	return err
}

// Same is a function that returns its argument, in place of f.
func Same[T any](n int, f func(T) T) func(T) T {
	if On(n) {
		return func(v T) T { return v }
	}
	return f
}

// Same2 is a function that returns its first argument, in place of f.
func Same2[T, U any](n int, f func(T, U) T) func(T, U) T {
	if On(n) {
		return func(v T, _ U) T { return v }
	}
	return f
}

// Tail is s without its first element.
func Tail[E any](n int, s []E) []E {
	if On(n) && len(s) > 0 {
		return s[1:]
	}
	return s
}

// Drop is s without element i.
func Drop[E any](n, i int, s []E) []E {
	if On(n) {
		return append(append([]E{}, s[:i]...), s[i+1:]...)
	}
	return s
}

// Swap is s with elements i and i+1 exchanged.
func Swap[E any](n, i int, s []E) []E {
	if On(n) {
		s = append([]E{}, s...)
		s[i], s[i+1] = s[i+1], s[i]
	}
	return s
}
`
