package mutants

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// on is the source of "mutant n is chosen".
func on(n int) string { return fmt.Sprintf("%s.On(%d)", HelperName, n) }

// removeStatement leaves a statement out, if it is one of a list.
func (d *deriver) removeStatement(operator string, stmt ast.Stmt) {
	switch d.parent(1).(type) {
	case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
	case nil: // the function's body is the root
	default:
		return
	}
	n := d.add(operator, stmt, "left out")
	d.wrapStmt(stmt, "if !"+on(n)+" { ", " }")
}

// negate turns a boolean expression round.
func (d *deriver) negate(operator string, e ast.Expr) {
	n := d.add(operator, e, "negated")
	d.wrapExpr(e, "("+on(n)+" != (", "))")
}

// force makes a boolean expression always true, or always false.
func (d *deriver) force(operator string, e ast.Expr, value bool) {
	n := d.add(operator, e, fmt.Sprintf("always %v", value))
	if value {
		d.wrapExpr(e, "("+on(n)+" || (", "))")
	} else {
		d.wrapExpr(e, "(!"+on(n)+" && (", "))")
	}
}

// condition is that of an if statement or of a case. A simple one is forced both ways: what detects these
// detects its negation too. One with && or || is negated, and its operands are dropped one by one.
func (d *deriver) condition(e ast.Expr) {
	if b, ok := ast.Unparen(e).(*ast.BinaryExpr); ok &&
		(b.Op == token.LAND || b.Op == token.LOR) {
		d.negate("condition-negated", e)
		return
	}
	d.force("condition-forced", e, true)
	d.force("condition-dropped", e, false)
}

// cases of a switch: conditions, or values, which are replaced by zero values.
func (d *deriver) cases(s *ast.SwitchStmt) {
	for _, clause := range s.Body.List {
		for _, e := range clause.(*ast.CaseClause).List {
			if s.Tag == nil {
				d.condition(e)
				continue
			}
			d.zero("case-removed", e, d.Info.TypeOf(e))
		}
	}
}

// shifts are the ordered comparisons: the other operator, and what is added to the left operand to have its
// effect.
var shifts = map[token.Token]struct{ other, add string }{
	token.GEQ: {">", "-"},
	token.GTR: {">=", "+"},
	token.LSS: {"<=", "-"},
	token.LEQ: {"<", "+"},
}

// binary drops operands of && and ||, shifts comparisons, and empties operands of a concatenation.
func (d *deriver) binary(b *ast.BinaryExpr) {
	switch b.Op {
	case token.LAND, token.LOR:
		for _, operand := range []ast.Expr{b.X, b.Y} {
			if inner, ok := ast.Unparen(operand).(*ast.BinaryExpr); ok && inner.Op == b.Op {
				continue
			}
			d.force("operand-dropped", operand, b.Op == token.LAND)
		}
	case token.GEQ, token.GTR, token.LSS, token.LEQ:
		shift := shifts[b.Op]
		t, ok := d.typeName(d.Info.TypeOf(b.X))
		if !ok {
			return
		}
		n := d.add("comparison-shifted", b, fmt.Sprintf("%s → %s", b.Op, shift.other))
		d.wrapExpr(b.X, "(", fmt.Sprintf(" %s %s.One[%s](%d))", shift.add, HelperName, t, n))
	case token.ADD:
		for _, operand := range []ast.Expr{b.X, b.Y} {
			if t, ok := d.Info.TypeOf(operand).Underlying().(*types.Basic); ok && t.Info()&types.IsString != 0 &&
				d.Info.Types[operand].Value == nil {
				if inner, ok := operand.(*ast.BinaryExpr); !ok || inner.Op != token.ADD {
					d.zero("operand-emptied", operand, d.Info.TypeOf(operand))
				}
			}
		}
	}
}

