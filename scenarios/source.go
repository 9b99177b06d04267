package scenarios

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/authzconf/authzconf/internal/seq"
)

// source is one parsed file: the tree, for positions, and the errors that were found.
type source struct {
	file string
	root *yaml.Node
	errs Errors
	// lenient means that numbers, true and false are accepted where text is expected. They are read as they are
	// written.
	lenient bool
	// ranges means that an item in a list of texts, such as "team-{001..501}", may stand for many.
	ranges bool
	// noted are the fields that say too much or too little. They are accepted.
	noted Errors
	// broken are the nodes that could not be decoded. Rules about their content would only repeat the error.
	broken []*yaml.Node
}

type position struct{ line, col int }

func (s *source) fail(at position, format string, args ...any) {
	s.errs = append(s.errs, s.at(at, format, args...))
}

func (s *source) at(at position, format string, args ...any) *Error {
	return &Error{File: s.file, Line: at.line, Col: at.col, Msg: fmt.Sprintf(format, args...)}
}

// failAt records a violation at the node at a path of field names and list indices, or at its nearest parent.
func (s *source) failAt(path []any, format string, args ...any) {
	n, _ := find(s.root, path)
	s.fail(posOf(n), format, args...)
}

// noteAt notes that the field at the path says too much or too little.
func (s *source) noteAt(path []any, format string, args ...any) {
	n, _ := find(s.root, path)
	s.noted = append(s.noted, s.at(posOf(n), format, args...))
}

// breakAt records a violation at a node, and that the node was not decoded.
func (s *source) breakAt(n *yaml.Node, format string, args ...any) {
	s.broken = append(s.broken, n)
	s.fail(posOf(n), format, args...)
}

// has reports whether the file has a node at the path.
func (s *source) has(path []any) bool {
	_, found := find(s.root, path)
	return found
}

// failedAt reports whether the node at the path, or one below it, could not be decoded.
func (s *source) failedAt(path []any) bool {
	if len(s.broken) == 0 {
		return false
	}
	n, found := find(s.root, path)
	return found && s.holdsBroken(n)
}

func (s *source) holdsBroken(n *yaml.Node) bool {
	return slices.Contains(s.broken, n) || slices.ContainsFunc(n.Content, s.holdsBroken)
}

// parseYAML parses a file into the trees of its documents. Empty documents are nil, so that a caller can count them.
func parseYAML(file string, raw []byte) (docs []*yaml.Node, wrong *Error) {
	if len(raw) > maxFileSize {
		return nil, &Error{File: file, Line: 1, Col: 1, Msg: "cannot be read: it is larger than 1 MiB (expected a few KB)"}
	}
	docs, problem := documents(raw)
	if problem == "" {
		return docs, nil
	}
	// The library names the line, and no column. The error is where the shortest text that fails with this error ends.
	before := raw[:sort.Search(len(raw)-1, func(i int) bool {
		_, shorter := documents(raw[:i+1])
		return shorter == problem
	})]
	return nil, &Error{
		File: file, Line: 1 + bytes.Count(before, []byte("\n")), Col: 1 + utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):]),
		Msg: "cannot be parsed: " + problem + " (expected YAML)",
	}
}

// lineOf matches the beginning of an error of the library.
var lineOf = regexp.MustCompile(`^yaml: (line \d+: )?`)

func documents(raw []byte) (docs []*yaml.Node, problem string) {
	for decoder := yaml.NewDecoder(bytes.NewReader(raw)); ; {
		var doc yaml.Node
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return docs, ""
		case err != nil:
			return nil, lineOf.ReplaceAllString(err.Error(), "")
		case doc.Content[0].ShortTag() == nullTag:
			docs = append(docs, nil)
		default:
			docs = append(docs, doc.Content[0])
		}
	}
}

func posOf(n *yaml.Node) position {
	if n == nil {
		return position{1, 1}
	}
	return position{n.Line, n.Column}
}

type pair struct{ key, value *yaml.Node }

func pairs(n *yaml.Node) (list []pair, ok bool) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, false
	}
	for kv := range slices.Chunk(n.Content, 2) {
		list = append(list, pair{kv[0], kv[1]})
	}
	return list, true
}

