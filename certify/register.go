package certify

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	texttemplate "text/template"
	"time"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/internal/seq"
)

const maxProblem = 200

// Bundles finds the bundles of a path: itself, if it is one, or what is directly below it. Tars that are not bundles
// are named too, so that nothing is left out in silence.
func Bundles(path string) (out []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() || isBundle(path) {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		tarball := slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz"}, func(ext string) bool { return strings.HasSuffix(name, ext) })
		if e.IsDir() && isBundle(name) || !e.IsDir() && tarball {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: there is no bundle in it", path)
	}
	return out, nil
}

func isBundle(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, certificationFile))
	return err == nil
}

// Verifier judges a bundle again: Kind.Verify, or one that chooses the kind.
type Verifier func(Bundle) (c *Certification, differences []string, err error)

// Register judges bundles again and makes the page of them, with links from its folder. keys check the signatures.
func Register(verify Verifier, version, folder string, paths []string, keys []*Key) (Page, error) {
	page := Page{Version: version, Levels: seq.Map(Levels(), func(level CertificationLevel) string { return string(level) })}
	for _, path := range paths {
		row := rowOf(verify, path, keys)
		link, err := relative(folder, path)
		if err != nil {
			return page, err
		}
		row.Path = link
		page.Levels = seq.AppendMissing(page.Levels, slices.Collect(maps.Keys(row.Levels))...)
		page.Rows = append(page.Rows, row)
	}
	slices.Sort(page.Levels[len(Levels()):]) // what no mode of this version has
	return page, nil
}

func relative(folder, path string) (string, error) {
	from, err := filepath.Abs(folder)
	to, err2 := filepath.Abs(path)
	link, err3 := filepath.Rel(from, to)
	return filepath.ToSlash(link), errors.Join(err, err2, err3)
}

func rowOf(verify Verifier, path string, keys []*Key) Row {
	// Nothing of a file that cannot be read is repeated.
	unreadable := Row{
		Certification: &Certification{Product: Product{Name: filepath.Base(path)}},
		Problems:      []string{"it cannot be read as a bundle"}, Signature: "not checked",
	}
	b, err := OpenBundle(path)
	if err != nil {
		return unreadable
	}
	c, differences, err := verify(b)
	var other *OtherSuiteError
	switch {
	case errors.As(err, &other):
		differences = append(differences, other.Error())
	case err != nil:
		return unreadable
	}
	row := Row{Certification: c, Levels: map[string]State{}}
	signed, wrong := b.SignedBy(keys)
	made, unbound := b.Made(c, keys)
	row.Signature, row.Made, row.Problems = signed, made, slices.Concat(differences, wrong, unbound)
	for _, r := range c.Results {
		switch {
		case r.Granted:
			row.Levels[string(r.Level)] = Granted
		case r.Reviews == 0:
			row.Levels[string(r.Level)] = NotJudged
		default:
			row.Levels[string(r.Level)] = NotGranted
		}
	}
	if len(row.Problems) > 0 {
		row.Levels = nil
	}
	for i, p := range row.Problems {
		if r := []rune(p); len(r) > maxProblem {
			row.Problems[i] = string(r[:maxProblem]) + "…"
		}
	}
	return row
}

// State is what is known of a level of a row.
type State string

// The states. A level that nobody could judge is never shown as granted.
const (
	Granted    State = "granted"
	NotGranted State = "not granted"
	NotJudged  State = "not judged"
)

// Row is one bundle.
type Row struct {
	*Certification
	// Levels has the state of each level that the page knows.
	Levels map[string]State
	// Problems say why the bundle cannot be believed; with none it was judged again and holds.
	Problems  []string
	Signature string // shown as it is
	// Made says who made it, as far as that is known.
	Made string
	// Path leads from the page to the bundle.
	Path string
}

// Page is a page of bundles.
type Page struct {
	Levels  []string // the columns
	Rows    []Row
	Version string // that of the harness which judged
}

var (
	//go:embed page.html.tmpl
	pageTemplate string
	//go:embed report.html.tmpl
	reportTemplate string
	//go:embed page.css
	pageStyle string

	pageFuncs = template.FuncMap{
		"style":   func() template.CSS { return template.CSS(pageStyle) },
		"short":   func(s string) string { return s[:min(len(s), 12)] },
		"day":     func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
		"path":    func(path string) string { return (&url.URL{Path: "./" + path}).EscapedPath() }, // a relative link
		"contact": contact,
		"symbol":  func(s State) string { return map[State]string{Granted: "✓", NotGranted: "✗"}[s] },
		"state":   func(states map[string]State, level string) State { return cmp.Or(states[level], NotJudged) },
		"class":   func(s State) string { return strings.ReplaceAll(string(s), " ", "-") },
		"why":     policy.Why,
	}
	manyPage = template.Must(template.New("page").Funcs(pageFuncs).Parse(pageTemplate))
	onePage  = template.Must(template.New("report").Funcs(pageFuncs).Parse(reportTemplate))
)

// HTML is the certification as a page, one file without anything to fetch.
func (c *Certification) HTML() ([]byte, error) {
	var out bytes.Buffer
	err := onePage.Execute(&out, c)
	return out.Bytes(), err
}

//go:embed summary.md.tmpl
var summaryTemplate string

var summary = texttemplate.Must(texttemplate.New("summary").Funcs(pageFuncs).Funcs(texttemplate.FuncMap{
	"join": strings.Join,
	// What a vendor calls it is text, whatever Markdown makes of it.
	"md":       strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;", "&", "&amp;", "|", `\|`, "!", `\!`).Replace,
	"indented": strings.NewReplacer("\n", "\n    ", "\r", " ").Replace,
}).Parse(summaryTemplate))

// Summary is the certification for a person, in Markdown.
func (c *Certification) Summary() ([]byte, error) {
	var out bytes.Buffer
	err := summary.Execute(&out, c)
	return out.Bytes(), err
}

// HTML is the page, one file without anything to fetch. Rows are sorted by vendor, product and date, the newest first.
func (p Page) HTML() ([]byte, error) {
	p.Rows = slices.Clone(p.Rows)
	slices.SortStableFunc(p.Rows, func(x, y Row) int {
		return cmp.Or(strings.Compare(strings.ToLower(x.Vendor), strings.ToLower(y.Vendor)), strings.Compare(x.Name, y.Name), y.Started.Compare(x.Started), strings.Compare(x.Path, y.Path))
	})
	var out bytes.Buffer
	err := manyPage.Execute(&out, p)
	return out.Bytes(), err
}

// Believed counts the rows that hold.
func (p Page) Believed() (n int) {
	return seq.Count(p.Rows, func(r Row) bool { return len(r.Problems) == 0 })
}

func contact(s string) string {
	if strings.HasPrefix(s, "https://") {
		return s
	}
	return "mailto:" + s
}
