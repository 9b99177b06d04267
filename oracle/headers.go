package oracle

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

const (
	userHeader  = "impersonate-user"
	uidHeader   = "impersonate-uid"
	groupHeader = "impersonate-group"
	extraPrefix = "impersonate-extra-"
	// maxHeaders is how much an API server reads of headers (DefaultMaxHeaderBytes of net/http).
	maxHeaders = 1 << 20
)

// wantedUser is what the impersonation headers ask for, as the API server reads them
// (processImpersonationHeaders). Those of client-go come first (impersonatingRoundTripper): it sends no key of
// extra without a value. sent is false if no header says anything.
func wantedUser(imp *scenarios.Impersonate, raw []scenarios.Header) (u scenarios.User, sent bool) {
	lines := map[string][]string{}
	extra := map[string][]string{}
	if imp != nil {
		lines[userHeader], lines[groupHeader] = []string{imp.User}, slices.Clone(imp.Groups)
		if imp.UID != "" {
			lines[uidHeader] = []string{imp.UID}
		}
		for _, k := range slices.Sorted(maps.Keys(imp.Extra)) {
			if key := lowerASCII(k); len(imp.Extra[k]) > 0 {
				extra[key] = append(extra[key], imp.Extra[k]...)
			}
		}
	}
	for _, h := range raw {
		name := lowerASCII(h.Name)
		if escaped, ok := strings.CutPrefix(name, extraPrefix); ok {
			key, err := url.PathUnescape(escaped)
			if err != nil {
				key = escaped // taken as it is (unescapeExtraKey)
			}
			extra[key] = append(extra[key], h.Bytes())
			continue
		}
		lines[name] = append(lines[name], h.Bytes())
	}
	u = scenarios.User{Name: first(lines[userHeader]), UID: first(lines[uidHeader])}
	if len(lines[groupHeader]) > 0 {
		u.Groups = lines[groupHeader]
	}
	if len(extra) > 0 {
		u.Extra = extra
	}
	return u, u.Name != "" || u.UID != "" || len(u.Groups) > 0 || len(extra) > 0
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// headerBytes is about what the headers take on the wire.
func headerBytes(imp *scenarios.Impersonate, raw []scenarios.Header) (n int) {
	for _, h := range raw {
		n += len(h.Name) + len(h.Value)*max(1, h.Repeat) + len(h.Hex)/2 + len(": \r\n")
	}
	if imp == nil {
		return n
	}
	n += len(imp.User) + len(imp.UID)
	for _, g := range imp.Groups {
		n += len(groupHeader) + len(g)
	}
	for k, values := range imp.Extra {
		for _, v := range values {
			n += len(extraPrefix) + len(k) + len(v)
		}
	}
	return n
}

// lowerASCII lowers what a header name can carry. Other letters travel percent-encoded and keep their case.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}
