package certification

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// TestExport checks the translation of expressions. That engines decide by the translation as the expression does is
// checked by ci/engines/conditional.
func TestExport(t *testing.T) {
	for _, c := range []struct {
		effect                  vectors.Decision
		expression, rego, cedar string
	}{
		{
			vectors.Allow, `request.verb == "create" && object.spec.size < 3`,
			"holds contains \"p\" if {\n\tinput.request.verb == \"create\"\n\tless(input.object.spec.size, 3)\n}",
			`when { (context.request.verb == "create" && context has "object" && context.object has "spec" && context.object.spec has "size" && context.object.spec.size < 3) };`,
		},
		{
			vectors.Deny, `!(request.verb == "create" && object.spec.mine)`,
			"fails contains \"p\" if {\n\tinput.request.verb == \"create\"\n\tinput.object.spec.mine == true\n}",
			`unless { (context.request.verb == "create" && context has "object" && context.object has "spec" && context.object.spec has "mine" && context.object.spec.mine == true) };`,
		},
		{
			vectors.Deny, `has(object.data) || "a" in request.userInfo.groups`,
			"fails contains \"p\" if {\n\tlacks(input.object, \"data\")\n\talien(\"a\", input.request.userInfo.groups)\n}",
			`unless { (context has "object" && !(context.object has "data") && !context.request.userInfo.groups.contains("a")) };`,
		},
		{vectors.Allow, `oldObject == null`, "\tinput.oldObject == null\n", `when { (!(context has "oldObject")) };`},
		{vectors.Deny, `object != null`, "\tinput.object == null\n", `unless { (!(context has "object")) };`},
		{vectors.Allow, `request.name.startsWith("a*%\"")`, `startswith(input.request.name, "a*%\"")`, `(context.request.name like "a\*%\"*")`},
		{vectors.Allow, `"a/b" in object.metadata.labels`, `"a/b" in object.keys(input.object.metadata.labels)`, `context.object.metadata.labels has "a/b"`},
		{vectors.Allow, `object.metadata.labels["a/b"] == "x"`, `input.object.metadata.labels["a/b"] == "x"`, `has "a/b" && context.object.metadata.labels["a/b"] == "x"`},
		{vectors.Allow, `object.spec.default == "x"`, `input.object.spec["default"] == "x"`, `context.object.spec["default"] == "x"`},
		{vectors.Allow, `request.verb == "get" ? true : false`, "\tinput.request.verb == \"get\"\n\ttrue\n", `context.request.verb == "get" && true)`},
		{vectors.Allow, `false`, "effects[\"p\"] := \"Allow\"\n\nfails", "when { false };"},
		{vectors.Allow, `object.list.all(e, e != request.name)`, "every e1 in input.object.list { e1 != input.request.name }", "// p is left out, for this cannot be said: all"},
		{vectors.Allow, `object.list.exists(e, e.startsWith("x"))`, "\tsome e1 in input.object.list\n\tstartswith(e1, \"x\")\n", "// p is left out"},
		{vectors.Allow, `object.list.all(e, e == "a" || e == "b")`, "# p is left out, for this cannot be said: several ways for each element of a list", "// p is left out"},
		{vectors.Allow, `object.list[0] == "a" + request.name`, `input.object.list[0] == concat("", ["a", input.request.name])`, "// p is left out, for this cannot be said: _[_]"},
		{vectors.Allow, `request.name in object.data`, `input.request.name in object.keys(input.object.data)`, "// p is left out, for this cannot be said: in, of a name that is not known"},
		{vectors.Allow, `object.spec.a == null`, `input.object.spec.a == null`, "// p is left out, for this cannot be said: a value of a kind of its own"},
		{vectors.Allow, `object.spec.a.matches("x")`, "# p is left out, for this cannot be said: matches", "// p is left out"},
	} {
		for form, want := range map[string]string{"rego": c.rego, "cedar": c.cedar} {
			raw, err := Export(form, []vectors.Policy{{ID: "p", Effect: c.effect, Expression: c.expression}})
			if err != nil || !strings.Contains(string(raw), want) {
				_, policies, _ := strings.Cut(string(raw), "is_number(b)\n}\n")
				t.Errorf("%s in %s: %v\n%s%s\nhas no\n%s", c.expression, form, err, policies, raw[max(0, len(raw)-400):], want)
			}
		}
	}
	if _, err := Export("rego", []vectors.Policy{{ID: "p", Expression: "("}}); err == nil || !strings.HasPrefix(err.Error(), "policy p: ") {
		t.Error(err)
	}
}
