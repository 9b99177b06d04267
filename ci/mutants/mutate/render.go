package mutate

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
)

// wrap puts open before and close behind a piece of source. Pieces are nodes of the syntax tree or bodies of them,
// so two of them nest or are apart.
type wrap struct {
	start, end  int // offsets
	open, close string
	outer       int // among equal pieces, the greater one is outside
}

// Levels of wraps: a statement that is one call is as long as the call.
const (
	levelExpr = iota
	levelStmt
)

func (d *deriver) wrapExpr(node ast.Node, before, after string) {
	d.wraps = append(d.wraps, wrap{d.offset(node.Pos()), d.offset(node.End()), before, after, levelExpr})
}

func (d *deriver) wrapStmt(node ast.Node, before, after string) {
	d.wraps = append(d.wraps, wrap{d.offset(node.Pos()), d.offset(node.End()), before, after, levelStmt})
}

// wrapBody puts before behind the body's opening brace and after before the closing one.
func (d *deriver) wrapBody(body *ast.BlockStmt, before, after string) {
	d.wraps = append(d.wraps, wrap{d.offset(body.Lbrace) + 1, d.offset(body.Rbrace), before, after, levelStmt})
}

// insertion is a text at an offset of the source.
type insertion struct {
	at   int
	text string
}

// render writes the source with all wraps, the import of the helpers, and const declarations turned into var where
// a value of theirs is mutated.
func (d *deriver) render() []byte {
	if len(d.mutants) == 0 {
		return d.Text
	}
	text := bytes.Clone(d.Text)
	for _, pos := range d.vars {
		copy(text[d.offset(pos):], token.VAR.String()+"  ")
	}
	all := []insertion{{d.offset(d.Tree.Name.End()), fmt.Sprintf("\n\nimport %s %q\n", HelperName, d.options.HelperPath)}}
	all = append(all, d.insertions()...)
	slices.SortStableFunc(all, func(a, b insertion) int { return cmp.Compare(a.at, b.at) })
	var out bytes.Buffer
	last := 0
	for _, in := range all {
		out.Write(text[last:in.at])
		out.WriteString(in.text)
		last = in.at
	}
	out.Write(text[last:])
	return out.Bytes()
}

// insertions are the wraps' texts such that, at one offset, they stand in the right order: what closes before what
// opens, the inner closes first, the outer opens first.
func (d *deriver) insertions() []insertion {
	var out []insertion
	wraps := slices.Clone(d.wraps)
	slices.SortStableFunc(wraps, func(a, b wrap) int {
		return cmp.Or(cmp.Compare(b.start, a.start), cmp.Compare(a.end, b.end), cmp.Compare(a.outer, b.outer))
	})
	for _, w := range wraps {
		out = append(out, insertion{w.end, w.close})
	}
	slices.Reverse(wraps)
	for _, w := range wraps {
		out = append(out, insertion{w.start, w.open})
	}
	return out
}
