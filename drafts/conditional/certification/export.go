package certification

import (
	"bytes"
	"embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Forms returns the forms of policies that Export knows.
func Forms() []string { return []string{formJSON, "rego", "cedar"} }

// formJSON is the form in which a policy hook gets the policies: in CEL, which can express all of them.
const formJSON = "json"

// Export writes policies for an engine. In the form JSON they are written in CEL, as a policy hook gets them. In the
// other languages each policy decides as its expression does. A policy that a language cannot express is left out, and
// named with the reason.
func Export(form string, all []vectors.Policy) ([]byte, error) {
	if form == formJSON {
		raw, err := PoliciesJSON(all)
		return append(raw, '\n'), err
	}
	d, err := readDialect(form)
	if err != nil {
		return nil, err
	}
	return d.export("rules."+form, all)
}

// FindInexpressible returns the first part of a policy that a form of policies cannot express. It is empty if the form
// can express the whole policy.
func FindInexpressible(form string, p vectors.Policy) (what string, err error) {
	if form == formJSON {
		return "", nil
	}
	d, err := readDialect(form)
	if err != nil {
		return "", err
	}
	all, err := d.translate([]vectors.Policy{p})
	if err != nil {
		return "", err
	}
	return all[0].Cannot, nil
}

// readDialect returns the dialect of a form other than JSON.
func readDialect(form string) (*dialect, error) {
	var dialects map[string]*dialect
	raw, err := rules.ReadFile("dialects.yaml")
	if err == nil {
		_, err = scenarios.Decode("dialects.yaml", raw, "dialects", &dialects)
	}
	if err != nil {
		return nil, err
	}
	if d := dialects[form]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("%q is not a form of the policies (expected one of %s)", form, strings.Join(Forms(), ", "))
}

// alternatives lists the ways in which an expression becomes true, or becomes false. The expression has that value if
// everything that one of the ways lists holds. An expression that is an error has neither value.
type alternatives [][]string

// combine returns the alternatives in which one of each list holds.
func (a alternatives) combine(b alternatives) (out alternatives) {
	for _, x := range a {
		out = append(out, seq.Map(b, func(y []string) []string { return slices.Concat(x, y) })...)
	}
	return out
}

// dialect describes how a language writes the conditions of a policy. The head of dialects.yaml explains its fields.
type dialect struct {
	Root    string            `yaml:"root"`
	Guard   string            `yaml:"guard"`
	Formats map[string]string `yaml:"formats"`
}

//go:embed dialects.yaml rules.rego rules.cedar
var rules embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"join": strings.Join}).ParseFS(rules, "rules.*"))

// translated is a policy in another language. Cannot names the part that the language cannot express, if there is one.
type translated struct {
	vectors.Policy
	Holds, Fails alternatives
	Cannot       string
}

// export writes policies by a template of the dialect.
func (d *dialect) export(template string, all []vectors.Policy) ([]byte, error) {
	out, err := d.translate(all)
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	err = templates.ExecuteTemplate(&page, template, out)
	return page.Bytes(), err
}

// translate writes policies in the dialect.
func (d *dialect) translate(all []vectors.Policy) (out []translated, err error) {
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.ClearMacros()) // macros stay as they are written
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		parsed, issues := env.Parse(p.Expression)
		if issues.Err() != nil {
			return nil, fmt.Errorf("policy %s: %w", p.ID, issues.Err())
		}
		t, e := &translation{dialect: d}, parsed.NativeRep().Expr()
		policy := translated{p, t.translateTruth(e, nil, true), t.translateTruth(e, nil, false), ""}
		policy.Cannot = t.cannot
		out = append(out, policy)
	}
	return out, nil
}

// translation is the translation of one expression. cannot is the first part of it that the language cannot express.
type translation struct {
	*dialect
	cannot        string
	variableCount int
}

// formatText writes operands in the format that the dialect has for an operator. If it has none, the expression cannot
// be expressed.
func (t *translation) formatText(what string, operands ...any) string {
	format, ok := t.Formats[what]
	if !ok && t.cannot == "" {
		t.cannot = what
	}
	return fmt.Sprintf(format, operands...)
}

