// Package sample says which of their many faulty subjects the tests try: some with every commit, others with the next, and
// all of them by night. Every test that has more subjects than a change can wait for asks it.
package sample

import (
	"os"
	"strconv"
	"testing"
)

const (
	// allVariable has the tests try everything, on more seeds too, when it is set to anything.
	allVariable = "AUTHZCONF_FAULTY"
	// turnVariable is a number, and each number has other subjects tried. `make test` gives that of the commit.
	turnVariable = "AUTHZCONF_SAMPLE"
)

// IsEverything reports whether the tests are to try all subjects, whatever it takes.
func IsEverything() bool { return os.Getenv(allVariable) != "" }

// Turn returns the number that chooses the subjects, at least 0; 0 where none is given.
func Turn() int {
	turn, err := strconv.Atoi(os.Getenv(turnVariable))
	if err != nil || turn < 0 {
		return 0
	}
	return turn
}

// TakesIndex reports whether the subject at an index is tried if a run tries one in n. In n consecutive turns each subject
// has been tried.
func TakesIndex(index, n int) bool {
	return IsEverything() || index%n == Turn()%n
}

// Some returns about as many subjects of a list as count says, others with each turn, or all if everything is to be tried.
func Some[T any](count int, list []T) []T {
	return OneIn(max(1, len(list)/count), list)
}

// OneIn returns one subject in n of a list, in its order, or all if everything is to be tried.
func OneIn[T any](n int, list []T) (items []T) {
	for i, subject := range list {
		if TakesIndex(i, n) {
			items = append(items, subject)
		}
	}
	return items
}

// InTurn skips a test unless it is its turn among n long tests, which have the indexes 0 to n-1. In n consecutive turns each of them
// has been run.
func InTurn(t testing.TB, index, n int) {
	t.Helper()
	if !TakesIndex(index, n) {
		t.Skipf("one commit in %d runs it: %s=%d does, and %s=all", n, turnVariable, index, allVariable)
	}
}
