package reference

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/lru"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/internal/seq"
)

// environments returns the environment of conditions, which is the environment of ValidatingAdmissionPolicies with
// other variables, and a plain environment that expands no macros.
var environments = sync.OnceValues(func() (conditions, plain *cel.Env) {
	// Without the tracked calls of macros, a residual with a macro could not be written as text.
	declared := []cel.EnvOption{cel.EnableMacroCallTracking(), cel.Variable("operation", cel.StringType)}
	for _, name := range vectors.LateVariables()[1:] {
		declared = append(declared, cel.Variable(name, cel.DynType))
	}
	base := version.MajorMinor(1, 37)
	set, err := environment.MustBaseEnvSet(base).Extend(environment.VersionedOptions{IntroducedVersion: base, EnvOptions: declared})
	if err != nil {
		panic(err) // the declarations are constants of this package
	}
	if plain, err = cel.NewEnv(cel.OptionalTypes(), cel.ClearMacros()); err != nil {
		panic(err)
	}
	return set.StoredExpressionsEnv(), plain
})

// specialize replaces every request.x in an expression by a literal, so that nothing of the request is left for the
// second phase. That includes the bodies of macros, which partial evaluation never reaches.
func specialize(expression string, request map[string]any) (*cel.Ast, error) {
	conditions, plain := environments()
	parsed, issues := plain.Parse(expression)
	if issues.Err() != nil {
		return nil, celError(issues.Err())
	}
	s := substitution{ast.NewExprFactory(), map[string]any{vectors.RequestVariable: request}}
	s.replace(parsed.NativeRep().Expr())
	text, err := cel.AstToString(parsed)
	if err != nil {
		return nil, celError(err)
	}
	out, issues := conditions.Compile(text)
	if issues.Err() != nil {
		return nil, celError(issues.Err())
	}
	if t := out.OutputType(); t != cel.BoolType && t != cel.DynType {
		return nil, fmt.Errorf("the expression is of type %s, expected bool", t)
	}
	return out, nil
}

// celError returns the first line of an error, without the source below it.
func celError(err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(first)
}

type substitution struct {
	ast.ExprFactory
	known map[string]any
}

// replace replaces the known fields in an expression whose macros are not expanded.
func (s substitution) replace(e ast.Expr) {
	if v, ok := s.value(e); ok {
		e.SetKindCase(s.literal(v))
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		s.replace(e.AsSelect().Operand())
	case ast.CallKind:
		c := e.AsCall()
		if c.FunctionName() == "has" && len(c.Args()) == 1 && !c.IsMemberFunction() {
			if _, ok := s.value(c.Args()[0]); ok {
				e.SetKindCase(s.NewLiteral(0, types.True)) // all fields always exist
				return
			}
		}
		if c.IsMemberFunction() {
			s.replace(c.Target())
		}
		for _, arg := range c.Args() {
			s.replace(arg)
		}
	case ast.ListKind:
		s.replaceElements(e.AsList().Elements())
	case ast.MapKind:
		var keys, values []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			keys, values = append(keys, entry.AsMapEntry().Key()), append(values, entry.AsMapEntry().Value())
		}
		s.replaceElements(keys)
		s.replaceElements(values)
	}
}

// replaceElements replaces known fields in a list or map whose elements must have one type
// (cel.HomogeneousAggregateLiterals of the environment). Next to an element that stays unknown, a literal gets the type
// dyn, which the field had.
func (s substitution) replaceElements(all []ast.Expr) {
	stays := slices.ContainsFunc(all, func(e ast.Expr) bool { _, ok := s.value(e); return !ok })
	for _, e := range all {
		if v, ok := s.value(e); ok && stays {
			e.SetKindCase(s.NewCall(0, "dyn", s.literal(v)))
		} else {
			s.replace(e)
		}
	}
}

// value returns the value of request.x, request.x.y and so on, if it is known.
func (s substitution) value(e ast.Expr) (any, bool) {
	if e.Kind() != ast.SelectKind {
		return nil, false
	}
	sel := e.AsSelect()
	operand := s.known[vectors.RequestVariable]
	ok := sel.Operand().Kind() == ast.IdentKind && sel.Operand().AsIdent() == vectors.RequestVariable
	if !ok {
		if operand, ok = s.value(sel.Operand()); !ok {
			return nil, false
		}
	}
	fields, ok := operand.(map[string]any)
	if !ok {
		return nil, false
	}
	v, ok := fields[sel.FieldName()]
	return v, ok
}

// literal returns a literal for a value of vectors.RequestFields.
func (s substitution) literal(v any) ast.Expr {
	switch v := v.(type) {
	case []string:
		return s.NewList(0, seq.Map(v, func(e string) ast.Expr { return s.literal(e) }), nil)
	case map[string]any:
		return s.NewMap(0, seq.Map(slices.Sorted(maps.Keys(v)), func(k string) ast.EntryExpr {
			return s.NewMapEntry(0, s.literal(k), s.literal(v[k]), false)
		}))
	case string:
		return s.NewLiteral(0, types.String(v))
	}
	return s.NewLiteral(0, types.NullValue)
}

