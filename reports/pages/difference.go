package pages

import (
	"strings"
	"unicode/utf8"
)

// comparison has two texts, and what they have in common at both ends.
type comparison struct {
	Before, Want, Got, After string
}

// comparedLength is the length from which on it helps to see where two texts begin to differ.
const comparedLength = 24

// splitDifference returns where two texts differ. Short texts differ as a whole.
func splitDifference(want, got string) comparison {
	if len(want) < comparedLength || len(got) < comparedLength {
		return comparison{Want: want, Got: got}
	}
	before := commonPrefix(want, got)
	after := commonSuffix(want[before:], got[before:])
	return comparison{
		Before: want[:before], After: want[len(want)-after:],
		Want: want[before : len(want)-after], Got: got[before : len(got)-after],
	}
}

// commonPrefix returns the length of the words that both texts begin with.
func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return strings.LastIndexFunc(a[:n], isBoundary) + 1
}

// commonSuffix returns the length of the words that both texts end with.
func commonSuffix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	end := a[len(a)-n:]
	if i := strings.IndexFunc(end, isBoundary); i >= 0 {
		return len(end) - i
	}
	return 0
}

// isBoundary reports whether a character separates words. All that do are one byte long.
func isBoundary(r rune) bool {
	return r < utf8.RuneSelf && strings.ContainsRune(" \n\t,;:/\"'()[]{}=", r)
}
