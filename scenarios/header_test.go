package scenarios_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/authzconf/authzconf/scenarios"
)

func TestWantedUser(t *testing.T) {
	line := func(name, value, hex string) scenarios.Header {
		return scenarios.Header{Name: name, Value: value, Hex: hex}
	}
	for name, test := range map[string]struct {
		request scenarios.Request
		want    string
	}{
		"nobody":                             {scenarios.Request{}, ""},
		"impersonate":                        {scenarios.Request{Impersonate: &scenarios.Impersonate{User: "bob"}}, "bob"},
		"impersonate is sent before headers": {scenarios.Request{Impersonate: &scenarios.Impersonate{}, Headers: []scenarios.Header{line("Impersonate-User", "bob", "")}}, ""},
		"any case":                           {scenarios.Request{Headers: []scenarios.Header{line("Impersonate-Group", "crew", ""), line("imPERSONATE-user", "bob", "")}}, "bob"},
		"the first":                          {scenarios.Request{Headers: []scenarios.Header{line("Impersonate-User", "", ""), line("Impersonate-User", "bob", "")}}, ""},
		"bytes":                              {scenarios.Request{Headers: []scenarios.Header{line("Impersonate-User", "bob", "fffe")}}, "bob\ufffd\ufffd"},
		"bytes that are text":                {scenarios.Request{Headers: []scenarios.Header{line("Impersonate-User", "bob", "c3bc")}}, "bobü"},
	} {
		if got := test.request.WantedUser(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestBindHeaders checks that a name in a header is made unique, even before bytes that are not text.
func TestBindHeaders(t *testing.T) {
	text := strings.Replace(valid, "impersonate: {user: bob}", `headers: [{name: Impersonate-User, value: bob, hex: ff}, {name: Impersonate-Group, value: crew}]`, 1)
	set := mustLoad(t, fstest.MapFS{"a/x.yaml": file(text)}, nil)
	s, _ := set.Get("a/x")
	bound, _ := s.Bind("abc123")
	if got := bound.Steps[0].Request.Headers; got[0].Bytes() != "bob-abc123\xff" || got[1].Value != "crew-abc123" {
		t.Errorf("headers %v", got)
	}
	if s.Steps[0].Request.Headers[0].Value != "bob" {
		t.Error("the scenario itself was changed")
	}
}

// TestFormatErrors has mistakes in header lines, alternatives and reloads.
func TestFormatErrors(t *testing.T) {
	header := func(h string) string {
		return strings.Replace(valid, "impersonate: {user: bob}", "headers: ["+h+"]", 1)
	}
	expect := func(e string) string {
		return strings.Replace(valid, "      code: 200\n", "      code: 200\n"+e, 1)
	}
	for want, text := range map[string]string{
		`"Authorization" (expected none of those`:    header("{name: Authorization, value: x}"),
		`"X-Remote-Extra-A" (expected none of those`: header("{name: X-Remote-Extra-A, value: x}"),
		"that no header name can have":               header(`{name: "Impersonate-Extra-a/b", value: x}`),
		"expected one spelling":                      header("{name: Impersonate-User, value: bob}, {name: impersonate-user, value: bob}"),
		"expected pairs of hexadecimal digits":       header("{name: Impersonate-User, hex: f}"),
		"control characters, or spaces around it":    header("{name: Impersonate-User, hex: 0a}"),
		"repeat is -1":                                   header("{name: Impersonate-User, value: x, repeat: -1}"),
		"beside impersonate":                             strings.Replace(valid, "impersonate: {user: bob}", "impersonate: {user: bob}, headers: [{name: impersonate-user, value: carol}]", 1),
		"oneOf has 1 alternatives":                       expect("      oneOf: [{message: a}]\n"),
		"the alternative is empty":                       expect("      oneOf: [{}, {}]\n"),
		"expected the same fields in each":               expect("      oneOf: [{message: a}, {reviews: []}]\n"),
		"the same as number 1":                           expect("      oneOf: [{message: a}, {message: a}]\n"),
		"a field is given in oneOf and beside it":        expect("      message: c\n      oneOf: [{message: a}, {message: b}]\n"),
		"message and messageMatches are given":           expect("      message: c\n      messageMatches: c\n"),
		"messageMatches is not a regular expression":     expect("      messageMatches: '('\n"),
		"reload is given without requires.chain":         valid + "  - reload: other\n",
		"the requestor is anonymous and has a name":      strings.Replace(valid, "{user: agent, groups: [crew]}", "{user: agent, anonymous: true}", 1),
		"uid, groups and extra are given with anonymous": strings.Replace(valid, "{user: agent, groups: [crew]}", "{anonymous: true, groups: [crew]}", 1),
	} {
		_, err := scenarios.Load(fstest.MapFS{"a/x.yaml": file(text)}, fstest.MapFS{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestReloads(t *testing.T) {
	chains := fstest.MapFS{"chains/one.yaml": file("a"), "chains/two.yaml": file("b")}
	base := strings.Replace(valid, "gate: on,", "gate: on, chain: one,", 1)
	for _, test := range []struct{ steps, want string }{
		{"  - reload: two\n  - reload: one\n", ""},
		{"  - reload: two\n", `leaves the chain "two"`},
		{"  - reload: one\n", "in force already"},
		{"  - reload: three\n  - reload: one\n", `chain "three"`},
	} {
		_, err := scenarios.Load(fstest.MapFS{"a/x.yaml": file(base + test.steps)}, chains)
		if test.want == "" && err != nil ||
			test.want != "" &&
				(err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%q: want %q, got %v", test.steps, test.want, err)
		}
	}
}
