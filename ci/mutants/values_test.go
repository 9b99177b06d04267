package mutants

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strconv"
)

// assignment leaves out an assignment, or zeroes what a new variable begins with: without the definition the
// program would not compile.
func (d *deriver) assignment(a *ast.AssignStmt) {
	if a.Tok != token.DEFINE {
		if id, ok := a.Lhs[0].(*ast.Ident); !ok || id.Name != "_" {
			d.removeStatement("assignment-removed", a)
		}
		return
	}
	if len(a.Lhs) != len(a.Rhs) {
		return
	}
	for _, e := range a.Rhs {
		if call, ok := e.(*ast.CallExpr); ok && d.quiet(call) {
			continue
		}
		if t := d.Info.TypeOf(e); d.isValue(t) && !isBool(t) && d.Info.Types[e].Value == nil && !isEmptyComposite(e) {
			d.zero("definition-zeroed", e, t)
		}
	}
}

func isEmptyComposite(e ast.Expr) bool {
	lit, ok := e.(*ast.CompositeLit)
	return ok && len(lit.Elts) == 0
}

// isValue says whether a type's zero value is an ordinary value, with which the program goes on. A nil pointer
// would only end the request.
func (d *deriver) isValue(t types.Type) bool {
	if t == nil {
		return false
	}
	switch t := t.Underlying().(type) {
	case *types.Basic:
		return t.Kind() != types.UntypedNil && t.Kind() != types.Invalid
	case *types.Slice, *types.Map, *types.Struct:
		return true
	}
	return false
}

// call zeroes the arguments that are values, and leaves out functions that return what they are given, changed.
func (d *deriver) call(c *ast.CallExpr) {
	kind := d.Info.Types[c.Fun]
	if kind.IsType() {
		return
	}
	first := 0
	if kind.IsBuiltin() {
		if id, ok := c.Fun.(*ast.Ident); !ok || id.Name != "append" {
			return
		}
		first = 1
	}
	for _, arg := range c.Args[min(first, len(c.Args)):] {
		t := d.Info.TypeOf(arg)
		if d.isValue(t) && d.Info.Types[arg].Value == nil && !d.isConcatenation(arg) {
			d.zero("argument-zeroed", arg, t)
		}
	}
	d.bypass(c)
}

// isConcatenation says whether the operands of an expression are emptied one by one.
func (d *deriver) isConcatenation(e ast.Expr) bool {
	b, ok := ast.Unparen(e).(*ast.BinaryExpr)
	return ok && b.Op == token.ADD
}

// bypass makes a call give back its first argument.
func (d *deriver) bypass(c *ast.CallExpr) {
	sig, ok := d.Info.TypeOf(c.Fun).(*types.Signature)
	if !ok || sig.Variadic() || sig.Results().Len() != 1 || sig.Params().Len() == 0 || sig.Params().Len() > 2 || sig.Recv() != nil {
		return
	}
	if !types.Identical(sig.Params().At(0).Type(), sig.Results().At(0).Type()) || !d.isValue(sig.Results().At(0).Type()) {
		return
	}
	helper := "Same"
	if sig.Params().Len() == 2 {
		helper = "Same2"
	}
	n := d.add("call-bypassed", c, "its first argument")
	if d.generic(c.Fun) { // a helper cannot infer what it would be handed
		d.wrapExpr(c, fmt.Sprintf("%s.Pick(%d, ", HelperName, n), ", "+d.source(c.Args[0])+")")
		return
	}
	d.wrapExpr(c.Fun, fmt.Sprintf("%s.%s(%d, ", HelperName, helper, n), ")")
}

// generic says whether an expression names a function with type parameters.
func (d *deriver) generic(e ast.Expr) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if s, is := ast.Unparen(e).(*ast.SelectorExpr); is {
		id, ok = s.Sel, true
	}
	if !ok {
		return false
	}
	fn, ok := d.Info.Uses[id].(*types.Func)
	return ok && fn.Signature().TypeParams().Len() > 0
}

// keyValue zeroes a field of a composite literal, and says whether to go on inside.
func (d *deriver) keyValue(kv *ast.KeyValueExpr) bool {
	lit, ok := d.parent(1).(*ast.CompositeLit)
	if !ok {
		return true
	}
	if _, ok := d.Info.TypeOf(lit).Underlying().(*types.Struct); !ok {
		return true
	}
	field, ok := d.Info.Uses[kv.Key.(*ast.Ident)]
	if !ok || slices.Contains(d.options.Prose, field.Name()) {
		return false
	}
	if !isZeroLiteral(kv.Value) && !d.isBoolLiteral(kv.Value) {
		d.zero("field-zeroed", kv.Value, field.Type())
	}
	return true
}