// partial is the result of an expression without the unknown variables: a value, an error, or a residual.
type partial struct {
	value    bool
	err      error
	residual string // empty if the value is known
}

// policyEnvironment returns the environment of policies: that of conditions, with the variable of the request.
var policyEnvironment = sync.OnceValue(func() *cel.Env {
	conditions, _ := environments()
	env, err := conditions.Extend(cel.Variable(vectors.RequestVariable, cel.DynType))
	if err != nil {
		panic(err) // the declaration is a constant of this package
	}
	return env
})

// policyPrograms caches compiled policies, because most policies were already loaded before.
var policyPrograms = lru.New(4 * maxPolicies)

// policyProgram checks a policy and compiles it unchanged. If a decision needs no residual, that program finds it fast.
func policyProgram(expression string) (cel.Program, error) {
	if p, ok := policyPrograms.Get(expression); ok {
		return p.(cel.Program), nil
	}
	if _, err := specialize(expression, vectors.RequestFields(sample)); err != nil {
		return nil, err
	}
	p, err := compileIn(policyEnvironment(), expression, cel.EvalOptions(cel.OptPartialEval))
	if err == nil {
		policyPrograms.Add(expression, p)
	}
	return p, err
}

// evaluate returns the result of a program. ok is false if the result is unknown.
func evaluate(p cel.Program, data map[string]any) (out partial, details *cel.EvalDetails, ok bool) {
	var unknown []*interpreter.AttributePattern
	for _, name := range vectors.LateVariables() {
		if _, ok := data[name]; !ok {
			unknown = append(unknown, cel.AttributePattern(name))
		}
	}
	vars, err := cel.PartialVars(data, unknown...)
	if err != nil {
		return partial{err: celError(err)}, nil, true
	}
	v, details, err := p.Eval(vars)
	switch {
	case err != nil:
		return partial{err: celError(err)}, nil, true
	case types.IsUnknown(v):
		return partial{}, details, false
	}
	value, is := v.Value().(bool)
	if !is {
		return partial{err: fmt.Errorf("the expression is of type %s, expected bool", v.Type().TypeName())}, nil, true
	}
	return partial{value: value}, nil, true
}

// evaluatePartially evaluates a policy for one request, and returns a residual if the result is not known yet. It
// prunes the expression repeatedly until nothing changes, because pruning one part may make another one known.
func evaluatePartially(expression string, request, data map[string]any) partial {
	compiled, err := specialize(expression, request)
	if err != nil {
		return partial{err: err}
	}
	out := prune(compiled, data)
	for range maxPrunings {
		if out.err != nil || out.residual == "" {
			return out
		}
		env, _ := environments()
		residual, issues := env.Compile(out.residual)
		if issues.Err() != nil {
			return partial{err: celError(issues.Err())}
		}
		before := out.residual
		if out = prune(residual, data); out.residual == before {
			return out
		}
	}
	return out
}

// maxPrunings is larger than any expression has needed.
const maxPrunings = 8

// prune evaluates an expression as far as the known values allow.
func prune(compiled *cel.Ast, data map[string]any) partial {
	conditions, _ := environments()
	program, err := conditions.Program(
		compiled,
		cel.EvalOptions(cel.OptTrackState, cel.OptPartialEval),
		cel.CostLimit(celconfig.PerCallLimit),
	)
	if err != nil {
		return partial{err: celError(err)}
	}
	out, details, ok := evaluate(program, data)
	if ok {
		return out
	}
	pruned, err := conditions.ResidualAst(compiled, details)
	if err != nil {
		return partial{err: celError(err)}
	}
	text, err := cel.AstToString(pruned)
	if err != nil {
		return partial{err: celError(err)}
	}
	return partial{residual: text}
}

// neverTrue reports whether an expression is never true because a part that it needs is false or an error already.
func neverTrue(residual string) bool {
	_, plain := environments()
	parsed, issues := plain.Parse(residual)
	if issues.Err() != nil {
		return false
	}
	for _, part := range conjuncts(parsed.NativeRep().Expr()) {
		text, err := cel.ExprToString(part, parsed.NativeRep().SourceInfo())
		if err != nil {
			continue
		}
		out := evaluatePartially(text, nil, nil)
		isFalse := out.residual == "" && !out.value
		if out.err != nil || isFalse {
			return true
		}
	}
	return false
}

// conjuncts returns the parts of a && b && c.
func conjuncts(e ast.Expr) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return []ast.Expr{e}
	}
	return slices.Concat(seq.Map(e.AsCall().Args(), conjuncts)...)
}