// find follows a path. It returns the deepest node that it reaches, and whether that is the end of the path.
func find(n *yaml.Node, path []any) (*yaml.Node, bool) {
	for _, step := range path {
		var next *yaml.Node
		switch key := step.(type) {
		case string:
			kvs, _ := pairs(n)
			if i := slices.IndexFunc(kvs, func(kv pair) bool { name, ok := stringOf(kv.key); return ok && name == key }); i >= 0 {
				next = kvs[i].value
			}
		case int:
			if n != nil && n.Kind == yaml.SequenceNode && key < len(n.Content) {
				next = n.Content[key]
			}
		}
		if next == nil {
			return n, false
		}
		n = next
	}
	return n, true
}

// Error is one violation of the format, with its place.
type Error struct {
	File string // the path below the folder that was loaded
	// Line and Col count from 1. Both are 0 if the error is about a whole folder.
	Line, Col int
	Msg       string // what is wrong, followed by what was expected in parentheses
}

// Error implements error. The text has a form that editors can link: "path/to/file.yaml:LINE:COL: what is wrong (what
// was expected)".
func (e *Error) Error() string { return e.Place() + ": " + e.Msg }

// Place returns "path/to/file.yaml:LINE:COL", or only the path.
func (e *Error) Place() string {
	if e.Line == 0 {
		return e.File
	}
	return fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Col)
}

// Errors are all violations in a set of files, ordered by file, line and column. Loading does not stop at the first.
type Errors []*Error

// Error implements error. Each violation has a line.
func (e Errors) Error() string { return strings.Join(seq.Map(e, (*Error).Error), "\n") }

// Unwrap gives errors.Is and errors.As access to the single violations.
func (e Errors) Unwrap() []error { return seq.Map(e, func(err *Error) error { return err }) }

// orNil sorts the errors, and returns a nil error if there are none. A nil Errors in a variable of type error would not
// be nil.
func (e Errors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return e
}

// Document is the only document of a YAML file that people write for authzconf. It knows the places of its parts.
type Document struct{ src *source }

// Decode reads the only YAML document in data into v, as strictly as a scenario. The error, of type Errors, has
// everything that is wrong, with file, line, column and what was expected. name is the name of the file, and what says
// what it is, such as "an upgrade path". Unlike in scenarios, numbers, true and false are accepted where text is
// expected, as in kubernetes: 1.37, and YAML anchors (&name) and aliases (*name) may be used.
func Decode(name string, data []byte, what string, v any) (*Document, error) {
	s := &source{file: name, lenient: true}
	if s.parseOne(data, what) {
		resolve(s.root, false)
		s.decode(s.root, reflect.ValueOf(v).Elem(), "the "+cutArticle(what))
	}
	return &Document{s}, s.errs.orNil()
}

// DecodeKind does the same as Decode for a file that states its version and kind. An empty version is for a format
// without one.
func DecodeKind(name string, data []byte, what, apiVersion, kind string, v any) (*Document, error) {
	doc, err := Decode(name, data, what, v)
	for _, field := range [][2]string{{"apiVersion", apiVersion}, {"kind", kind}} {
		if err != nil {
			break
		}
		n, _ := find(doc.src.root, []any{field[0]})
		if got, _ := stringOf(n); field[1] != "" && got != field[1] {
			err = fmt.Errorf("%s: %s must be %s, not %q", doc.At("$."+field[0]), field[0], field[1], got)
		}
	}
	return doc, err
}

// resolve replaces aliases by what they stand for. That may not contain aliases itself, so that a file cannot grow
// without end.
func resolve(n *yaml.Node, isNamed bool) {
	for i, item := range n.Content {
		if item.Kind == yaml.AliasNode && !isNamed {
			n.Content[i] = item.Alias
			continue
		}
		resolve(item, isNamed || item.Anchor != "")
		item.Anchor = ""
	}
}

var pathStep = regexp.MustCompile(`\.([^.\[]+)|\[(\d+)\]`)

// At returns "file:line:column" of a path such as $.stages[1].gate, or of its nearest parent in the file.
func (d *Document) At(path string) string {
	var steps []any
	for _, m := range pathStep.FindAllStringSubmatch(path, -1) {
		if i, err := strconv.Atoi(m[2]); err == nil {
			steps = append(steps, i)
		} else {
			steps = append(steps, m[1])
		}
	}
	n, _ := find(d.src.root, steps)
	if n == d.src.root {
		return d.src.file
	}
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
		n = n.Content[0] // the first key, even within braces
	}
	return d.src.at(posOf(n), "").Place()
}