// zero replaces an expression by the zero value of type t, or of its own type if t cannot be written in this file.
func (d *deriver) zero(operator string, e ast.Expr, t types.Type) {
	name, ok := d.typeName(t)
	if !ok {
		if t == nil || types.IsInterface(t) || d.Info.Types[e].IsNil() {
			return
		}
		name = ""
	} else {
		name = "[" + name + "]"
	}
	n := d.add(operator, e, "zero value")
	d.wrapExpr(e, fmt.Sprintf("%s.Zero%s(%d, ", HelperName, name, n), ")")
}

// returns changes each result of a return statement.
func (d *deriver) returns(r *ast.ReturnStmt) {
	results := d.results[len(d.results)-1]
	if len(r.Results) == 1 && results.Len() > 1 {
		d.returnZeros(r, results)
		return
	}
	for i, e := range r.Results {
		t := results.At(i).Type()
		value := d.Info.Types[e]
		switch {
		case isError(t) && value.IsNil():
			n := d.add("return-error", e, "an error")
			d.wrapExpr(e, fmt.Sprintf("%s.Err(%d, ", HelperName, n), ")")
		case isError(t):
			d.zero("return-no-error", e, t)
		case isBool(t):
			d.negate("return-negated", e)
		case !value.IsNil() && value.Value == nil: // a constant is changed as such
			d.zero("return-zero", e, t)
		}
	}
}

// returnZeros is for a call that gives all results: it is not made.
func (d *deriver) returnZeros(r *ast.ReturnStmt, results *types.Tuple) {
	var zeros []string
	for i := range results.Len() {
		name, ok := d.typeName(results.At(i).Type())
		if !ok {
			return
		}
		zeros = append(zeros, "*new("+name+")")
	}
	n := d.add("return-zeros", r.Results[0], "zero values")
	d.wrapStmt(r, "if "+on(n)+" { return "+strings.Join(zeros, ", ")+" }; ", "")
}

// loop makes a range loop do nothing, end after its first turn, or leave the first element out.
func (d *deriver) loop(r *ast.RangeStmt) {
	d.zero("loop-skipped", r.X, d.Info.TypeOf(r.X))
	if _, ok := d.Info.TypeOf(r.X).Underlying().(*types.Slice); ok {
		n := d.add("loop-first-skipped", r.X, "begins with the second element")
		d.wrapExpr(r.X, fmt.Sprintf("%s.Tail(%d, ", HelperName, n), ")")
	}
	if len(r.Body.List) > 0 {
		n := d.add("loop-once", r.X, "ends after the first turn")
		d.wrapBody(r.Body, "", "\nif "+on(n)+" { break }; ")
	}
}

// branch swaps continue and break.
func (d *deriver) branch(b *ast.BranchStmt) {
	if b.Label != nil || !d.inLoop() {
		return
	}
	switch b.Tok {
	case token.CONTINUE:
		n := d.add("continue-to-break", b, "break")
		d.wrapStmt(b, "if "+on(n)+" { break }; ", "")
	case token.BREAK:
		n := d.add("break-to-continue", b, "continue")
		d.wrapStmt(b, "if "+on(n)+" { continue }; ", "")
	}
}

// inLoop says whether the innermost statement that can be broken out of is a loop.
func (d *deriver) inLoop() bool {
	for i := 1; ; i++ {
		switch d.parent(i).(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return true
		case nil, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt, *ast.FuncLit:
			return false
		}
	}
}

// literalBody makes a function literal without results do nothing. If it has one statement, that one is left out
// instead.
func (d *deriver) literalBody(f *ast.FuncLit) {
	if f.Type.Results != nil || len(f.Body.List) < 2 {
		return
	}
	n := d.add("body-emptied", f, "does nothing")
	d.wrapBody(f.Body, " if "+on(n)+" { return }; ", "")
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

func isBool(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsBoolean != 0
}

// isZeroLiteral says whether an expression is written as a zero value.
func isZeroLiteral(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Value == "0" || e.Value == `""`
	case *ast.Ident:
		return e.Name == "nil" || e.Name == "false"
	}
	return false
}
