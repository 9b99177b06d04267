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

// FindUnsayable returns the first part of a policy that a form of policies cannot express. It is empty if the form can
// express the whole policy.
func FindUnsayable(form string, p vectors.Policy) (what string, err error) {
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
	var known map[string]*dialect
	raw, err := rules.ReadFile("dialects.yaml")
	if err == nil {
		_, err = scenarios.Decode("dialects.yaml", raw, "dialects", &known)
	}
	if err != nil {
		return nil, err
	}
	if d := known[form]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("%q is not a form of the policies (expected one of %s)", form, strings.Join(Forms(), ", "))
}

// ways lists the ways in which an expression becomes true, or becomes false. The expression has that value if
// everything that one of the ways lists holds. An expression that is an error has neither value.
type ways [][]string

// and returns the ways in which both hold.
func (a ways) and(b ways) (out ways) {
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

var pages = template.Must(template.New("").Funcs(template.FuncMap{"join": strings.Join}).ParseFS(rules, "rules.*"))

// translated is a policy in another language. Cannot names the part that the language cannot express, if there is one.
type translated struct {
	vectors.Policy
	Holds, Fails ways
	Cannot       string
}

func (d *dialect) export(template string, all []vectors.Policy) ([]byte, error) {
	out, err := d.translate(all)
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	err = pages.ExecuteTemplate(&page, template, out)
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
		one := translated{p, t.truth(e, nil, true), t.truth(e, nil, false), ""}
		one.Cannot = t.cannot
		out = append(out, one)
	}
	return out, nil
}

// translation is the translation of one expression. cannot is the first part of it that the language cannot express.
type translation struct {
	*dialect
	cannot string
	named  int
}

func (t *translation) say(what string, operands ...any) string {
	format, ok := t.Formats[what]
	if !ok && t.cannot == "" {
		t.cannot = what
	}
	return fmt.Sprintf(format, operands...)
}

