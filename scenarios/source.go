package scenarios

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// source is one parsed file: the tree, for positions, and what was found wrong.
type source struct {
	file string
	root ast.Node
	errs Errors
	// lenient is about numbers and true and false where text is expected: they are read as they are written.
	lenient bool
	// noted are the fields that say too much or too little. They are taken.
	noted Errors
	// broken are the nodes that could not be decoded. Rules about what is in them would only repeat the error in
	// other words.
	broken []ast.Node
}

// position is a place in a file, counted from 1.
type position struct{ line, col int }

// fail records a violation at a position.
func (s *source) fail(at position, format string, args ...any) {
	s.errs = append(s.errs, s.at(at, format, args...))
}

// at is an error at a position.
func (s *source) at(at position, format string, args ...any) *Error {
	return &Error{File: s.file, Line: at.line, Col: at.col, Msg: fmt.Sprintf(format, args...)}
}

// failAt records a violation at the node that path leads to, or at the nearest node above it that exists. Path
// elements are field names and list indices.
func (s *source) failAt(path []any, format string, args ...any) {
	n, _ := find(s.root, path)
	s.fail(posOf(n), format, args...)
}

// breakAt records a violation at a node and that the node was not decoded.
func (s *source) breakAt(n ast.Node, format string, args ...any) {
	s.broken = append(s.broken, n)
	s.fail(posOf(n), format, args...)
}

// has tells whether the file has a node at the path.
func (s *source) has(path []any) bool {
	_, found := find(s.root, path)
	return found
}

// failedAt tells whether the node at the path, or one below it, could not be decoded.
func (s *source) failedAt(path []any) bool {
	if len(s.broken) == 0 {
		return false
	}
	n, found := find(s.root, path)
	return found && s.holdsBroken(n)
}

func (s *source) holdsBroken(n ast.Node) bool {
	if slices.Contains(s.broken, n) {
		return true
	}
	if kvs, ok := pairs(n); ok {
		return slices.ContainsFunc(kvs, func(kv *ast.MappingValueNode) bool { return s.holdsBroken(kv.Value) })
	}
	if seq, ok := n.(*ast.SequenceNode); ok {
		return slices.ContainsFunc(seq.Values, s.holdsBroken)
	}
	return false
}

// maxLines is how many lines are read: the library takes a time that grows with the square of the empty lines in a
// block of text (goccy/go-yaml v1.19.2, 20 s for 50,000).
const maxLines = 10_000

// parseYAML parses a file into its documents' trees. Documents that hold nothing are kept as nil, so that a caller
// can count them.
func parseYAML(file string, raw []byte) (docs []ast.Node, wrong *Error) {
	cannot := func(why string) *Error { return &Error{File: file, Line: 1, Col: 1, Msg: "cannot be read: " + why} }
	// The library panics at some texts that are not YAML, such as a tag with two values (goccy/go-yaml v1.19.2).
	defer func() {
		if recover() != nil {
			wrong = cannot("it breaks the parser (expected YAML)")
		}
	}()
	if len(raw) > maxFileSize {
		return nil, cannot("it is larger than 1 MiB (expected a few KB)")
	}
	count := func(end string) int { return bytes.Count(raw, []byte(end)) }
	if count("\n")+count("\r")-count("\r\n") > maxLines {
		return nil, cannot(fmt.Sprintf("it has more than %d lines (expected a few hundred)", maxLines))
	}
	// Duplicate keys are reported by the decoder: it finds all of them, the parser would stop at the first.
	parsed, err := parser.ParseBytes(raw, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		e := &Error{File: file, Line: 1, Col: 1, Msg: err.Error()}
		var ye yaml.Error
		if errors.As(err, &ye) {
			e.Msg = ye.GetMessage()
			if tk := ye.GetToken(); tk != nil && tk.Position != nil {
				e.Line, e.Col = max(1, tk.Position.Line), max(1, tk.Position.Column)
			}
		}
		e.Msg = "cannot be parsed: " + e.Msg + " (expected YAML)"
		return nil, e
	}
	for _, d := range parsed.Docs {
		switch d.Body.(type) {
		case *ast.DirectiveNode: // "%YAML 1.2" is parsed as a document of its own
		case *ast.NullNode, *ast.CommentGroupNode:
			docs = append(docs, nil)
		default:
			docs = append(docs, d.Body)
		}
	}
	return docs, nil
}

