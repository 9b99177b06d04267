package certify

import (
	"fmt"
	"html"
	"unicode/utf8"
)

// label is the left half of every badge.
const label = "authzconf certified"

// badge is a picture of a level that is granted, in SVG without anything to fetch. The title is its text for who
// cannot see it, and what it is about.
func badge(level, title string) []byte {
	// Widths are those of 11 px Verdana, roughly; textLength makes them exact.
	width := func(s string) int { return 7*utf8.RuneCountInString(s) + 10 }
	left, right := width(label), width(level)
	text := func(x, w int, s string) string {
		return fmt.Sprintf(`<text x="%d" y="14" textLength="%d">%s</text>`, x+5, w-10, html.EscapeString(s))
	}
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="20" role="img" aria-label="%[2]s">
<title>%[3]s</title>
<clipPath id="r"><rect width="%[1]d" height="20" rx="3"/></clipPath>
<g clip-path="url(#r)"><path fill="#444" d="M0 0h%[4]dv20H0z"/><path fill="#1a7f37" d="M%[4]d 0h%[5]dv20H%[4]dz"/></g>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">%[6]s%[7]s</g>
</svg>
`, left+right, html.EscapeString(label+": "+level), html.EscapeString(title), left, right, text(0, left, label), text(left, right, level))
}
