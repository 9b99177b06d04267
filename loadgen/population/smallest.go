package population

import (
	"slices"

	"github.com/authzconf/authzconf/loadgen/pacer"
)

// Smallest looks for fewer requests that show the same as a schedule, by leaving out halves, quarters and smaller
// parts.
func Smallest(sends []pacer.Send, tries int, shows func([]pacer.Send) bool) []pacer.Send {
	for parts := 2; len(sends) > 1 && tries > 0; {
		size, smaller := (len(sends)+parts-1)/parts, false
		for from := 0; from < len(sends) && tries > 0 && !smaller; from += size {
			rest := slices.Delete(slices.Clone(sends), from, min(from+size, len(sends)))
			if tries--; shows(rest) {
				sends, parts, smaller = rest, max(2, parts-1), true
			}
		}
		if !smaller {
			if size == 1 {
				break
			}
			parts = min(2*parts, len(sends))
		}
	}
	return sends
}
