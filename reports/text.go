package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// ellipsis cuts a text off after length characters.
func ellipsis(s string, length int) string {
	if text := []rune(s); len(text) > length {
		return string(text[:length]) + "…"
	}
	return s
}

// Plural is "1 scenario" or "2 scenarios".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// someOf lists names, of many only the first.
func someOf(names []string) string {
	const shown = 4
	if len(names) <= shown+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
