package certify

import (
	"strings"
	"testing"
)

var example = Subject{Vendor: "Example & <Co>", Product: "Auth", Version: "1.2", Contact: "auth@example.com"}

func TestSubject(t *testing.T) {
	for want, p := range map[string]Subject{
		"":                             example,
		"product: it is missing":       {Vendor: "V"},
		"vendor: it is missing":        {Contact: "a@example.com"},
		"cannot be printed":            {Vendor: "V\n", Product: "P", Version: "1"},
		"begins or ends":               {Vendor: "V", Product: "P ", Version: "1"},
		"longer than 100":              {Vendor: "V", Product: "P", Version: strings.Repeat("1", 101)},
		"neither a mail address":       {Vendor: "V", Product: "P", Version: "1", Contact: "javascript:alert(1)"},
		`"http://e.com" is neither`:    {Vendor: "V", Product: "P", Version: "1", Contact: "http://e.com"},
		`"A <a@e.com>" is neither`:     {Vendor: "V", Product: "P", Version: "1", Contact: "A <a@e.com>"},
		"version: it is missing: vend": {Vendor: "V", Product: "P", Contact: "https://example.com"},
	} {
		err := p.Check()
		if (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: expected %q, got %v", p, want, err)
		}
	}
	if err := (Subject{}).Check(); err != nil {
		t.Errorf("nothing said: %v", err)
	}
}
