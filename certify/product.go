package certify

import (
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxProductField is the longest name of a vendor or a product.
const maxProductField = 100

// Check says what is wrong with the description. Either nothing is said, or vendor, product and version are.
func (p Product) Check() error {
	if p == (Product{}) {
		return nil
	}
	for _, f := range []struct{ name, value string }{
		{"vendor", p.Vendor}, {"product", p.Name}, {"version", p.Version}, {"contact", p.Contact},
	} {
		if err := checkField(f.value, f.name != "contact"); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if p.Contact == "" {
		return nil
	}
	if u, err := url.Parse(p.Contact); err == nil && u.Scheme == "https" && u.Host != "" {
		return nil
	}
	if a, err := mail.ParseAddress(p.Contact); err != nil || a.Address != p.Contact {
		return fmt.Errorf("contact: %q is neither a mail address nor an https URL", p.Contact)
	}
	return nil
}

func checkField(s string, needed bool) error {
	switch {
	case s == "" && needed:
		return errors.New("it is missing: vendor, product and version are given together")
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%.80q has characters that cannot be printed", s)
	case strings.TrimSpace(s) != s:
		return fmt.Errorf("%q begins or ends with a blank", s)
	case utf8.RuneCountInString(s) > maxProductField:
		return fmt.Errorf("%.20q… is longer than %d characters", s, maxProductField)
	}
	return nil
}
