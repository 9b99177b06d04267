package scenarios_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
)

// sheet is an example of a file that people write.
type sheet struct {
	Title string `yaml:"title"`
	Count int    `yaml:"count"`
	Rows  []row  `yaml:"rows"`
}

type row struct {
	Name string `yaml:"name"`
	Gate string `yaml:"gate"`
}

func TestDecode(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"good", "title: a\ncount: 2\nrows:\n- name: x\n  gate: on\n", ""},
		{"no fields", "{}\n", ""},
		{"with a comment", "# why\ntitle: a # what\n", ""},
		{"with the marks of a document", "---\ntitle: a\n...\n", ""},
		{"unknown field", "title: a\nsize: 1\n", `f.yaml:2:1: unknown field "size"`},
		{"unknown field of a row", "rows:\n- name: x\n  gates: on\n", `f.yaml:3:3: unknown field "gates"`},
		{"a field in other letters", "Title: a\n", `f.yaml:1:1: unknown field "Title"`},
		{"wrong type", "title: a\ncount: many\n", "f.yaml:2:8: "},
		{"a text for a list", "rows: all\n", "f.yaml:1:7: "},
		{"a list for all", "- title: a\n", "f.yaml:1:"},
		{"a field twice", "title: a\ntitle: b\n", "f.yaml:2:1: "},
		{"no YAML", "title: [", "f.yaml:1:"},
		{"a tab", "rows:\n\t- name: x\n", "f.yaml:2:1: "},
		{"an anchor that there is not", "title: *other\n", "f.yaml:1:"},
		{"two documents", "title: a\n---\ntitle: b\n", "f.yaml:3:1: the file holds 2 YAML documents (expected one sheet a file)"},
		{"empty", "", "f.yaml:1:1: the file is empty (expected a sheet)"},
		{"only space", "\n\n", "f.yaml:1:1: the file is empty (expected a sheet)"},
		{"as large as can be", "# " + strings.Repeat("x", 1<<20-12) + "\ntitle: a\n", ""},
		{"as many lines as can be", "title: a\n" + strings.Repeat("#\r\n", 10_000-1), ""},
		{"a key over two lines", "!  0\n\n0:", "f.yaml:3:2: cannot be parsed: mapping values are not allowed in this context (expected YAML)"},
		{"too large", "# " + strings.Repeat("x", 1<<20-11) + "\ntitle: a\n", "f.yaml:1:1: cannot be read: it is larger than 1 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s sheet
			f, err := scenarios.Decode("f.yaml", []byte(c.text), "a sheet", &s)
			if c.want == "" {
				if err != nil || f == nil {
					t.Fatalf("got %v, %v", f, err)
				}
				if strings.Contains(c.text, "title: a") && s.Title != "a" {
					t.Errorf("decoded %+v", s)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Fatalf("got %v, want %s", err, c.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %v", err)
			}
		})
	}
}

// TestOnIsAText checks that the word on is text, as in YAML 1.2, so that the state of a gate needs no quotes.
func TestOnIsAText(t *testing.T) {
	for _, word := range []string{"on", "off", "yes", "default"} {
		var s sheet
		if _, err := scenarios.Decode("f.yaml", []byte("rows: [{gate: "+word+"}]\n"), "a sheet", &s); err != nil || s.Rows[0].Gate != word {
			t.Errorf("%s: %v, %+v", word, err, s)
		}
	}
}

func TestAt(t *testing.T) {
	const text = `# a comment
title: a
rows:
  - name: x
    gate: off
  - {name: y, gate: on}
  -
    gate: on
`
	for _, c := range []struct{ path, want string }{
		{"$", "f.yaml"},
		{"$.title", "f.yaml:2:8"},
		{"$.rows", "f.yaml:4:3"},
		{"$.rows[0]", "f.yaml:4:5"},
		{"$.rows[0].name", "f.yaml:4:11"},
		{"$.rows[0].gate", "f.yaml:5:11"},
		{"$.rows[1]", "f.yaml:6:6"},
		{"$.rows[1].gate", "f.yaml:6:21"},
		{"$.rows[2]", "f.yaml:8:5"},
		// The row does not exist, so the place is its parent's.
		{"$.rows[2].name", "f.yaml:8:5"},
		{"$.rows[0].name.first", "f.yaml:4:11"},
		{"$.rows[7]", "f.yaml:4:3"},
		{"$.rows[7].gate", "f.yaml:4:3"},
		// The field does not exist either, so only the file is named.
		{"$.count", "f.yaml"},
		{"", "f.yaml"},
		{"no path", "f.yaml"},
	} {
		t.Run(c.path, func(t *testing.T) {
			var s sheet
			f, err := scenarios.Decode("f.yaml", []byte(text), "a sheet", &s)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.At(c.path); got != c.want {
				t.Errorf("%s is at %s, want %s", c.path, got, c.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"title: a\ncount: 2\nrows:\n- {name: x, gate: on}\n", "title: [", "a: &a\n- *a\n", "---\n---\n", "? {a: b}\n: c\n",
		"rows: &r [{name: x}]\ntitle: *r\n", "<<: {title: a}\n", "# only a comment\n", "title: !!binary x\n", "title: |\n  a\n b\n", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s sheet
		file, err := scenarios.Decode("f.yaml", data, "a sheet", &s)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml:") {
				t.Errorf("no file in %q", err)
			}
			return
		}
		for i := range s.Rows {
			if at := file.At(fmt.Sprintf("$.rows[%d].gate", i)); !strings.HasPrefix(at, "f.yaml") {
				t.Errorf("no file in %q", at)
			}
		}
		if at := file.At("$"); !strings.HasPrefix(at, "f.yaml") {
			t.Errorf("no file in %q", at)
		}
	})
}
