package scenarios

import (
	"encoding/hex"
	"net/textproto"
	"strings"
)

const (
	userHeader = "Impersonate-User"
	// headerPrefix begins every header that a scenario may write itself.
	headerPrefix = "impersonate-"
	// maxHeader keeps a mistyped repetition from filling the memory. It is twice what an API server reads of a
	// request.
	maxHeader = 2 << 20
)

// Header is one header line of a request, sent as it is written: for what client-go cannot send.
type Header struct {
	// Name is sent in the case that it is written in.
	Name string `json:"name" yaml:"name" bind:"keep"`
	// Value is the text behind the colon.
	Value string `json:"value,omitempty" yaml:"value,omitempty"`
	// Repeat writes Value that many times, for values that are too long to read.
	Repeat int `json:"repeat,omitempty" yaml:"repeat,omitempty"`
	// Hex are bytes behind Value, in hexadecimal, for what is not UTF-8.
	Hex string `json:"hex,omitempty" yaml:"hex,omitempty" bind:"keep"`
}

// Bytes is the whole value of the header.
func (h Header) Bytes() string {
	raw, _ := hex.DecodeString(h.Hex) // Load refuses what is not hexadecimal
	return strings.Repeat(h.Value, max(1, h.Repeat)) + string(raw)
}

// WantedUser is the name of the user that the request asks to impersonate, as it stands in reviews and audit
// events: JSON has U+FFFD for each byte that is not UTF-8. Of several headers the API server takes the first, and
// client-go's come before those that the scenario writes itself. It is empty if nobody is impersonated.
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

func isUserHeader(h Header) bool { return textproto.CanonicalMIMEHeaderKey(h.Name) == userHeader }

// headers checks the header lines that a scenario writes itself.
func (c *checker) headers(r *Request, path []any) {
	for i, h := range r.Headers {
		p := extend(path, "headers", i)
		c.missing(extend(p, "name"), h.Name == "", "the name of an impersonation header")
		switch {
		case h.Name == "":
		case !strings.HasPrefix(strings.ToLower(h.Name), headerPrefix):
			c.fail(extend(p, "name"), "the header is %q (expected one that begins with Impersonate-)", h.Name)
		case strings.ContainsFunc(h.Name, notInToken):
			c.fail(extend(p, "name"), "the header %q has a character that no header name can have (expected it percent-encoded)", h.Name)
		}
		for _, before := range r.Headers[:i] {
			if before.Name != h.Name && strings.EqualFold(before.Name, h.Name) {
				c.fail(extend(p, "name"), "the header %q is there as %q too (expected one spelling: the order of the lines is not defined otherwise)", h.Name, before.Name)
			}
		}
		if r.Impersonate != nil && isUserHeader(h) && h.Name != userHeader {
			c.fail(extend(p, "name"), "the header %q is given beside impersonate (expected %s: the order of the lines is not defined otherwise)", h.Name, userHeader)
		}
		if _, err := hex.DecodeString(h.Hex); err != nil {
			c.fail(extend(p, "hex"), "hex is %q (expected pairs of hexadecimal digits)", h.Hex)
		}
		if h.Repeat < 0 || len(h.Value)*h.Repeat > maxHeader {
			c.fail(extend(p, "repeat"), "repeat is %d (expected at most %d bytes in all)", h.Repeat, maxHeader)
			continue
		}
		if value := h.Bytes(); strings.ContainsFunc(value, isControl) || strings.TrimSpace(value) != value {
			c.fail(p, "the value has control characters, or spaces around it (expected neither: they are not sent)")
		}
	}
}

// notInToken tells which characters a header name cannot have (RFC 9110).
func notInToken(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
