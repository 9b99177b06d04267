package mutants

import (
	"bytes"
	"cmp"
	_ "embed" // the helpers
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// Small wrong changes, mutants, are derived from the syntax tree of a package, and all of them are written into one
// program in which a number chooses one (mutant schemata). Deriving is pure: it reads syntax trees and writes source.
//
// Every change is made by insertions alone: a piece of source is wrapped in a call, or in a condition, that does
// nothing unless its mutant is the chosen one. So changes nest, and with number 0 the program is the original.

// HelperName is what the mutated source calls the package of helpers.
const HelperName = "zzmutants"

// SharedVariable names the environment variable with the path of a file that the program shares with whoever
// started it: SharedHeader bytes with the number of the chosen mutant, in little-endian order, which may change at
// any time; and a byte for each number from 0, which the program sets to 1 when it reaches the place of that mutant's
// change. Without it no mutant is chosen.
const SharedVariable = "AUTHZCONF_MUTANTS_SHARED"

// SharedHeader is the length of the number in the shared file.
const SharedHeader = 4

// Helpers is the source of the package that the mutated source imports.
//
//go:embed helpers.txt
var Helpers string

// Mutant is an API server with one small wrong change in it.
type Mutant struct {
	// Number chooses the mutant in the program; it depends on all of the source.
	Number int `json:"number"`
	// Key names the mutant as long as its function is not changed: file:function:operator:ordinal.
	Key string `json:"key"`
	// Part is the part of the program that it is in.
	Part string `json:"part,omitempty"`
	// File is the file's name, as it was given; Line is the line in it.
	File string `json:"file"`
	Line int    `json:"line"`
	// Function is the function or method, or "(package)".
	Function string `json:"function"`
	// Operator is the kind of change.
	Operator string `json:"operator"`
	// Snippet is the source that is changed, on one line, and Change says how.
	Snippet string `json:"snippet"`
	Change  string `json:"change"`
}

// Source is one file of a package.
type Source struct {
	// Name is unique among all sources; Part is what its mutants are counted as.
	Name, Part string
	// Text is what Tree was parsed from, with comments.
	Text []byte
	Tree *ast.File
	// Info is what the type checker found out about the package.
	Info *types.Info
	Pkg  *types.Package
	// Functions are the functions and methods that are changed, by name or as Type.method; empty is all of the file.
	// LeaveOut are some that are not.
	Functions, LeaveOut []string
	// Within, if given, leaves all alone but the statements of a function's body with this text.
	Within string
}

// Options say what to leave alone.
type Options struct {
	// HelperPath is the import path under which Helpers will be found.
	HelperPath string
	// Quiet are calls that only write to a log: the call is removed, but nothing within it is changed. Each is the
	// beginning of a call's source.
	Quiet []string
	// Prose are fields of composite literals that only describe something to people, and are left alone.
	Prose []string
}

// Derive finds all mutants of the sources and returns the sources' new texts by name. The sources have to be in a
// fixed order.
func Derive(fset *token.FileSet, sources []Source, o Options) ([]Mutant, map[string][]byte, error) {
	var all []Mutant
	texts := map[string][]byte{}
	for _, s := range sources {
		d := &deriver{Source: s, fset: fset, options: o, ordinals: map[string]int{}, next: len(all) + 1}
		d.file()
		if d.err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.Name, d.err)
		}
		texts[s.Name] = d.render()
		all = append(all, d.mutants...)
	}
	return all, texts, nil
}

// deriver walks one file.
type deriver struct {
	Source
	fset    *token.FileSet
	options Options

	mutants  []Mutant
	ordinals map[string]int // by function and operator
	next     int
	err      error

	function string
	results  []*types.Tuple // of the functions around the node, innermost last
	parents  []ast.Node
	at       token.Pos // of the visited node
	wraps    []wrap
	vars     []token.Pos // const declarations that have to become var
}

// add notes a mutant that changes node and returns its number.
func (d *deriver) add(operator string, node ast.Node, change string) int {
	n := d.next
	d.next++
	family := d.function + ":" + operator
	d.ordinals[family]++
	d.mutants = append(d.mutants, Mutant{
		Number: n, Part: d.Part, Key: fmt.Sprintf("%s:%s:%d", d.Name, family, d.ordinals[family]),
		File: d.Name, Line: d.fset.Position(node.Pos()).Line, Function: d.function,
		Operator: operator, Snippet: shorten(d.source(node)), Change: change,
	})
	return n
}

// source is the text of a node.
func (d *deriver) source(node ast.Node) string {
	return string(d.Text[d.offset(node.Pos()):d.offset(node.End())])
}

func (d *deriver) offset(p token.Pos) int { return d.fset.Position(p).Offset }

// snippetLimit is how much of a changed piece is shown.
const snippetLimit = 100

func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > snippetLimit {
		return string(runes[:snippetLimit]) + "…"
	}
	return text
}

// quiet says whether a call only writes to a log.
func (d *deriver) quiet(call *ast.CallExpr) bool {
	text := d.source(call.Fun)
	return slices.ContainsFunc(d.options.Quiet, func(q string) bool { return strings.HasPrefix(text, q) })
}

// typeName is how a type is written in this file; ok is false if it cannot be.
func (d *deriver) typeName(t types.Type) (name string, ok bool) {
	if t == nil {
		return "", false
	}
	ok = true
	name = types.TypeString(types.Default(t), func(p *types.Package) string {
		if p == d.Pkg {
			return ""
		}
		for _, imp := range d.Tree.Imports {
			if strings.Trim(imp.Path.Value, `"`) != p.Path() {
				continue
			}
			name := p.Name()
			if imp.Name != nil {
				name = imp.Name.Name
			}
			ok = ok && !d.shadowed(name)
			return name
		}
		ok = false
		return p.Name()
	})
	return name, ok && !strings.Contains(name, "untyped")
}

// shadowed says whether the name of an import means something else here.
func (d *deriver) shadowed(name string) bool {
	scope := d.Pkg.Scope().Innermost(d.at)
	if scope == nil {
		return false
	}
	_, object := scope.LookupParent(name, d.at)
	_, imported := object.(*types.PkgName)
	return object != nil && !imported
}

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
	return splice(text, all)
}

// splice puts insertions into a text; those at one offset stay in their order.
func splice(text []byte, all []insertion) []byte {
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
