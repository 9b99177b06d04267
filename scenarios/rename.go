package scenarios

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Rename replaces every whole occurrence of a name in s by what names maps it to. An occurrence is whole if no
// token character, that is a letter, a digit or one of "_.@-", stands directly before or after it: "node1" is
// replaced in system:node:node1, spec.nodeName=node1 and "node1", and not in node10 or node1.example. A dot that
// ends a sentence is not part of a token, and percent-encoded characters are judged as what they encode. Where
// several names fit, the longest is taken. Names that URL-encoding changes are found in their encoded forms too.
func Rename(s string, names map[string]string) string { return newRenamer(names).rename(s) }

type renamer struct {
	byFirst map[byte][]renaming
}

type renaming struct{ from, to string }

// newRenamer prepares names for many calls of rename.
func newRenamer(names map[string]string) *renamer {
	all := make(map[string]string, len(names))
	for from, to := range names {
		for _, escape := range []func(string) string{url.PathEscape, url.QueryEscape} {
			if e := escape(from); e != from {
				all[e] = escape(to)
			}
		}
	}
	// A name as written wins over another one's encoded form.
	maps.Copy(all, names)
	delete(all, "")
	r := &renamer{byFirst: make(map[byte][]renaming, len(all))}
	for from, to := range all {
		r.byFirst[from[0]] = append(r.byFirst[from[0]], renaming{from, to})
	}
	for _, list := range r.byFirst {
		slices.SortFunc(list, func(a, b renaming) int {
			return cmp.Or(cmp.Compare(len(b.from), len(a.from)), strings.Compare(a.from, b.from))
		})
	}
	return r
}

// rename makes one pass from left to right. Boundaries are judged on the original text, so that replacements
// cannot influence each other.
func (r *renamer) rename(s string) string {
	if len(r.byFirst) == 0 || s == "" {
		return s
	}
	var out strings.Builder
	done := 0
	for i := 0; i < len(s); {
		hit, ok := r.match(s, i)
		if !ok {
			if _, escaped := unescape(s, i); escaped {
				i += 3
			} else {
				i++
			}
			continue
		}
		out.WriteString(s[done:i])
		out.WriteString(hit.to)
		i += len(hit.from)
		done = i
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

// match finds the longest name that stands whole at s[i:].
func (r *renamer) match(s string, i int) (renaming, bool) {
	for _, c := range r.byFirst[s[i]] {
		if strings.HasPrefix(s[i:], c.from) && startsHere(s, i) && endsHere(s, i+len(c.from)) {
			return c, true
		}
	}
	return renaming{}, false
}

// startsHere tells whether a token can start at s[i].
func startsHere(s string, i int) bool {
	if i == 0 {
		return true
	}
	if i >= 3 {
		if c, ok := unescape(s, i-3); ok {
			return !isToken(c)
		}
	}
	before, _ := utf8.DecodeLastRuneInString(s[:i])
	return !isToken(before)
}

// endsHere tells whether a token can end before s[i].
func endsHere(s string, i int) bool {
	rest := strings.TrimLeft(s[i:], ".")
	if rest == "" {
		return true // the end of the text, or of a sentence at its end
	}
	if len(rest) == len(s)-i {
		if c, ok := unescape(s, i); ok {
			return !isToken(c)
		}
	}
	after, _ := utf8.DecodeRuneInString(rest)
	return !isToken(after)
}

// unescape decodes a percent-encoded byte at s[i:]. Bytes of a multi-byte character come out as the replacement
// letter, which is a token character.
func unescape(s string, i int) (rune, bool) {
	if i+3 > len(s) || s[i] != '%' {
		return 0, false
	}
	c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
	if err != nil {
		return 0, false
	}
	if c >= utf8.RuneSelf {
		c = 'x'
	}
	return rune(c), true
}

func isToken(r rune) bool {
	return strings.ContainsRune("_.@-", r) || unicode.IsLetter(r) || unicode.IsDigit(r)
}
