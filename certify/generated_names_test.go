package certify

import (
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/width"
)

// wrongNames returns comparisons of names as directories, networks and scripts write them, as somebody would program
// them in Go. None of them uses relations.yaml.
func wrongNames() []comparison {
	fold := cases.Fold()
	return list(
		both("specially-folded", "cases.Fold", fold.String),
		both("specially-folded", "ToLower of ToUpper", func(s string) string { return strings.ToLower(strings.ToUpper(s)) }),
		both("specially-folded", "SimpleFold", func(s string) string { return strings.Map(leastFold, s) }),
		both("unseen-marks", "format characters", keep(func(r rune) bool { return !unicode.Is(unicode.Cf, r) })),
		both("unseen-marks", "variation selectors", keep(func(r rune) bool { return !unicode.Is(unicode.Variation_Selector, r) })),
		both("unseen-marks", "what can be ignored", keep(func(r rune) bool {
			return !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Cf, unicode.Variation_Selector)
		})),
		both("other-scripts", "digits", func(s string) string { return strings.Map(asciiDigit, s) }),
		both("other-scripts", "dashes", func(s string) string { return strings.Map(asciiDash, s) }),
		both("other-scripts", "width", width.Narrow.String),
		both("compatibility-forms", "NFKD", norm.NFKD.String),
		both("compatibility-forms", "NFKC, folded", func(s string) string { return fold.String(norm.NFKC.String(s)) }),
		both("mail-addresses", "domain in lower case", lowerDomain),
		both("mail-addresses", "without tag", withoutTag),
		both("mail-addresses", "without dots", withoutDots),
		both("mail-addresses", "ParseAddress", parsedAddress),
		both("account-names", "without domain", func(s string) string { return s[strings.LastIndex(s, `\`)+1:] }),
		both("account-names", "as user@domain", accountAtDomain),
		both("distinguished-names", "types in lower case", lowerTypes),
		both("distinguished-names", "without blanks", func(s string) string { return blanksAround.ReplaceAllString(s, "$1") }),
		both("distinguished-names", "sorted", sortedName),
		both("distinguished-names", "common name", commonName),
		both("uris", "host in lower case", changedURL(func(u *url.URL) { u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host) })),
		both("uris", "default port", changedURL(func(u *url.URL) { u.Host = strings.TrimSuffix(u.Host, ":443") })),
		both("uris", "without fragment", changedURL(func(u *url.URL) { u.Fragment = "" })),
		both("uris", "without user", changedURL(func(u *url.URL) { u.User = nil })),
		both("uris", "without port", func(s string) string { return strings.TrimSuffix(s, ":443") }),
		both("ip-addresses", "ParseAddr", parsedIP),
		both("ip-addresses", "ParseAddrPort", func(s string) string {
			if a, err := netip.ParseAddrPort(s); err == nil {
				return a.Addr().String()
			}
			return s
		}),
		both("ip-addresses", "without brackets", func(s string) string { return strings.Trim(s, "[]") }),
	)
}

// leastFold returns the smallest rune that folds to the same as another.
func leastFold(r rune) rune {
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		least = min(least, other)
	}
	return least
}

func asciiDigit(r rune) rune {
	if r < unicode.MaxASCII || !unicode.IsDigit(r) {
		return r
	}
	zero := r
	for unicode.IsDigit(zero-1) && r-zero < 9 {
		zero--
	}
	return '0' + r - zero
}

func asciiDash(r rune) rune {
	if unicode.Is(unicode.Dash, r) {
		return '-'
	}
	return r
}

func lowerDomain(s string) string {
	if i := strings.LastIndex(s, "@"); i >= 0 {
		return s[:i] + strings.ToLower(s[i:])
	}
	return s
}

func withoutTag(s string) string {
	local, domain, ok := strings.Cut(s, "@")
	local, _, _ = strings.Cut(local, "+")
	if !ok {
		return s
	}
	return local + "@" + domain
}

func withoutDots(s string) string {
	local, domain, ok := strings.Cut(s, "@")
	if !ok {
		return s
	}
	return strings.ReplaceAll(local, ".", "") + "@" + domain
}

func parsedAddress(s string) string {
	if a, err := mail.ParseAddress(s); err == nil {
		return a.Address
	}
	return s
}

func accountAtDomain(s string) string {
	if domain, name, ok := strings.Cut(s, `\`); ok {
		return name + "@" + domain
	}
	return s
}

var blanksAround = regexp.MustCompile(` *([,=]) *`)

var typeOfName = regexp.MustCompile(`(^|,) *[A-Za-z]+=`)

func lowerTypes(s string) string { return typeOfName.ReplaceAllStringFunc(s, strings.ToLower) }

func sortedName(s string) string {
	parts := strings.Split(s, ",")
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func commonName(s string) string {
	name, ok := strings.CutPrefix(s, "CN=")
	if !ok {
		return s
	}
	name, _, _ = strings.Cut(name, ",")
	return name
}

func changedURL(change func(u *url.URL)) func(string) string {
	return func(s string) string {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" {
			return s
		}
		change(u)
		return u.String()
	}
}

func parsedIP(s string) string {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().WithZone("").String()
	}
	return s
}

// cannotDifferByName does the same as cannotDiffer for comparisons of names.
func cannotDifferByName(attribute string, c comparison) bool {
	first := strings.TrimSuffix(c.name, ", asked only")
	first = strings.TrimSuffix(strings.TrimSuffix(first, ", granted only"), ", twice")
	is := func(some ...string) bool { return slices.Contains(some, first) }
	changesURL := is("host in lower case", "default port", "without fragment", "without user")
	switch attribute {
	case "namespace": // what they make is a label only if it was one before
		ofName := is("domain in lower case", "without tag", "without dots", "ParseAddress", "as user@domain", "types in lower case", "without blanks", "sorted", "ParseAddr", "ParseAddrPort")
		return changesURL || ofName || c.name == "NFKC, folded, granted only" || c.name == "NFKC, folded, twice"
	case "resource", "subresource": // a URL has slashes, and what follows one is a subresource
		return changesURL
	case "path-below": // they change the end of the string, where there is a /
		return c.name == "as user@domain" || c.name == "sorted" || c.name == "without brackets" || is("ParseAddrPort", "without port")
	}
	return false
}
