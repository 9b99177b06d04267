package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rule is a function that demands one thing of what was observed, as its doc comment says.
type rule struct {
	// name is that of the function, with its receiver if the package has several of this name; file has it, from the root
	// of the repository.
	name, file string
	// demand is the doc comment without "X demands", and source what stands behind "Source:" in it.
	demand, source string
	// fields matches the names of the differences that the function can find. It is nil if it finds none by name.
	fields *regexp.Regexp
}

// sourceLine separates a doc comment from where its rule is written.
const sourceLine = "\nSource: "

// ruleReader reads the rules of one package from its source.
type ruleReader struct {
	files     map[string]*ast.File
	functions map[string]*ast.FuncDecl
	// namesakes counts the functions of each name.
	namesakes map[string]int
	constants map[string]string
}

// rulesOfPackage are the rules of a package, by file and place. silent are the functions that look like rules about API
// servers, and whose doc comments do not say what they demand.
type rulesOfPackage struct {
	rules  []rule
	silent []string
}

// readRules returns the functions of a package whose doc comments say that they demand something.
func readRules(t *testing.T, folder string) (all rulesOfPackage) {
	t.Helper()
	r := &ruleReader{
		files:     map[string]*ast.File{},
		functions: map[string]*ast.FuncDecl{},
		namesakes: map[string]int{},
		constants: map[string]string{},
	}
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		r.files[strings.TrimPrefix(path, root+"/")] = file
	}
	r.collect()
	for _, path := range sortedKeys(r.files) {
		for _, declared := range r.files[path].Decls {
			f, isFunction := declared.(*ast.FuncDecl)
			if !isFunction {
				continue
			}
			one, isRule := r.read(f)
			switch {
			case isRule:
				one.file = path
				all.rules = append(all.rules, one)
			case isCheckOfStep(f):
				all.silent = append(all.silent, f.Name.Name)
			}
		}
	}
	return all
}

// isCheckOfStep reports whether a function is a method of verdicts.stepJudge whose name says that it checks something.
func isCheckOfStep(f *ast.FuncDecl) bool {
	return strings.HasPrefix(f.Name.Name, "check") && receiverOf(f) == "stepJudge"
}

// receiverOf returns the name of the type that a function is a method of, or "" if it is not a method.
func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	receiver := f.Recv.List[0].Type
	if pointer, isPointer := receiver.(*ast.StarExpr); isPointer {
		receiver = pointer.X
	}
	if name, isName := receiver.(*ast.Ident); isName {
		return name.Name
	}
	return ""
}

// collect notes the functions and the constants of the package by name.
func (r *ruleReader) collect() {
	for _, file := range r.files {
		for _, declared := range file.Decls {
			if f, isFunction := declared.(*ast.FuncDecl); isFunction {
				r.functions[f.Name.Name] = f
				r.namesakes[f.Name.Name]++
			} else {
				collectConstants(declared, r.constants)
			}
		}
	}
}

// collectConstants notes the names below a node that are declared with a text as their value.
func collectConstants(below ast.Node, constants map[string]string) {
	ast.Inspect(below, func(n ast.Node) bool {
		declared, isValue := n.(*ast.ValueSpec)
		if !isValue || len(declared.Names) != len(declared.Values) {
			return true
		}
		for i, name := range declared.Names {
			if text, isText := literalText(declared.Values[i]); isText {
				constants[name.Name] = text
			}
		}
		return true
	})
}

// read returns the rule of a function, if its doc comment says that it demands something.
func (r *ruleReader) read(f *ast.FuncDecl) (one rule, isRule bool) {
	doc := strings.TrimSpace(f.Doc.Text())
	doc, isRule = strings.CutPrefix(doc, f.Name.Name+" demands")
	if !isRule {
		return one, false
	}
	demand, source, _ := strings.Cut(doc, sourceLine)
	one = rule{name: f.Name.Name, demand: joinLines(demand), source: joinLines(source)}
	if receiver := receiverOf(f); receiver != "" && r.namesakes[f.Name.Name] > 1 {
		one.name = receiver + "." + one.name
	}
	patterns := r.patternsOf(f, map[string]bool{})
	if len(patterns) > 0 {
		one.fields = regexp.MustCompile("^(?:" + strings.Join(patterns, "|") + ")$")
	}
	return one, true
}

// patternsOf returns what the fields match that a function compares, itself or by functions that are no rules of their own.
func (r *ruleReader) patternsOf(f *ast.FuncDecl, visited map[string]bool) (patterns []string) {
	if visited[f.Name.Name] {
		return nil
	}
	visited[f.Name.Name] = true
	names := maps.Clone(r.constants)
	for _, parameter := range f.Type.Params.List {
		for _, name := range parameter.Names {
			delete(names, name.Name)
		}
	}
	collectConstants(f.Body, names)
	ast.Inspect(f, func(n ast.Node) bool {
		call, isCall := n.(*ast.CallExpr)
		if !isCall {
			return true
		}
		called := calledName(call)
		if called == "compare" && len(call.Args) == 3 {
			patterns = append(patterns, pattern(call.Args[0], names))
			return true
		}
		next := r.functions[called]
		isHelper := next != nil && !strings.HasPrefix(next.Doc.Text(), called+" demands")
		if isHelper {
			patterns = append(patterns, r.patternsOf(next, visited)...)
		}
		return true
	})
	known := slices.DeleteFunc(patterns, func(p string) bool { return p == anything })
	slices.Sort(known)
	return slices.Compact(known)
}

// anything matches the part of a field's name that only a run knows.
const anything = ".+"

// verb matches a verb of fmt.
var verb = regexp.MustCompile(`%[a-z]`)

// pattern returns what the texts match that an expression can have as its value. constants are the names that have one text.
func pattern(e ast.Expr, constants map[string]string) string {
	if text, isText := literalText(e); isText {
		return regexp.QuoteMeta(text)
	}
	switch e := e.(type) {
	case *ast.Ident:
		if text, isConstant := constants[e.Name]; isConstant {
			return regexp.QuoteMeta(text)
		}
	case *ast.BinaryExpr:
		return pattern(e.X, constants) + pattern(e.Y, constants)
	case *ast.CallExpr:
		if calledName(e) != "Sprintf" {
			return anything
		}
		if format, isText := literalText(e.Args[0]); isText {
			return verb.ReplaceAllString(regexp.QuoteMeta(format), anything)
		}
	}
	return anything
}

// literalText returns the value of an expression that is a text as it stands.
func literalText(e ast.Expr) (text string, isText bool) {
	literal, isLiteral := e.(*ast.BasicLit)
	if !isLiteral || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}

// calledName returns the name of the function or method that a call is of.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// joinLines returns a text on one line.
func joinLines(text string) string { return strings.Join(strings.Fields(text), " ") }
