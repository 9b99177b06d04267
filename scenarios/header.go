package scenarios

import (
	"encoding/hex"
	"net/textproto"
	"slices"
	"strings"
)

const (
	userHeader = "Impersonate-User"
	// maxHeader keeps a mistyped repetition from filling the memory. It is twice as much as an API server reads of a
	// request.
	maxHeader = 2 << 20
)

// Header is one header line of a request, sent as it is written. It is for what client-go cannot send.
type Header struct {
	Name  string `json:"name" yaml:"name" bind:"keep"`           // sent in the case in which it is written
	Value string `json:"value,omitempty" yaml:"value,omitempty"` // the text after the colon
	// Repeat writes Value that many times, for values that are too long to read.
	Repeat int `json:"repeat,omitempty" yaml:"repeat,omitempty"`
	// Hex are bytes after Value in hexadecimal, for what is not UTF-8.
	Hex string `json:"hex,omitempty" yaml:"hex,omitempty" bind:"keep"`
}

// Bytes returns the whole value of the header.
func (h Header) Bytes() string {
	raw, _ := hex.DecodeString(h.Hex) // Load refuses other texts
	return strings.Repeat(h.Value, max(1, h.Repeat)) + string(raw)
}

// WantedUser returns the name of the user that the request asks to impersonate, or "" if it impersonates nobody. The
// name is written as in reviews and audit events, where JSON has U+FFFD for each byte that is not UTF-8. The API server
// takes the first of several headers, and the headers of client-go come before those that the scenario writes itself.
func (r *Request) WantedUser() string {
	if r.Impersonate != nil {
		return r.Impersonate.User
	}
	for _, h := range r.Headers {
		if isUserHeader(h) {
			return string([]rune(h.Bytes()))
		}
	}
	return ""
}

// isUserHeader reports whether a header line names the user to impersonate.
func isUserHeader(h Header) bool { return textproto.CanonicalMIMEHeaderKey(h.Name) == userHeader }

// ownHeaders are the headers that a scenario may not write itself: credentials, the ID of the audit event, and headers
// about the body or the connection. An entry that ends with a dash stands for all names that begin with it.
var ownHeaders = []string{"accept-encoding", "audit-id", "authorization", "connection", "content-", "cookie", "expect",
	"host", "keep-alive", "proxy-", "sec-websocket-", "te", "trailer", "transfer-encoding", "upgrade", "x-remote-"}

// checkHeaders checks the header lines that a scenario writes itself.
func (c *checker) checkHeaders(r *Request, path []any) {
	for i, h := range r.Headers {
		p := extend(path, "headers", i)
		c.checkHeaderName(h, extend(p, "name"))
		for _, before := range r.Headers[:i] {
			if before.Name != h.Name && strings.EqualFold(before.Name, h.Name) {
				c.fail(
					extend(p, "name"),
					"the header %q is there as %q too (expected one spelling: the order of the lines is not defined otherwise)",
					h.Name,
					before.Name,
				)
			}
		}
		c.failIf(r.Impersonate != nil && isUserHeader(h) && h.Name != userHeader, extend(p, "name"),
			"the header %q is given beside impersonate (expected %s: the order of the lines is not defined otherwise)", h.Name, userHeader)
		c.checkHeaderValue(h, p)
	}
}

func (c *checker) checkHeaderName(h Header, path []any) {
	c.require(path, h.Name == "", "the name of an impersonation header")
	switch {
	case h.Name == "":
	case isOwnHeader(h.Name):
		c.fail(
			path,
			"the header is %q (expected none of those that are not the scenario's to write: %s)",
			h.Name,
			strings.Join(ownHeaders, ", "),
		)
	case strings.ContainsFunc(h.Name, isOutsideToken):
		c.fail(path, "the header %q has a character that no header name can have (expected it percent-encoded)", h.Name)
	}
}

func (c *checker) checkHeaderValue(h Header, path []any) {
	if _, err := hex.DecodeString(h.Hex); err != nil {
		c.fail(extend(path, "hex"), "hex is %q (expected pairs of hexadecimal digits)", h.Hex)
	}
	if h.Repeat < 0 || len(h.Value)*h.Repeat > maxHeader {
		c.fail(extend(path, "repeat"), "repeat is %d (expected at most %d bytes in all)", h.Repeat, maxHeader)
		return
	}
	value := h.Bytes()
	isPadded := strings.Trim(value, " \t") != value
	if isPadded || strings.ContainsFunc(value, isControl) {
		c.fail(path, "the value has control characters, or spaces around it (expected neither: they are not sent)")
	}
}

// isOwnHeader reports whether a scenario may not write the header itself.
func isOwnHeader(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(ownHeaders, func(own string) bool {
		isBeginning := strings.HasSuffix(own, "-") && strings.HasPrefix(name, own)
		return isBeginning || name == own
	})
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// isOutsideToken reports whether a character may not occur in the name of a header (RFC 9110).
func isOutsideToken(r rune) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyz" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + "0123456789" + "!#$%&'*+-.^_`|~"
	return !strings.ContainsRune(allowed, r)
}
