package certification

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"

	"github.com/authzconf/authzconf/docs"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// vendorsPage is the page for vendors.
const vendorsPage = "../../../docs/conditional-authorizers.md"

// TestExplainedOnPage checks that the page shows both reviews as the command prints them.
func TestExplainedOnPage(t *testing.T) {
	var text strings.Builder
	for step := range 2 {
		name := fmt.Sprintf("kep-5681/use-cases/names#%d", step)
		out, isRight, err := plan(t, 7).Explain(t.Context(), wire.Newest(), nil, name)
		if err != nil || !isRight {
			t.Fatalf("%s: %t, %v", name, isRight, err)
		}
		_, _ = fmt.Fprintf(&text, "```\n$ authzconf certify explain --conditional '%s' --seed 7\n%s```\n", name, out)
	}
	docs.ComparePart(t, vendorsPage, "both reviews", text.String(), *update)
}

// TestListCEL checks that the page lists which parts of CEL the policies use.
func TestListCEL(t *testing.T) {
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.ClearMacros())
	if err != nil {
		t.Fatal(err)
	}
	counts, examples := map[string]int{}, map[string]string{}
	b := plan(t, 7)
	total := 0
	for i := range b.entries {
		for _, p := range b.entries[i].vector.Webhook.Policies {
			parsed, issues := env.Parse(p.Expression)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			total++
			for name := range usedIn(parsed.NativeRep().Expr()) {
				counts[name]++
				text := strings.Join(strings.Fields(p.Expression), " ")
				if known := examples[name]; known == "" || len(text) < len(known) {
					examples[name] = text
				}
			}
		}
	}
	table := fmt.Sprintf("| of CEL | in policies, of %d | the shortest of them |\n|---|--:|---|\n", total)
	for _, name := range slices.SortedFunc(maps.Keys(counts), func(x, y string) int { return cmp.Or(counts[y]-counts[x], strings.Compare(x, y)) }) {
		table += fmt.Sprintf(
			"| `%s` | %d | `%s` |\n",
			strings.ReplaceAll(name, "|", "\\|"),
			counts[name],
			strings.ReplaceAll(shorten(examples[name]), "|", "\\|"),
		)
	}
	docs.ComparePart(t, vendorsPage, "CEL", table, *update)
}

// shorten shortens an expression that is too long for a table.
func shorten(text string) string {
	if len(text) <= 120 {
		return text
	}
	return text[:117] + "..."
}

// usedIn returns the operators, functions and macros of an expression, and the variables that are known late.
func usedIn(e ast.Expr) map[string]bool {
	used := map[string]bool{}
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			used[strings.Trim(strings.ReplaceAll(e.AsCall().FunctionName(), "@in", "in"), "_")] = true
		case ast.IdentKind:
			if name := e.AsIdent(); len(name) > 2 && name != "request" {
				used[name] = true
			}
		}
	}))
	return used
}

// TestExplain checks that a wrong question is an error that says what was expected, and that a wrong answer is shown as
// wrong.
func TestExplain(t *testing.T) {
	b := plan(t, 7)
	for name, want := range map[string]string{
		"names":                                 `there is no webhook vector "names": findings name theirs first, as in kep-5681/use-cases/names#1`,
		"kep-5681/use-cases/names#one":          `"one" is not the step of a vector (expected a number, as in kep-5681/use-cases/names#0)`,
		"kep-5681/use-cases/names#9":            "kep-5681/use-cases/names asks nothing in step 9 (expected one of 0, 1, 2)",
		"kep-5681/use-cases/dra-admin-access#1": "kep-5681/use-cases/dra-admin-access#1: it is not asked: the revision upstream of the wire cannot say it: a namespaceObject",
	} {
		if _, _, err := b.Explain(t.Context(), wire.Newest(), nil, name); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	unaware := served(t, today(map[string]*reference.Authorizer{wire.Seed.Name: newReference(t, wire.Seed)}))
	text, isRight, err := b.Explain(t.Context(), wire.Newest(), unaware, "kep-5681/use-cases/names#0")
	if err != nil || isRight || !strings.Contains(text, "wrong: names: kep-5681/use-cases/names#0: NoOpinion, want [Conditional]") {
		t.Errorf("%t, %v\n%s", isRight, err, text)
	}
	_, _, err = b.Explain(t.Context(), wire.Newest(), unaware, "kep-5681/use-cases/names#1")
	if err == nil || !strings.Contains(err.Error(), "answered without any: explain that one") {
		t.Error(err)
	}
}
