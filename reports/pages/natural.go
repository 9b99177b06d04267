package pages

import (
	"cmp"
	"strings"
)

// compareNames compares names as people sort them: throw-9 comes before throw-10.
func compareNames(a, b string) int {
	for a != "" && b != "" {
		textA, numberA, restA := cutNumber(a)
		textB, numberB, restB := cutNumber(b)
		order := cmp.Or(strings.Compare(textA, textB), cmp.Compare(len(numberA), len(numberB)), strings.Compare(numberA, numberB))
		if order != 0 {
			return order
		}
		a, b = restA, restB
	}
	return strings.Compare(a, b)
}

// cutNumber splits a name into the text before its first number, the number without leading zeros, and the rest.
func cutNumber(name string) (text, number, rest string) {
	start := strings.IndexFunc(name, isDigit)
	if start < 0 {
		return name, "", ""
	}
	end := start
	for end < len(name) && isDigit(rune(name[end])) {
		end++
	}
	return name[:start], strings.TrimLeft(name[start:end], "0"), name[end:]
}

func isDigit(c rune) bool { return '0' <= c && c <= '9' }
