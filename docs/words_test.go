package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// quoting are pages whose words are somebody else's, or of the time when a decision was made.
var quoting = []string{"docs/adr/", "docs/glossary.md", "docs/coverage.md", "docs/findings/", "docs/server-coverage.md"}

// TestPagesHaveNoStruckOutWords looks for struck-out words in all pages, what they print of programs apart.
func TestPagesHaveNoStruckOutWords(t *testing.T) {
	all := pages(t)
	for name, text := range all {
		isQuoting := slices.ContainsFunc(quoting, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if !isQuoting {
			CheckWords(t, name, code.ReplaceAllString(fence.ReplaceAllString(text, ""), ""))
		}
	}
	for _, left := range readWords(t).Left {
		text, isPage := all[left.In]
		if isPage && !strings.Contains(strings.ToLower(text), strings.ToLower(left.Find)) {
			t.Errorf("docs/words.yaml: %s has no %q any more: take it off the list", left.In, left.Find)
		}
	}
}

// TestNamesHaveNoStruckOutWords looks for struck-out words in the exported names of all packages.
func TestNamesHaveNoStruckOutWords(t *testing.T) {
	all := readWords(t)
	instead := map[string]string{}
	for _, word := range all.StruckOut {
		for _, name := range word.Names {
			instead[name] = word.Say
		}
	}
	files := parseFiles(t, root)
	if len(files) < 100 {
		t.Fatalf("only %d files were found", len(files))
	}
	for path, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			id, isName := n.(*ast.Ident)
			if !isName || !id.IsExported() {
				return true
			}
			for word, say := range instead {
				if hasWord(id.Name, word) && !all.isLeft(path, word) {
					t.Errorf("%s: the name %s has the word %q, which is struck out: say %s", path, id.Name, word, say)
				}
			}
			return true
		})
	}
}

// hasWord reports whether a name in camel case has a word: Legs is in RunLegs, and not in Legsize or RunLegacy.
func hasWord(name, word string) bool {
	for rest := name; ; {
		at := strings.Index(rest, word)
		if at < 0 {
			return false
		}
		rest = rest[at+len(word):]
		if rest == "" || !unicode.IsLower(rune(rest[0])) {
			return true
		}
	}
}

// parseFiles returns the Go files below a folder, tests apart, by their paths from it.
func parseFiles(t *testing.T, folder string) map[string]*ast.File {
	t.Helper()
	out := map[string]*ast.File{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		isSkipped := d != nil &&
			d.IsDir() &&
			(strings.HasPrefix(d.Name(), "_") || d.Name() == ".git" || d.Name() == "testdata")
		if err != nil {
			return err
		}
		if isSkipped {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		name, _ := filepath.Rel(folder, path)
		out[name] = file
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestGlossary makes the page from the doc comments of the declarations that carry the words.
func TestGlossary(t *testing.T) {
	ComparePart(t, "glossary.md", "made from docs/words.yaml by go test ./docs -update", readWords(t).glossary(t, func(from string) string {
		return define(t, from)
	}), *update)
}

// carrier is a declaration that carries a word: a folder, and in it a name, and a field of it.
type carrier struct{ folder, name, field string }

// parseCarrier reads FOLDER, FOLDER.NAME or FOLDER.TYPE.FIELD.
func parseCarrier(from string) carrier {
	folder, last := filepath.Split(from)
	parts := append(strings.Split(last, "."), "", "")
	return carrier{folder + parts[0], parts[1], parts[2]}
}

// define returns what a declaration is by its doc comment: the first paragraph without "NAME is".
func define(t *testing.T, from string) string {
	t.Helper()
	c := parseCarrier(from)
	doc := c.findDoc(t)
	paragraph, _, _ := strings.Cut(strings.TrimSpace(doc), "\n\n")
	paragraph = strings.Join(strings.Fields(paragraph), " ")
	subject := "Package " + filepath.Base(c.folder)
	if c.name != "" {
		subject = c.name
	}
	if c.field != "" {
		subject = c.field
	}
	m := regexp.MustCompile("^" + subject + " (?:is|are|has) (.+)$").FindStringSubmatch(paragraph)
	if m == nil {
		t.Fatalf("docs/words.yaml: the doc comment of %s does not begin with %q: %q", from, subject+" is", paragraph)
	}
	return strings.ToUpper(m[1][:1]) + m[1][1:]
}

// findDoc returns the doc comment of the declaration.
func (c carrier) findDoc(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, c.folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if doc := c.docIn(file); doc != nil {
			return doc.Text()
		}
	}
	t.Fatalf("docs/words.yaml: nothing with a doc comment is called %q in %s", c.name, c.folder)
	return ""
}

// docIn returns the doc comment in one file, nil if the file does not have the declaration.
func (c carrier) docIn(file *ast.File) *ast.CommentGroup {
	if c.name == "" {
		return file.Doc
	}
	for _, d := range file.Decls {
		general, isGeneral := d.(*ast.GenDecl)
		if !isGeneral {
			continue
		}
		for _, spec := range general.Specs {
			if doc := c.docOf(spec); doc != nil {
				return doc
			}
			if declaredName(spec) == c.name && c.field == "" {
				return general.Doc
			}
		}
	}
	return nil
}

// docOf returns the comment at a specification itself, or at its field.
func (c carrier) docOf(spec ast.Spec) *ast.CommentGroup {
	if declaredName(spec) != c.name {
		return nil
	}
	if value, isValue := spec.(*ast.ValueSpec); isValue {
		return value.Doc
	}
	typed := spec.(*ast.TypeSpec)
	structure, isStruct := typed.Type.(*ast.StructType)
	if c.field == "" || !isStruct {
		return typed.Doc
	}
	for _, field := range structure.Fields.List {
		if slices.ContainsFunc(field.Names, func(n *ast.Ident) bool { return n.Name == c.field }) {
			return field.Doc
		}
	}
	return nil
}

// declaredName returns the name that a specification declares, "" for an import.
func declaredName(spec ast.Spec) string {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return s.Name.Name
	case *ast.ValueSpec:
		return s.Names[0].Name
	}
	return ""
}

// TestCheckWords: struck-out turns are found, and turns that only look like them are not.
func TestCheckWords(t *testing.T) {
	all := readWords(t)
	count := func(text string) (n int) {
		for _, word := range all.StruckOut {
			n += len(word.search(text))
		}
		return n
	}
	for text, want := range map[string]int{
		"The report is held to the command line.":     1,
		"491 attacks, of which 147 got through":       1,
		"50 proxies, each of which is detected":       0,
		"A rogue leg":                                 2,
		"legacy impersonation on arm64":               0,
		"It says whether it holds.":                   1,
		"a denial, which is no failure":               1,
		"There is no report, and it is no longer new": 0,
		"He holds the permission to get pods":         1,
	} {
		if got := count(text); got != want {
			t.Errorf("%q has %d struck-out words, expected %d", text, got, want)
		}
	}
	for name, want := range map[string]bool{"RunLegs": true, "Legs": true, "LegacyCheck": false, "StandIns": true, "Charms": false} {
		if got := hasWord(name, "Legs") || hasWord(name, "Leg") || hasWord(name, "StandIns"); got != want {
			t.Errorf("%s: %t, expected %t", name, got, want)
		}
	}
}
