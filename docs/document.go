// Package docs compares the documentation with what tests find out: the drawing of the layers is made from the imports, the
// glossary from doc comments, every link leads somewhere, a figure that is quoted in several places is the same in all of
// them, no page has a word that is struck out (CheckWords), and tests of other packages compare their tables with their
// results.
//
//	go test ./docs -update
//
// writes drawing, figures and glossary anew.
package docs

import (
	"os"
	"strings"
	"testing"
)

// ComparePart compares a file's part between <!-- name --> and <!-- end of name --> with what it should be, or writes it.
func ComparePart(t testing.TB, file, name, want string, update bool) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	before, rest, begins := strings.Cut(string(raw), begin)
	was, after, ends := strings.Cut(rest, end)
	switch {
	case !begins || !ends:
		t.Fatalf("%s has no lines %s and %s", file, strings.TrimSpace(begin), end)
	case was == want:
	case !update:
		t.Fatalf("%s: the part %q is not up to date: run this test with -update. Want\n%s", file, name, want)
	default:
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
