package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/parser"

	"github.com/authzconf/authzconf/conditional/vectors"
)

// environments are what expressions are compiled in.
type environments struct {
	// whole has all variables, rest those of the second phase.
	whole, rest *cel.Env
	// plain only parses, and leaves macros as they are written.
	plain *cel.Env
	// nothing has every variable of the second phase unknown.
	nothing cel.PartialActivation
}

var environment = sync.OnceValues(func() (*environments, error) {
	vars := []cel.EnvOption{cel.EnableMacroCallTracking()} // else residuals with macros cannot be written down
	var patterns []*cel.AttributePatternType
	for _, name := range vectors.LateVariables() {
		vars = append(vars, cel.Variable(name, cel.DynType))
		patterns = append(patterns, cel.AttributePattern(name))
	}
	rest, err := cel.NewEnv(vars...)
	if err != nil {
		return nil, err
	}
	whole, err := rest.Extend(cel.Variable(vectors.RequestVariable, cel.DynType))
	if err != nil {
		return nil, err
	}
	plain, err := cel.NewEnv(cel.ClearMacros())
	if err != nil {
		return nil, err
	}
	nothing, err := cel.PartialVars(map[string]any{}, patterns...)
	if err != nil {
		return nil, err
	}
	return &environments{whole: whole, rest: rest, plain: plain, nothing: nothing}, nil
})

// compiled is an expression that gives a boolean, or whose type only the data shows.
func compiled(env *cel.Env, text string, opts ...cel.ProgramOption) (*cel.Ast, cel.Program, error) {
	tree, issues := env.Compile(text)
	if issues.Err() != nil {
		first, _, _ := strings.Cut(issues.Err().Error(), "\n")
		return nil, nil, fmt.Errorf("%s", first)
	}
	if t := tree.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, nil, fmt.Errorf("gives %s (expected a boolean)", t)
	}
	program, err := env.Program(tree, opts...)
	return tree, program, err
}

// truthOf is what an evaluation came to.
func truthOf(v ref.Val, err error) vectors.Truth {
	switch {
	case err != nil || v == nil || types.IsError(v):
		return vectors.Error
	case v == types.True:
		return vectors.True
	case v == types.False:
		return vectors.False
	}
	return vectors.Error // no boolean
}

// substituted is the text of a tree in which what is known stands as literals.
func substituted(tree ast.Expr, value map[string]any) (string, error) {
	s := &substitution{ExprFactory: ast.NewExprFactory(), value: value}
	return parser.Unparse(s.expr(tree), ast.NewSourceInfo(nil))
}

// substitution rebuilds a tree that was parsed without macros.
type substitution struct {
	ast.ExprFactory
	value map[string]any
	id    int64
}

func (s *substitution) next() int64 { s.id++; return s.id }

func (s *substitution) expr(e ast.Expr) ast.Expr {
	if v, ok := s.lookUp(e); ok {
		return s.literal(v)
	}
	switch e.Kind() {
	case ast.SelectKind:
		sel := e.AsSelect()
		return s.NewSelect(s.next(), s.expr(sel.Operand()), sel.FieldName())
	case ast.CallKind:
		call := e.AsCall()
		if there, ok := s.presence(call); ok {
			return s.NewLiteral(s.next(), types.Bool(there))
		}
		args := make([]ast.Expr, len(call.Args()))
		for i, a := range call.Args() {
			if call.FunctionName() == "has" && !call.IsMemberFunction() && a.Kind() == ast.SelectKind {
				// The macro wants a field: only what has the field is written out.
				args[i] = s.NewSelect(s.next(), s.expr(a.AsSelect().Operand()), a.AsSelect().FieldName())
				continue
			}
			args[i] = s.expr(a)
		}
		if call.IsMemberFunction() {
			return s.NewMemberCall(s.next(), call.FunctionName(), s.expr(call.Target()), args...)
		}
		return s.NewCall(s.next(), call.FunctionName(), args...)
	case ast.ListKind:
		var elements []ast.Expr
		for _, el := range e.AsList().Elements() {
			elements = append(elements, s.expr(el))
		}
		return s.NewList(s.next(), elements, nil)
	case ast.MapKind:
		var entries []ast.EntryExpr
		for _, en := range e.AsMap().Entries() {
			m := en.AsMapEntry()
			entries = append(entries, s.NewMapEntry(s.next(), s.expr(m.Key()), s.expr(m.Value()), false))
		}
		return s.NewMap(s.next(), entries)
	}
	return e
}

// presence is what the macro has says of a field of what is known.
func (s *substitution) presence(call ast.CallExpr) (there, ok bool) {
	if call.FunctionName() != "has" || call.IsMemberFunction() || len(call.Args()) != 1 || call.Args()[0].Kind() != ast.SelectKind {
		return false, false
	}
	sel := call.Args()[0].AsSelect()
	of, ok := s.lookUp(sel.Operand())
	m, isMap := of.(map[string]any)
	_, there = m[sel.FieldName()]
	return there, ok && isMap
}

// lookUp is the value of request, or of a field in it. A field that is not there is none: it is left as a field of
// what is.
func (s *substitution) lookUp(e ast.Expr) (any, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return s.value, e.AsIdent() == vectors.RequestVariable
	case ast.SelectKind:
		of, ok := s.lookUp(e.AsSelect().Operand())
		if !ok {
			return nil, false
		}
		m, ok := of.(map[string]any)
		if !ok {
			return nil, false
		}
		v, ok := m[e.AsSelect().FieldName()]
		return v, ok
	}
	return nil, false
}

func (s *substitution) literal(v any) ast.Expr {
	switch t := v.(type) {
	case map[string]any:
		var entries []ast.EntryExpr
		for _, k := range slices.Sorted(maps.Keys(t)) {
			entries = append(entries, s.NewMapEntry(s.next(), s.NewLiteral(s.next(), types.String(k)), s.literal(t[k]), false))
		}
		return s.NewMap(s.next(), entries)
	case []string:
		elements := make([]ast.Expr, 0, len(t))
		for _, el := range t {
			elements = append(elements, s.NewLiteral(s.next(), types.String(el)))
		}
		return s.NewList(s.next(), elements, nil)
	}
	return s.NewLiteral(s.next(), types.String(fmt.Sprint(v)))
}