// posOf is where a node begins. The token of a block mapping is its first colon, so its first key is taken.
func posOf(n ast.Node) position {
	switch t := n.(type) {
	case nil:
		return position{1, 1}
	case *ast.MappingNode:
		if !t.IsFlowStyle && len(t.Values) > 0 {
			return posOf(t.Values[0])
		}
	case *ast.MappingValueNode:
		return posOf(t.Key)
	}
	tk := n.GetToken()
	if tk == nil || tk.Position == nil {
		return position{1, 1}
	}
	return position{max(1, tk.Position.Line), max(1, tk.Position.Column)}
}

// pairs returns the key-value pairs of a mapping.
func pairs(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch t := n.(type) {
	case *ast.MappingNode:
		return t.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{t}, true
	}
	return nil, false
}

// find follows a path and returns the deepest node it reaches, and whether that is the path's end.
func find(n ast.Node, path []any) (ast.Node, bool) {
	for _, step := range path {
		var next ast.Node
		switch key := step.(type) {
		case string:
			kvs, _ := pairs(n)
			for _, kv := range kvs {
				if name, ok := keyName(kv.Key); ok && name == key {
					next = kv.Value
					break
				}
			}
		case int:
			if seq, ok := n.(*ast.SequenceNode); ok && key < len(seq.Values) {
				next = seq.Values[key]
			}
		}
		if next == nil {
			return n, false
		}
		n = next
	}
	return n, true
}

// keyName is the text of a mapping key, if it is a plain or quoted string.
func keyName(k ast.MapKeyNode) (string, bool) {
	s, ok := k.(*ast.StringNode)
	if !ok {
		return "", false
	}
	return s.Value, true
}

// Error is one violation of the format, with the place it was found at.
type Error struct {
	// File is the path below the folder that was loaded.
	File string
	// Line and Col count from 1. Both are 0 where the error is about a whole folder.
	Line, Col int
	// Msg is what is wrong, followed by what was expected in parentheses.
	Msg string
}

// Error implements error, in the form that editors and terminals link: "path/to/file.yaml:LINE:COL: what is wrong
// (what was expected)".
func (e *Error) Error() string {
	return e.Place() + ": " + e.Msg
}

// Place is "path/to/file.yaml:LINE:COL", or the path alone.
func (e *Error) Place() string {
	if e.Line == 0 {
		return e.File
	}
	return fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Col)
}

// Errors is every violation found in a set of files, ordered by file, line and column. A load does not stop at the
// first one.
type Errors []*Error

// Error implements error, one violation a line.
func (e Errors) Error() string {
	return strings.Join(Each(e, (*Error).Error), "\n")
}

// Unwrap gives errors.Is and errors.As access to the single violations.
func (e Errors) Unwrap() []error {
	return Each(e, func(err *Error) error { return err })
}

// orNil sorts the errors and returns a nil error if there are none; a nil Errors in an error variable would not be
// nil.
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
		s.root = resolve(s.root, map[string]ast.Node{})
		s.decode(s.root, reflect.ValueOf(v).Elem(), "the "+noun(what))
	}
	return &Document{s}, s.errs.orNil()
}

// DecodeKind is Decode of a file that says of which version and kind it is; an empty version is that of a format
// without one.
func DecodeKind(name string, data []byte, what, apiVersion, kind string, v any) (*Document, error) {
	doc, err := Decode(name, data, what, v)
	for _, field := range [][2]string{{"apiVersion", apiVersion}, {"kind", kind}} {
		n, _ := find(doc.src.root, []any{field[0]})
		if got, _ := stringOf(n); err == nil && field[1] != "" && got != field[1] {
			err = fmt.Errorf("%s: %s must be %s, not %q", doc.At("$."+field[0]), field[0], field[1], got)
		}
	}
	return doc, err
}

// resolve puts what an alias stands for in its place. What is named has no aliases itself, so that a file cannot grow
// without end.
func resolve(n ast.Node, named map[string]ast.Node) ast.Node {
	switch t := n.(type) {
	case *ast.AnchorNode:
		named[t.Name.String()] = t.Value
		return t.Value
	case *ast.AliasNode:
		if value, ok := named[t.Value.String()]; ok {
			return value
		}
	case *ast.SequenceNode:
		for i, item := range t.Values {
			t.Values[i] = resolve(item, named)
		}
	}
	kvs, _ := pairs(n)
	for _, kv := range kvs {
		kv.Value = resolve(kv.Value, named)
	}
	return n
}

var pathStep = regexp.MustCompile(`\.([^.\[]+)|\[(\d+)\]`)

// At is "file:line:column" of a path such as $.stages[1].gate, or of its nearest parent that is in the file.
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
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		n = m.Values[0] // its first key, within braces too
	}
	return d.src.at(posOf(n), "").Place()
}
