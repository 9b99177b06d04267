package docs

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the drawing and the figures anew")

const root = ".."

// pages are all Markdown files of the repository, by their paths from its root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() &&
			(strings.HasPrefix(d.Name(), "_") || d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		out[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("only %d pages were found", len(out))
	}
	return out
}

var (
	fence    = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	code     = regexp.MustCompile("`[^`\n]*`")
	link     = regexp.MustCompile(`\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchor = regexp.MustCompile("[^a-z0-9 _-]")
	word     = regexp.MustCompile("^`[A-Za-z.]+`$")
)

// anchors are those that GitHub makes of the headings of a page.
func anchors(page string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := link.ReplaceAllString(m[1], "$1")
		out = append(out, strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(text), ""), " ", "-"))
	}
	return out
}

func TestLinks(t *testing.T) {
	pages := pages(t)
	for name, text := range pages {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if problem := broken(pages, name, m[1], m[2]); problem != "" {
				t.Errorf("%s: [%s](%s): %s", name, m[1], m[2], problem)
			}
		}
	}
}

// broken says what is wrong with a link, "" for nothing.
func broken(pages map[string]string, from, text, to string) string {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		return ""
	}
	file, anchor, _ := strings.Cut(to, "#")
	path := filepath.Join(filepath.Dir(from), file)
	if file == "" {
		path = from
	}
	if _, err := os.Stat(filepath.Join(root, path)); err != nil {
		return "there is no such file"
	}
	if page, ok := pages[path]; ok && anchor != "" && !slices.Contains(anchors(page), anchor) {
		return "the page has no such heading"
	}
	if filepath.Ext(path) == ".go" && word.MatchString(text) {
		return undeclared(path, strings.Trim(text, "`"))
	}
	return ""
}

// undeclared says that a Go file does not declare what a link to it names: a function, a method, a type or a variable, with
// or without its package or type before it.
func undeclared(path, name string) string {
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return err.Error()
	}
	name = name[strings.LastIndex(name, ".")+1:]
	if !regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |var )` + name + `\b`).Match(data) {
		return "the file does not declare " + name
	}
	return ""
}

// figure is a number that several pages quote.
type figure struct {
	Value string `json:"value"`
	// From says what measures it.
	From string `json:"from"`
	// Printed are regular expressions with one group for where it stands in printed output.
	Printed []string `json:"printed"`
}

var marked = regexp.MustCompile(`<!--fig ([a-z-]+)-->([0-9][0-9.,]*[0-9]|[0-9])`)

// TestFigures holds every quoted figure to figures.yaml.
func TestFigures(t *testing.T) {
	data, err := os.ReadFile("figures.yaml")
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]figure{}
	if err := yaml.UnmarshalStrict(data, &figures); err != nil {
		t.Fatal(err)
	}
	used := map[string]int{}
	for name, text := range pages(t) {
		right := quote(t, figures, used, name, text)
		if right == text {
			continue
		}
		if !*update {
			t.Errorf("%s quotes other figures than docs/figures.yaml: go test ./docs -update", name)
			continue
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(right), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range figures {
		if used[name] == 0 {
			t.Errorf("figures.yaml: no page quotes %s", name)
		}
		if f.From == "" {
			t.Errorf("figures.yaml: %s does not say what measures it", name)
		}
	}
}

// quote is the page with the right figures. Output that was printed may have the mark of no figure, so it is
// found by its words; a value of several digits must not stand in the text without its mark.
func quote(t *testing.T, figures map[string]figure, used map[string]int, page, text string) string {
	text = marked.ReplaceAllStringFunc(text, func(s string) string {
		name := marked.FindStringSubmatch(s)[1]
		f, ok := figures[name]
		if !ok {
			t.Errorf("%s: figures.yaml has no %s", page, name)
			return s
		}
		used[name]++
		return "<!--fig " + name + "-->" + f.Value
	})
	for name, f := range figures {
		for _, p := range f.Printed {
			text = replaceGroup(regexp.MustCompile(p), text, f.Value, func() { used[name]++ })
		}
	}
	if page == "README.md" || filepath.Dir(page) == "docs" {
		plain := marked.ReplaceAllString(code.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), "")
		for name, f := range figures {
			printed := slices.ContainsFunc(f.Printed, func(p string) bool { return regexp.MustCompile(p).MatchString(plain) })
			if len(f.Value) > 2 && !printed &&
				regexp.MustCompile(`(^|[^0-9.,])`+regexp.QuoteMeta(f.Value)+`($|[^0-9.,]|[.,][^0-9])`).MatchString(plain) {
				t.Errorf("%s: %s stands there without its mark <!--fig %s-->", page, f.Value, name)
			}
		}
	}
	return text
}

// replaceGroup puts value in place of the first group of every match.
func replaceGroup(re *regexp.Regexp, text, value string, each func()) string {
	var out strings.Builder
	last := 0
	for _, m := range re.FindAllStringSubmatchIndex(text, -1) {
		each()
		out.WriteString(text[last:m[2]] + value)
		last = m[3]
	}
	return out.String() + text[last:]
}

// readmeLimit keeps the README what one reads at once.
const readmeLimit = 130

func TestREADMEIsShort(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "\n"); n > readmeLimit {
		t.Errorf("README.md has %d lines; what exceeds %d belongs into docs/", n, readmeLimit)
	}
}

// TestIndexIsComplete wants docs/README.md to lead to every page of docs.
func TestIndexIsComplete(t *testing.T) {
	all := pages(t)
	index := all["docs/README.md"]
	for name := range all {
		if filepath.Dir(name) == "docs" && name != "docs/README.md" && !strings.Contains(index, "("+filepath.Base(name)) {
			t.Errorf("docs/README.md does not lead to %s", name)
		}
	}
}
