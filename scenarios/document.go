package scenarios

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

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

// Renamed are the fields of the file that have their old name. It is read for one release.
func (d *Document) Renamed() Errors { return d.src.renamed }