// translateTruth returns the ways in which an expression is true, or false. vars has the names of the variables of
// macros.
func (t *translation) translateTruth(e ast.Expr, vars map[string]string, want bool) alternatives {
	if e.Kind() == ast.LiteralKind {
		if e.AsLiteral() == types.Bool(want) {
			return alternatives{{"true"}}
		}
		return nil
	}
	if e.Kind() != ast.CallKind {
		return t.relateOperands([]ast.Expr{e, ast.NewExprFactory().NewLiteral(0, types.Bool(want))}, vars, operators.Equals)
	}
	c, args := e.AsCall(), e.AsCall().Args()
	if c.IsMemberFunction() {
		args = append([]ast.Expr{c.Target()}, args...)
	}
	switch name := c.FunctionName(); name {
	case operators.LogicalNot:
		return t.translateTruth(args[0], vars, !want)
	case operators.LogicalAnd, operators.LogicalOr:
		return t.translateJunction(name, args, vars, want)
	case operators.Conditional:
		return slices.Concat(
			t.translateTruth(args[0], vars, true).combine(t.translateTruth(args[1], vars, want)),
			t.translateTruth(args[0], vars, false).combine(t.translateTruth(args[2], vars, want)),
		)
	case "all", "exists":
		return t.translateQuantifier(args, vars, want, (name == "all") == want)
	case operators.Equals, operators.NotEquals:
		return t.translateEquality(args, vars, want == (name == operators.Equals))
	default:
		return t.translateRelation(name, args, vars, want)
	}
}

// negationOperator returns the operator in front of a relation that must not hold.
func negationOperator(want bool) string {
	if want {
		return ""
	}
	return "!"
}

// translateJunction returns the ways in which both of two expressions are true, or one of them.
func (t *translation) translateJunction(name string, args []ast.Expr, vars map[string]string, want bool) alternatives {
	a, b := t.translateTruth(args[0], vars, want), t.translateTruth(args[1], vars, want)
	if want == (name == operators.LogicalAnd) {
		return a.combine(b)
	}
	return slices.Concat(a, b)
}

// translateEquality returns the ways in which two values are equal, or are not.
func (t *translation) translateEquality(args []ast.Expr, vars map[string]string, equal bool) alternatives {
	isNull := args[1].Kind() == ast.LiteralKind && args[1].AsLiteral() == types.NullValue
	asksForVariable := args[0].Kind() == ast.IdentKind && isNull
	if t.Guard != "" && asksForVariable {
		return alternatives{{t.formatText(negationOperator(!equal)+"has", strconv.Quote(args[0].AsIdent()), t.Root)}}
	}
	if equal {
		return t.relateOperands(args, vars, operators.Equals)
	}
	return t.relateOperands(args, vars, operators.NotEquals)
}

// translateRelation returns the ways in which a function of operands is true, or false.
func (t *translation) translateRelation(name string, args []ast.Expr, vars map[string]string, want bool) alternatives {
	switch name {
	case operators.Has:
		args = []ast.Expr{ast.NewExprFactory().NewLiteral(0, types.String(args[0].AsSelect().FieldName())), args[0].AsSelect().Operand()}
	case operators.In:
		name = t.membershipOperator(args)
	case "startsWith":
		if text, ok := stringLiteral(args[1]); ok && t.Guard != "" {
			value, guards := t.translateOperand(args[0], vars)
			pattern := strings.ReplaceAll(strings.TrimSuffix(strconv.Quote(text), `"`), "*", `\*`)
			return alternatives{append(guards, negationOperator(want)+"("+value+" like "+pattern+`*")`)}
		}
	}
	return t.relateOperands(args, vars, negationOperator(want)+name)
}

// membershipOperator returns the operator that "in" stands for with these operands: an element of a list, or a key of a
// map.
func (t *translation) membershipOperator(args []ast.Expr) string {
	isList := args[1].Kind() != ast.SelectKind || args[1].AsSelect().FieldName() == "groups" // every other field is a map of strings
	_, isKnown := stringLiteral(args[0])
	switch {
	case isList:
		return operators.In
	case isKnown || t.Guard == "":
		return operators.Has
	}
	return "in, of a name that is not known"
}

// relateOperands returns the one way in which a relation of operands is true: the operands exist, and the relation
// holds.
func (t *translation) relateOperands(operands []ast.Expr, vars map[string]string, what string) alternatives {
	var conjunction []string
	var texts []any
	for _, e := range operands {
		text, guards := t.translateOperand(e, vars)
		conjunction, texts = append(conjunction, guards...), append(texts, text)
	}
	return alternatives{append(conjunction, t.formatText(what, texts...))}
}

