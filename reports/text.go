package reports

import (
	"fmt"
	"strings"
	"time"
)

// FirstLine returns the first line of a text that is not blank.
func FirstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// Ellipsis returns a text cut off after a number of characters, with an ellipsis if there was more.
func Ellipsis(s string, length int) string {
	if len(s) <= length {
		return s
	}
	if text := []rune(s); len(text) > length {
		return string(text[:length]) + "…"
	}
	return s
}

// ShortDigest returns as much of a digest as people compare.
func ShortDigest(digest string) string { return digest[:min(12, len(digest))] }

// Plural returns a number with its noun: "1 scenario" or "2 scenarios".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// FormatDuration returns a duration with as many digits as people read.
func FormatDuration(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	case d < 10*time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
