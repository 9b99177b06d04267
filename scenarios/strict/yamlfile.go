// Package strict reads the small strict files that people write for authzconf: an unknown field or a wrong type is
// an error with file, line and column. Scenarios have a decoder of their own, which reports all that is wrong at
// once.
package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// sizeLimit is the size up to which a file is read: a larger one is not written by hand.
const sizeLimit = 1 << 20

// lineLimit is how many lines are read: the library takes a time that grows with the square of the empty lines in
// a block of text (goccy/go-yaml v1.19.2, 20 s for 50,000).
const lineLimit = 10_000

// File is a decoded file, which knows where its parts are.
type File struct {
	name string
	root ast.Node
}

// Decode reads the one YAML document in data into v. name is for messages.
func Decode(name string, data []byte, v any) (_ *File, err error) {
	// The library panics at some texts that are not YAML, such as a tag with two values (goccy/go-yaml v1.19.2).
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: cannot be read as YAML", name)
		}
	}()
	if len(data) > sizeLimit {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, sizeLimit)
	}
	count := func(end string) int { return bytes.Count(data, []byte(end)) }
	if count("\n")+count("\r")-count("\r\n") > lineLimit {
		return nil, fmt.Errorf("%s: more than %d lines", name, lineLimit)
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, located(name, err)
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil, fmt.Errorf("%s: must hold one YAML document", name)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := dec.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return nil, located(name, err)
	}
	return &File{name: name, root: file.Docs[0].Body}, nil
}

// At is "file:line:column" of a path such as $.stages[1].gate, or of its nearest parent that is in the file.
func (f *File) At(path string) string {
	for path != "$" && path != "" {
		if p, err := yaml.PathString(path); err == nil {
			if n, err := p.FilterNode(f.root); err == nil && n != nil && n.GetToken() != nil && n.GetToken().Position != nil {
				line, column := begin(n)
				return fmt.Sprintf("%s:%d:%d", f.name, line, column)
			}
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return f.name
}

// located puts file, line and column before a decoding error.
func located(name string, err error) error {
	var ye yaml.Error
	if errors.As(err, &ye) && ye.GetToken() != nil && ye.GetToken().Position != nil {
		p := ye.GetToken().Position
		// What it quotes from the file may go over several lines.
		return fmt.Errorf("%s:%d:%d: %s", name, p.Line, p.Column, strings.ReplaceAll(ye.GetMessage(), "\n", `\n`))
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("%s: %s", name, first)
}

// begin is where a node begins: the token of a mapping is its first colon, so its first key is looked up.
func begin(n ast.Node) (line, column int) {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return begin(m.Values[0].Key)
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		return begin(m.Key)
	}
	p := n.GetToken().Position
	return p.Line, p.Column
}