// translateQuantifier returns the ways in which an expression holds for each element of a list, or for one element.
func (t *translation) translateQuantifier(args []ast.Expr, vars map[string]string, want, each bool) alternatives {
	list, guards := t.translateOperand(args[0], vars)
	t.variableCount++
	name := fmt.Sprintf("%s%d", args[1].AsIdent(), t.variableCount)
	inner := map[string]string{args[1].AsIdent(): name}
	maps.Copy(inner, vars)
	innerAlternatives := t.translateTruth(args[2], inner, want)
	if !each {
		return alternatives{append(guards, t.formatText("exists", name, list))}.combine(innerAlternatives)
	}
	if len(innerAlternatives) != 1 {
		t.formatText("several ways for each element of a list")
		return nil
	}
	return alternatives{append(guards, t.formatText("all", name, list, strings.Join(innerAlternatives[0], "; ")))}
}

// plainField matches the names of fields that can follow a dot.
var plainField = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)

// reserved are words that cannot follow a dot in one language or the other.
var reserved = strings.Fields("as contains default else every false has if import in is like not null package some then true with")

// translateOperand returns the text of a value, and the guards: conditions that the value exists.
func (t *translation) translateOperand(e ast.Expr, vars map[string]string) (text string, guards []string) {
	switch e.Kind() {
	case ast.LiteralKind:
		return t.translateLiteral(e), nil
	case ast.IdentKind:
		return t.translateVariable(e.AsIdent(), vars)
	case ast.SelectKind:
		return t.translateField(e.AsSelect().Operand(), e.AsSelect().FieldName(), vars)
	case ast.ListKind:
		var all []string
		for _, one := range e.AsList().Elements() {
			text, more := t.translateOperand(one, vars)
			all, guards = append(all, text), append(guards, more...)
		}
		return "[" + strings.Join(all, ", ") + "]", guards
	case ast.CallKind:
		if len(e.AsCall().Args()) == 2 {
			return t.translateBinary(e.AsCall().FunctionName(), e.AsCall().Args(), vars)
		}
	}
	return t.refuseValue(), nil
}

// refuseValue notes that a value cannot be expressed.
func (t *translation) refuseValue() string {
	t.formatText("a value of a kind of its own")
	return ""
}

// translateLiteral returns the text of a literal.
func (t *translation) translateLiteral(e ast.Expr) string {
	switch v := e.AsLiteral().Value().(type) {
	case string:
		return strconv.Quote(v)
	case int64, bool:
		return fmt.Sprint(v)
	}
	if e.AsLiteral() == types.NullValue && t.Guard == "" {
		return "null"
	}
	return t.refuseValue()
}

// translateVariable returns the text of a variable of a macro, or of a variable of policies.
func (t *translation) translateVariable(name string, vars map[string]string) (text string, guards []string) {
	if known, ok := vars[name]; ok {
		return known, nil
	}
	if t.Guard != "" && name != vectors.RequestVariable {
		guards = []string{fmt.Sprintf(t.Guard, t.Root, strconv.Quote(name))}
	}
	return t.Root + "." + name, guards
}

// translateBinary returns the text of a function of two values, and the guards of both.
func (t *translation) translateBinary(name string, args []ast.Expr, vars map[string]string) (text string, guards []string) {
	if field, ok := stringLiteral(args[1]); ok && name == operators.Index {
		return t.translateField(args[0], field, vars)
	}
	a, guards := t.translateOperand(args[0], vars)
	b, more := t.translateOperand(args[1], vars)
	return t.formatText(name, a, b), append(guards, more...)
}

// stringLiteral returns the text of an expression that is a literal string.
func stringLiteral(e ast.Expr) (text string, ok bool) {
	if e.Kind() == ast.LiteralKind {
		text, ok = e.AsLiteral().Value().(string)
	}
	return text, ok
}

// translateField returns the text of a field, and the guards that it exists.
func (t *translation) translateField(owner ast.Expr, name string, vars map[string]string) (text string, guards []string) {
	text, guards = t.translateOperand(owner, vars)
	isKnown := strings.HasPrefix(text+".", t.Root+"."+vectors.RequestVariable+".") && !strings.HasSuffix(text, ".extra")
	if t.Guard != "" && !isKnown {
		guards = append(guards, fmt.Sprintf(t.Guard, text, strconv.Quote(name)))
	}
	if plainField.MatchString(name) && !slices.Contains(reserved, name) {
		return text + "." + name, guards
	}
	return text + "[" + strconv.Quote(name) + "]", guards
}