// composite drops and swaps the elements of a slice.
func (d *deriver) composite(c *ast.CompositeLit) {
	_, ok := d.Info.TypeOf(c).Underlying().(*types.Slice)
	if !ok || len(c.Elts) == 0 {
		return
	}
	for i, e := range c.Elts {
		if _, ok := e.(*ast.KeyValueExpr); ok {
			return
		}
		n := d.add("element-dropped", e, "left out")
		d.wrapExpr(c, fmt.Sprintf("%s.Drop(%d, %d, ", HelperName, n, i), ")")
		if i+1 < len(c.Elts) {
			n := d.add("elements-swapped", e, "exchanged with the next element")
			d.wrapExpr(c, fmt.Sprintf("%s.Swap(%d, %d, ", HelperName, n, i), ")")
		}
	}
}

// bound zeroes the lower bound of a slice expression.
func (d *deriver) bound(s *ast.SliceExpr) {
	if s.Low != nil && !isZeroLiteral(s.Low) {
		d.zero("bound-zeroed", s.Low, types.Typ[types.Int])
	}
}

func (d *deriver) isConstant(e ast.Expr) bool { return d.Info.Types[e].Value != nil }

func (d *deriver) isBoolLiteral(e ast.Expr) bool {
	return d.isConstant(e) && d.Info.Types[e].Value.Kind() == constant.Bool
}

// constant changes a literal, true, false, or a named constant of another package. Those of this package are
// changed where they are declared.
func (d *deriver) constant(e ast.Expr) {
	tv := d.Info.Types[e]
	if tv.Value == nil || d.isName(e) {
		return
	}
	if id, ok := e.(*ast.Ident); ok && !d.isBoolLiteral(id) {
		return
	}
	if sel, ok := e.(*ast.SelectorExpr); ok &&
		(d.Info.Uses[sel.Sel] == nil || d.Info.Uses[sel.Sel].Pkg() == d.Pkg) {
		return
	}
	if d.isCapacity(e) {
		return
	}
	if _, returned := d.parent(1).(*ast.ReturnStmt); returned && tv.Value.Kind() == constant.Bool {
		return // return-negated
	}
	before := len(d.mutants)
	d.replaceConstant(e, tv)
	// A const declaration with a value that is changed becomes a var declaration.
	if decl := d.constDecl(); decl != nil && len(d.mutants) > before && !slices.Contains(d.vars, decl.Pos()) {
		d.vars = append(d.vars, decl.Pos())
	}
}

// isName says whether a node is not an expression of its own: the selector of a selector expression, a field's key, or
// a method's name.
func (d *deriver) isName(e ast.Expr) bool {
	switch p := d.parent(1).(type) {
	case *ast.SelectorExpr:
		return p.Sel == e
	case *ast.KeyValueExpr:
		return p.Key == e
	case *ast.ValueSpec:
		id, ok := e.(*ast.Ident)
		return ok && slices.Contains(p.Names, id)
	case *ast.Field:
		return true
	}
	return false
}

// isCapacity says whether a node belongs to the capacity that make is asked for, which changes nothing but the use
// of memory.
func (d *deriver) isCapacity(e ast.Expr) bool {
	var child ast.Node = e
	for i := 1; ; i++ {
		switch p := d.parent(i).(type) {
		case *ast.BinaryExpr:
			child = p
		case *ast.CallExpr:
			id, ok := p.Fun.(*ast.Ident)
			return ok && id.Name == "make" && len(p.Args) == 3 && p.Args[2] == child
		default:
			return false
		}
	}
}

// constDecl is the const declaration around the node, nil if there is none.
func (d *deriver) constDecl() *ast.GenDecl {
	for i := 1; d.parent(i) != nil; i++ {
		if g, ok := d.parent(i).(*ast.GenDecl); ok && g.Tok == token.CONST {
			return g
		}
	}
	return nil
}

func (d *deriver) replaceConstant(e ast.Expr, tv types.TypeAndValue) {
	name, ok := d.typeName(tv.Type)
	if !ok {
		return
	}
	source := d.source(e)
	pick := func(other string) {
		n := d.add("constant-changed", e, "→ "+shorten(other))
		d.wrapExpr(e, fmt.Sprintf("%s.Pick[%s](%d, ", HelperName, name, n), ", "+other+")")
	}
	switch tv.Value.Kind() {
	case constant.Bool:
		d.negate("constant-changed", e)
	case constant.String:
		if constant.StringVal(tv.Value) == "" {
			pick(strconv.Quote("mutant"))
			return
		}
		pick(source + ` + "x"`)
	case constant.Int, constant.Float:
		literal, ok := e.(*ast.BasicLit)
		if !ok {
			return
		}
		pick(source + " + 1")
		if literal.Kind == token.CHAR {
			return
		}
		if constant.Compare(tv.Value, token.GTR, constant.MakeInt64(0)) {
			pick(source + " - 1")
		}
		if constant.Compare(tv.Value, token.GEQ, constant.MakeInt64(10)) {
			pick("1")
		}
	}
}