// truth returns the ways in which an expression is true, or false. vars has the names of the variables of macros.
func (t *translation) truth(e ast.Expr, vars map[string]string, want bool) ways {
	if e.Kind() == ast.LiteralKind {
		if e.AsLiteral() == types.Bool(want) {
			return ways{{"true"}}
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
		return t.truth(args[0], vars, !want)
	case operators.LogicalAnd, operators.LogicalOr:
		return t.junction(name, args, vars, want)
	case operators.Conditional:
		return slices.Concat(t.truth(args[0], vars, true).and(t.truth(args[1], vars, want)), t.truth(args[0], vars, false).and(t.truth(args[2], vars, want)))
	case "all", "exists":
		return t.elements(args, vars, want, (name == "all") == want)
	case operators.Equals, operators.NotEquals:
		return t.equality(args, vars, want == (name == operators.Equals))
	default:
		return t.relation(name, args, vars, want)
	}
}

// negation returns the operator in front of a relation that must not hold.
func negation(want bool) string {
	if want {
		return ""
	}
	return "!"
}

// junction returns the ways in which both of two expressions are true, or one of them.
func (t *translation) junction(name string, args []ast.Expr, vars map[string]string, want bool) ways {
	a, b := t.truth(args[0], vars, want), t.truth(args[1], vars, want)
	if want == (name == operators.LogicalAnd) {
		return a.and(b)
	}
	return slices.Concat(a, b)
}

// equality returns the ways in which two values are equal, or are not.
func (t *translation) equality(args []ast.Expr, vars map[string]string, equal bool) ways {
	isNull := args[1].Kind() == ast.LiteralKind && args[1].AsLiteral() == types.NullValue
	if t.Guard != "" && args[0].Kind() == ast.IdentKind && isNull {
		return ways{{t.say(negation(!equal)+"has", strconv.Quote(args[0].AsIdent()), t.Root)}}
	}
	if equal {
		return t.relateOperands(args, vars, operators.Equals)
	}
	return t.relateOperands(args, vars, operators.NotEquals)
}

// relation returns the ways in which a function of operands is true, or false.
func (t *translation) relation(name string, args []ast.Expr, vars map[string]string, want bool) ways {
	switch name {
	case operators.Has:
		args = []ast.Expr{ast.NewExprFactory().NewLiteral(0, types.String(args[0].AsSelect().FieldName())), args[0].AsSelect().Operand()}
	case operators.In:
		name = t.membership(args)
	case "startsWith":
		if text, ok := literal(args[1]); ok && t.Guard != "" {
			of, guards := t.operand(args[0], vars)
			pattern := strings.ReplaceAll(strings.TrimSuffix(strconv.Quote(text), `"`), "*", `\*`)
			return ways{append(guards, negation(want)+"("+of+" like "+pattern+`*")`)}
		}
	}
	return t.relateOperands(args, vars, negation(want)+name)
}

// membership returns the operator that "in" stands for with these operands: an element of a list, or a key of a map.
func (t *translation) membership(args []ast.Expr) string {
	isList := args[1].Kind() != ast.SelectKind || args[1].AsSelect().FieldName() == "groups" // every other field is a map of strings
	_, isKnown := literal(args[0])
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
func (t *translation) relateOperands(operands []ast.Expr, vars map[string]string, what string) ways {
	var way []string
	var texts []any
	for _, e := range operands {
		text, guards := t.operand(e, vars)
		way, texts = append(way, guards...), append(texts, text)
	}
	return ways{append(way, t.say(what, texts...))}
}

// elements returns the ways in which an expression holds for each element of a list, or for one element.
func (t *translation) elements(args []ast.Expr, vars map[string]string, want, each bool) ways {
	list, guards := t.operand(args[0], vars)
	t.named++
	name := fmt.Sprintf("%s%d", args[1].AsIdent(), t.named)
	inner := map[string]string{args[1].AsIdent(): name}
	maps.Copy(inner, vars)
	of := t.truth(args[2], inner, want)
	if !each {
		return ways{append(guards, t.say("exists", name, list))}.and(of)
	}
	if len(of) != 1 {
		t.say("several ways for each element of a list")
		return nil
	}
	return ways{append(guards, t.say("all", name, list, strings.Join(of[0], "; ")))}
}

// plain matches the names of fields that can follow a dot.
var plain = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)

// reserved are words that cannot follow a dot in one language or the other.
var reserved = strings.Fields("as contains default else every false has if import in is like not null package some then true with")

// operand returns the text of a value, and the guards: conditions that the value exists.
func (t *translation) operand(e ast.Expr, vars map[string]string) (text string, guards []string) {
	switch e.Kind() {
	case ast.LiteralKind:
		return t.constant(e), nil
	case ast.IdentKind:
		return t.variable(e.AsIdent(), vars)
	case ast.SelectKind:
		return t.field(e.AsSelect().Operand(), e.AsSelect().FieldName(), vars)
	case ast.ListKind:
		var all []string
		for _, one := range e.AsList().Elements() {
			text, more := t.operand(one, vars)
			all, guards = append(all, text), append(guards, more...)
		}
		return "[" + strings.Join(all, ", ") + "]", guards
	case ast.CallKind:
		if len(e.AsCall().Args()) == 2 {
			return t.binary(e.AsCall().FunctionName(), e.AsCall().Args(), vars)
		}
	}
	return t.unknown(), nil
}

// unknown notes that a value cannot be expressed.
func (t *translation) unknown() string {
	t.say("a value of a kind of its own")
	return ""
}

// constant is a literal.
func (t *translation) constant(e ast.Expr) string {
	switch v := e.AsLiteral().Value().(type) {
	case string:
		return strconv.Quote(v)
	case int64, bool:
		return fmt.Sprint(v)
	}
	if e.AsLiteral() == types.NullValue && t.Guard == "" {
		return "null"
	}
	return t.unknown()
}

// variable returns the text of a variable of a macro, or of a variable of policies.
func (t *translation) variable(name string, vars map[string]string) (text string, guards []string) {
	if known, ok := vars[name]; ok {
		return known, nil
	}
	if t.Guard != "" && name != vectors.RequestVariable {
		guards = []string{fmt.Sprintf(t.Guard, t.Root, strconv.Quote(name))}
	}
	return t.Root + "." + name, guards
}

// binary is a function of two values.
func (t *translation) binary(name string, args []ast.Expr, vars map[string]string) (text string, guards []string) {
	if field, ok := literal(args[1]); ok && name == operators.Index {
		return t.field(args[0], field, vars)
	}
	a, guards := t.operand(args[0], vars)
	b, more := t.operand(args[1], vars)
	return t.say(name, a, b), append(guards, more...)
}

func literal(e ast.Expr) (text string, ok bool) {
	if e.Kind() == ast.LiteralKind {
		text, ok = e.AsLiteral().Value().(string)
	}
	return text, ok
}

func (t *translation) field(of ast.Expr, name string, vars map[string]string) (text string, guards []string) {
	text, guards = t.operand(of, vars)
	known := strings.HasPrefix(text+".", t.Root+"."+vectors.RequestVariable+".") && !strings.HasSuffix(text, ".extra")
	if t.Guard != "" && !known {
		guards = append(guards, fmt.Sprintf(t.Guard, text, strconv.Quote(name)))
	}
	if plain.MatchString(name) && !slices.Contains(reserved, name) {
		return text + "." + name, guards
	}
	return text + "[" + strconv.Quote(name) + "]", guards
}
