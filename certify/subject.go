package certify

import (
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/reports"
)

// Subject describes what is certified, in its vendor's words.
type Subject struct{ Vendor, Product, Version, Contact string }

// register adds the flags that describe what is certified.
func (s *Subject) register(fs *pflag.FlagSet) {
	fs.StringVar(&s.Vendor, "vendor", "", "vendor, for the report")
	fs.StringVar(&s.Product, "product", "", "product")
	fs.StringVar(&s.Version, "product-version", "", "its version")
	fs.StringVar(&s.Contact, "contact", "", "whom to ask")
}

const maxSubjectField = 100

// Check returns what is wrong with the description. Either it is empty, or it has vendor, product and version.
func (s Subject) Check() error {
	if s == (Subject{}) {
		return nil
	}
	for _, f := range []struct{ name, value string }{
		{"vendor", s.Vendor}, {"product", s.Product}, {"version", s.Version}, {"contact", s.Contact},
	} {
		if err := checkField(f.value, f.name != "contact"); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if s.Contact != "" && !isContact(s.Contact) {
		return fmt.Errorf("contact: %q is neither a mail address nor an https URL", s.Contact)
	}
	return nil
}

// checkField returns what is wrong with a field of the description.
func checkField(s string, isRequired bool) error {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case s == "" && isRequired:
		return errors.New("it is missing: vendor, product and version are given together")
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unprintable):
		return fmt.Errorf("%.80q has characters that cannot be printed", s)
	case strings.TrimSpace(s) != s:
		return fmt.Errorf("%q begins or ends with a blank", s)
	case utf8.RuneCountInString(s) > maxSubjectField:
		return fmt.Errorf("%.20q… is longer than %d characters", s, maxSubjectField)
	}
	return nil
}

// isContact reports whether a text is an https URL or a mail address.
func isContact(s string) bool {
	if u, err := url.Parse(s); err == nil && u.Scheme == "https" && u.Host != "" {
		return true
	}
	a, err := mail.ParseAddress(s)
	return err == nil && a.Address == s
}

// report returns the subject in the form that reports have.
func (s Subject) report() reports.Subject {
	if s == (Subject{}) {
		return reports.Subject{Name: "an authorizer without a name"}
	}
	return reports.Subject{Name: s.Product, Vendor: s.Vendor, Version: s.Version, Contact: s.Contact}
}
