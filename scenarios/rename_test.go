package scenarios_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/authzconf/authzconf/scenarios"
)

func TestRename(t *testing.T) {
	names := map[string]string{
		"bob": "bob-s", "node1": "node1-s", "jane.doe@example.com": "jane.doe@example.com-s", "josé": "josé-s",
		"impersonate:vm": "impersonate:vm-s", "impersonate:vm:get": "impersonate:vm:get-s", "acme/team a": "acme/team a-s", "web": "web-s",
	}
	for _, c := range []struct{ name, in, want string }{
		{"whole", "bob", "bob-s"},
		{"empty", "", ""},
		{"nothing", "alice", "alice"},
		{"in a user name", "system:node:node1", "system:node:node1-s"},
		{"in a selector", "spec.nodeName=node1,metadata.name!=web", "spec.nodeName=node1-s,metadata.name!=web-s"},
		{"in quotes", `User "bob" cannot`, `User "bob-s" cannot`},
		{"in a path", "/api/v1/nodes/node1/proxy", "/api/v1/nodes/node1-s/proxy"},
		{"twice", "bob bob", "bob-s bob-s"},
		{"longer word", "bobby", "bobby"},
		{"shorter word", "bo", "bo"},
		{"after a letter", "abob", "abob"},
		{"digit after", "node10", "node10"},
		{"dash after", "bob-2", "bob-2"},
		{"dash before", "not-bob", "not-bob"},
		{"underscore", "bob_ _bob", "bob_ _bob"},
		{"part of a host", "node1.example.com", "node1.example.com"},
		{"part of an address", "bob@example.com", "bob@example.com"},
		{"dot before", "x.bob", "x.bob"},
		{"end of a sentence", "It was bob. He ran.", "It was bob-s. He ran."},
		{"end of the text", "It was bob.", "It was bob-s."},
		{"dots", "bob...", "bob-s..."},
		{"dots within", "bob..x", "bob..x"},
		{"an address", "jane.doe@example.com, bob", "jane.doe@example.com-s, bob-s"},
		{"an address at the end", "as jane.doe@example.com.", "as jane.doe@example.com-s."},
		{"longest first", "impersonate:vm:get", "impersonate:vm:get-s"},
		{"shorter where the longest does not fit", "impersonate:vm:gets", "impersonate:vm-s:gets"},
		{"letters of other languages", "josé bobé ébob josés", "josé-s bobé ébob josés"},
		{"punctuation of other languages", "“bob”", "“bob-s”"},
		{"after an escape", "fieldSelector=spec.nodeName%3Dnode1%2Cx", "fieldSelector=spec.nodeName%3Dnode1-s%2Cx"},
		{"before an escaped token character", "bob%40example.com", "bob%40example.com"},
		{"after an escaped token character", "a%2Dbob", "a%2Dbob"},
		{"escaped itself", "user=jane.doe%40example.com&x", "user=jane.doe%40example.com-s&x"},
		{"escaped as a path", "/x/acme%2Fteam%20a", "/x/acme%2Fteam%20a-s"},
		{"escaped as a query", "q=acme%2Fteam+a", "q=acme%2Fteam+a-s"},
		{"not an escape", "100%bob", "100%bob-s"},
		{"escaped letter of another language", "%C3%A9bob", "%C3%A9bob"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := scenarios.Rename(c.in, names); got != c.want {
				t.Errorf("Rename(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func TestRenameWithoutNames(t *testing.T) {
	for _, names := range []map[string]string{nil, {}, {"": "x"}} {
		if got := scenarios.Rename("a b", names); got != "a b" {
			t.Errorf("got %q", got)
		}
	}
}

// FuzzRename checks that renaming back gives the original text, for names that are made unique with a suffix that does
// not occur in it.
func FuzzRename(f *testing.F) {
	f.Add("bob and node1, system:node:node1.", "bob", "node1")
	f.Add("impersonate:vm:get impersonate:vm", "impersonate:vm", "impersonate:vm:get")
	f.Add("a%3Db%2Cb a+b", "b", "a b")
	f.Add("jane.doe@example.com.. x", "jane.doe@example.com", "jane")
	f.Add("%3D%3D3D", "3D", "D")
	f.Fuzz(func(t *testing.T, text, one, two string) {
		const suffix = "-q0q0q0"
		// Load accepts no name that begins or ends with anything but a letter or digit. A name that equals the escaped
		// form of the other one cannot be told apart from it.
		if !plainName(one) || !plainName(two) || strings.ContainsAny(one+two, "%+ ") || strings.Contains(text+one+two, suffix) ||
			!utf8.ValidString(text) {
			t.Skip()
		}
		there := map[string]string{one: one + suffix, two: two + suffix}
		back := map[string]string{one + suffix: one, two + suffix: two}
		renamed := scenarios.Rename(text, there)
		if again := scenarios.Rename(renamed, back); again != text {
			t.Errorf("%q became %q and then %q", text, renamed, again)
		}
		for _, name := range []string{one, two} {
			if got := scenarios.Rename("("+name+").", there); got != "("+name+suffix+")." {
				t.Errorf("the name %q in a sentence became %q", name, got)
			}
		}
	})
}

func plainName(s string) bool {
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	good := func(r rune) bool {
		return r != utf8.RuneError &&
			(unicode.IsLetter(r) || unicode.IsDigit(r))
	}
	return utf8.ValidString(s) && good(first) && good(last)
}

func BenchmarkBind(b *testing.B) {
	s := mustLoad(b, benchFiles, nil).All()[0]
	b.ReportAllocs()
	for b.Loop() {
		s.Bind("abc123")
	}
}
