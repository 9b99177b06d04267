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

// source is one parsed file: the tree, for positions, and what was found wrong.
type source struct {
	file string
	root *yaml.Node
	errs Errors
	// lenient is about numbers and true and false where text is expected: they are read as they are written.
	lenient bool
	// ranges is about lists of texts: an item such as "team-{001..501}" stands for many.
	ranges bool
	// noted are the fields that say too much or too little. They are taken.
	noted Errors
	// broken are the nodes that could not be decoded. Rules about what is in them would only repeat the error.
	broken []*yaml.Node
}

type position struct{ line, col int }

func (s *source) fail(at position, format string, args ...any) {
	s.errs = append(s.errs, s.at(at, format, args...))
}

func (s *source) at(at position, format string, args ...any) *Error {
	return &Error{File: s.file, Line: at.line, Col: at.col, Msg: fmt.Sprintf(format, args...)}
}

// failAt records a violation at the node that path, of field names and list indices, leads to, or the nearest above it.
func (s *source) failAt(path []any, format string, args ...any) {
	n, _ := find(s.root, path)
	s.fail(posOf(n), format, args...)
}

// noteAt notes that the field at the path says too much or too little.
func (s *source) noteAt(path []any, format string, args ...any) {
	n, _ := find(s.root, path)
	s.noted = append(s.noted, s.at(posOf(n), format, args...))
}

// breakAt records a violation at a node and that the node was not decoded.
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

// parseYAML parses a file into its documents' trees. Empty documents are nil, so that a caller can count them.
func parseYAML(file string, raw []byte) (docs []*yaml.Node, wrong *Error) {
	if len(raw) > maxFileSize {
		return nil, &Error{File: file, Line: 1, Col: 1, Msg: "cannot be read: it is larger than 1 MiB (expected a few KB)"}
	}
	docs, problem := documents(raw)
	if problem == "" {
		return docs, nil
	}
	// The library says where that begins which is wrong, and no column. What is shorter than the error has another one.
	before := raw[:sort.Search(len(raw)-1, func(i int) bool {
		_, shorter := documents(raw[:i+1])
		return shorter == problem
	})]
	return nil, &Error{
		File: file, Line: 1 + bytes.Count(before, []byte("\n")), Col: 1 + utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):]),
		Msg: "cannot be parsed: " + problem + " (expected YAML)",
	}
}

// lineOf is how an error of the library begins.
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

// find follows a path and returns the deepest node it reaches, and whether that is the path's end.
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

// Error is one violation of the format, with the place it was found at.
type Error struct {
	File string // the path below the folder that was loaded
	// Line and Col count from 1. Both are 0 where the error is about a whole folder.
	Line, Col int
	Msg       string // what is wrong, followed by what was expected in parentheses
}

// Error implements error, as editors link it: "path/to/file.yaml:LINE:COL: what is wrong (what was expected)".
func (e *Error) Error() string { return e.Place() + ": " + e.Msg }

// Place returns "path/to/file.yaml:LINE:COL", or the path alone.
func (e *Error) Place() string {
	if e.Line == 0 {
		return e.File
	}
	return fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Col)
}

// Errors is every violation in a set of files, ordered by file, line and column. A load does not stop at the first.
type Errors []*Error

// Error implements error, one violation a line.
func (e Errors) Error() string { return strings.Join(seq.Map(e, (*Error).Error), "\n") }

// Unwrap gives errors.Is and errors.As access to the single violations.
func (e Errors) Unwrap() []error { return seq.Map(e, func(err *Error) error { return err }) }

// orNil sorts the errors and returns a nil error if there are none; a nil Errors in an error variable would not be nil.
func (e Errors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return e
}

// Document is the one document of a YAML file that people write for authzconf, which knows where its parts are.
type Document struct{ src *source }

// Decode reads the one YAML document in data into v, as strictly as a scenario: the error, of type Errors, has all that
// is wrong, with file, line, column and what was expected. name is the file's, what says what it is, as "an upgrade
// path". Other than in scenarios a number, true and false are text where text is expected, as in kubernetes: 1.37, and values
// may be named (&name) and used again (*name).
func Decode(name string, data []byte, what string, v any) (*Document, error) {
	s := &source{file: name, lenient: true}
	if s.parseOne(data, what) {
		resolve(s.root, false)
		s.decode(s.root, reflect.ValueOf(v).Elem(), "the "+cutArticle(what))
	}
	return &Document{s}, s.errs.orNil()
}

// DecodeKind does what Decode does for a file that says its version and kind; an empty version is that of a format without one.
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

// resolve puts what an alias stands for in its place; there are no aliases in it, so that a file cannot grow without end.
func resolve(n *yaml.Node, named bool) {
	for i, item := range n.Content {
		if item.Kind == yaml.AliasNode && !named {
			n.Content[i] = item.Alias
			continue
		}
		resolve(item, named || item.Anchor != "")
		item.Anchor = ""
	}
}

var pathStep = regexp.MustCompile(`\.([^.\[]+)|\[(\d+)\]`)

// At returns "file:line:column" of a path such as $.stages[1].gate, or of its nearest parent that is in the file.
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
		n = n.Content[0] // its first key, within braces too
	}
	return d.src.at(posOf(n), "").Place()
}
