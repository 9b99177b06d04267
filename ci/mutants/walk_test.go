package mutants

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// file walks the declarations of the file in order.
func (d *deriver) file() {
	for _, decl := range d.Tree.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			d.function = FunctionName(decl)
			named := func(all []string) bool {
				return slices.Contains(all, decl.Name.Name) || slices.Contains(all, d.function)
			}
			if decl.Body == nil ||
				named(d.LeaveOut) ||
				len(d.Functions) > 0 && !named(d.Functions) {
				continue
			}
			d.walkFunction(d.Info.Defs[decl.Name].Type().(*types.Signature), d.roots(decl.Body)...)
		case *ast.GenDecl:
			d.function = "(package)"
			if len(d.Functions) > 0 {
				continue
			}
			if decl.Tok == token.CONST ||
				decl.Tok == token.VAR && !onlyBlank(decl) {
				d.walk(decl)
			}
		}
	}
}

// FunctionName is "Type.method" or "function".
func FunctionName(decl *ast.FuncDecl) string {
	if decl.Recv == nil || len(decl.Recv.List) == 0 {
		return decl.Name.Name
	}
	t := decl.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + decl.Name.Name
	}
	return decl.Name.Name
}

// onlyBlank says whether a declaration only asserts something at compile time.
func onlyBlank(decl *ast.GenDecl) bool {
	for _, spec := range decl.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for _, name := range v.Names {
			if name.Name != "_" {
				return false
			}
		}
	}
	return true
}

// roots are the body, or those of its statements that are wanted.
func (d *deriver) roots(body *ast.BlockStmt) (roots []ast.Node) {
	if d.Within == "" {
		return []ast.Node{body}
	}
	for _, s := range body.List {
		if strings.Contains(d.source(s), d.Within) {
			roots = append(roots, s)
		}
	}
	return roots
}

// walkFunction walks a body whose return statements have the signature's results.
func (d *deriver) walkFunction(sig *types.Signature, roots ...ast.Node) {
	d.results = append(d.results, sig.Results())
	for _, root := range roots {
		d.walk(root)
	}
	d.results = d.results[:len(d.results)-1]
}

// walk visits a node and what is in it, parents before children.
func (d *deriver) walk(root ast.Node) {
	depth := len(d.parents)
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			d.parents = d.parents[:len(d.parents)-1]
			return true
		}
		if !d.visit(n) {
			return false
		}
		d.parents = append(d.parents, n)
		if lit, ok := n.(*ast.FuncLit); ok {
			d.walkFunction(d.Info.TypeOf(lit).(*types.Signature), lit.Body)
			d.parents = d.parents[:len(d.parents)-1]
			return false
		}
		return true
	})
	d.parents = d.parents[:depth]
}

// parent is the n-th node around the visited one, from 1; nil if there is none.
func (d *deriver) parent(n int) ast.Node {
	if n > len(d.parents) {
		return nil
	}
	return d.parents[len(d.parents)-n]
}

// visit derives the mutants of one node, and says whether to go on inside.
func (d *deriver) visit(n ast.Node) bool {
	d.at = n.Pos()
	switch n := n.(type) {
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok {
			d.removeStatement("call-removed", n)
			return !d.quiet(call)
		}
	case *ast.CallExpr:
		if d.quiet(n) {
			return false
		}
		d.call(n)
	case *ast.AssignStmt:
		d.assignment(n)
	case *ast.IfStmt:
		d.condition(n.Cond)
	case *ast.SwitchStmt:
		d.cases(n)
	case *ast.BinaryExpr:
		d.binary(n)
	case *ast.ReturnStmt:
		d.returns(n)
	case *ast.RangeStmt:
		d.loop(n)
	case *ast.BranchStmt:
		d.branch(n)
	case *ast.CompositeLit:
		d.composite(n)
	case *ast.FuncLit:
		d.literalBody(n)
	case *ast.SliceExpr:
		d.bound(n)
	case *ast.BasicLit, *ast.Ident, *ast.SelectorExpr:
		d.constant(n.(ast.Expr))
		_, selector := n.(*ast.SelectorExpr)
		return !selector || !d.isConstant(n.(ast.Expr))
	case *ast.GenDecl:
		return n.Tok == token.CONST || n.Tok == token.VAR
	case *ast.ImportSpec, *ast.FuncType, *ast.ArrayType, *ast.MapType, *ast.StructType, *ast.InterfaceType:
		return false
	case *ast.KeyValueExpr:
		return d.keyValue(n)
	}
	return true
}
