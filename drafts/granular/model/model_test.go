package model

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

func tree(t *testing.T) *permissions.Node {
	t.Helper()
	set, err := permissions.Load(permissions.Descriptions)
	if err != nil {
		t.Fatal(err)
	}
	return set.Tree("granular.authzconf.dev", "v1", "widgets")
}

func object(t *testing.T, text string) (out map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// words returns chains as "a > b".
func words(chains []permissions.Chain) (out []string) {
	for _, c := range chains {
		var verbs []string
		for _, p := range c {
			verbs = append(verbs, strings.TrimPrefix(p.Verb, "granular:"))
		}
		out = append(out, strings.Join(verbs, " > "))
	}
	slices.Sort(out)
	return out
}

func TestUpdate(t *testing.T) {
	root := tree(t)
	for _, c := range []struct{ name, old, new, want string }{
		{"nothing", `{"spec":{"replicas":1}}`, `{"spec":{"replicas":1}}`, ""},
		{"server's own", `{"metadata":{"name":"a","resourceVersion":"1"}}`, `{"metadata":{"name":"a","resourceVersion":"2","generation":2}}`, ""},
		{"described field", `{"spec":{"replicas":1}}`, `{"spec":{"replicas":2}}`, "specification > scale"},
		{"field below", `{"spec":{}}`, `{"spec":{"mode":"x"}}`, "specification"},
		{"all of spec", `{}`, `{"spec":{"replicas":1,"mode":"x"}}`, "specification,specification > scale"},
		{"excluded", `{"spec":{}}`, `{"spec":{"triggerSelfDestructOnSecurityBreach":true}}`, "specification > selfDestruction"},
		{"undescribed", `{}`, `{"other":1}`, ""},
		{"label added", `{"metadata":{}}`, `{"metadata":{"labels":{"a.io/x":"1"}}}`, "objectMeta > labels > label(a.io)"},
		{"label removed", `{"metadata":{"labels":{"a":"1"}}}`, `{"metadata":{}}`, "objectMeta > labels > label(a)"},
		{"two of a prefix", `{"metadata":{}}`, `{"metadata":{"labels":{"a.io/x":"1","a.io/y":"1"}}}`, "objectMeta > labels > label(a.io)"},
		{"empty labels", `{"metadata":{}}`, `{"metadata":{"labels":{}}}`, "objectMeta > labels"},
		{"finalizer", `{"metadata":{"finalizers":["a.io/x"]}}`, `{"metadata":{"finalizers":["a.io/x","b.io/x"]}}`, "objectMeta > finalizers > finalizer(b.io)"},
		{"finalizers in another order", `{"metadata":{"finalizers":["a","b"]}}`, `{"metadata":{"finalizers":["b","a"]}}`, "objectMeta > finalizers"},
		{"owner", `{"metadata":{}}`, `{"metadata":{"ownerReferences":[{"uid":"x"}]}}`, "objectMeta > ownership"},
		{"condition", `{"status":{"conditions":[{"type":"A","status":"1"},{"type":"B"}]}}`, `{"status":{"conditions":[{"type":"A","status":"2"},{"type":"B"}]}}`, "status > conditions > condition(A)"},
		{"condition before others", `{"status":{"conditions":[{"type":"A"}]}}`, `{"status":{"conditions":[{"type":"B"},{"type":"A"}]}}`, "status > conditions > condition(B)"},
		{"field of an item", `{"spec":{"parts":[{"name":"a","image":"1"}]}}`, `{"spec":{"parts":[{"name":"a","image":"2"}]}}`, "specification > part(a) > imageOf(a)"},
		{"another kind of value", `{"metadata":{"labels":{"a":"1"}}}`, `{"metadata":{"labels":"a"}}`, "objectMeta > labels"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(words(Update(root, object(t, c.old), object(t, c.new))), ","); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestCreate(t *testing.T) {
	root := tree(t)
	for _, c := range []struct{ name, sent, created, want string }{
		{"as sent", `{"spec":{"replicas":1}}`, `{"spec":{"replicas":1}}`, "specification > scale"},
		{"default", `{"spec":{"replicas":1}}`, `{"spec":{"replicas":1,"mode":"auto"}}`, "specification > scale"},
		{"default sent", `{"spec":{"mode":"auto"}}`, `{"spec":{"mode":"auto"}}`, "specification"},
		{"dropped", `{"spec":{"replicas":1},"status":{"phase":"x"}}`, `{"spec":{"replicas":1}}`, "specification > scale"},
		{"generated name", `{"metadata":{"generateName":"x-"}}`, `{"metadata":{"generateName":"x-","name":"x-1"}}`, ""},
		{"into what was sent empty", `{"spec":{}}`, `{"spec":{"replicas":1}}`, "specification > scale"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(words(Create(root, object(t, c.sent), object(t, c.created))), ","); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestExcludedValues checks which chains of a change the ordinary permission does not contain, by the values after it.
func TestExcludedValues(t *testing.T) {
	root := tree(t)
	for _, c := range []struct{ name, old, new, want string }{
		{"to the value", `{"spec":{"privileged":false}}`, `{"spec":{"privileged":true}}`, "specification > privilege"},
		{"away from it", `{"spec":{"privileged":true}}`, `{"spec":{"privileged":false}}`, ""},
		{"removed", `{"spec":{"privileged":true}}`, `{"spec":{}}`, ""},
		{"removed with spec", `{"spec":{"privileged":true}}`, `{}`, ""},
		{"with spec", `{}`, `{"spec":{"privileged":true,"exposure":"internal"}}`, "specification > privilege"},
		{"unchanged", `{"spec":{"privileged":true,"replicas":1}}`, `{"spec":{"privileged":true,"replicas":2}}`, ""},
		{"from one to another", `{"spec":{"exposure":"partners"}}`, `{"spec":{"exposure":"public"}}`, "specification > publication"},
		{"text instead of the boolean", `{"spec":{}}`, `{"spec":{"privileged":"true"}}`, ""},
		{"number", `{"spec":{}}`, `{"spec":{"priority":1000}}`, "specification > precedence"},
		{"fraction", `{"spec":{}}`, `{"spec":{"priority":0.5}}`, "specification > precedence"},
		{"another number", `{"spec":{}}`, `{"spec":{"priority":1000.5}}`, ""},
		{"text instead of the number", `{"spec":{}}`, `{"spec":{"priority":"1000"}}`, ""},
		{"list instead of the number", `{"spec":{}}`, `{"spec":{"priority":[1000]}}`, ""},
		{"status", `{"status":{}}`, `{"status":{"review":"approved"}}`, "status > approval"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(words(Excluded(Update(root, object(t, c.old), object(t, c.new)))), ","); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	for _, same := range [][2]any{{int64(1), 1.0}, {1.0, int64(1)}, {int64(1), int64(1)}, {0.5, 0.5}, {"a", "a"}, {true, true}} {
		if !isSame(same[0], same[1]) {
			t.Errorf("%[1]v (%[1]T) is not the same as %[2]v (%[2]T)", same[0], same[1])
		}
	}
	for _, other := range [][2]any{{int64(1), "1"}, {int64(1), 1.5}, {true, "true"}, {int64(1 << 53), int64(1<<53 + 1)}, {"a", absent{}}, {int64(1), []any{int64(1)}}} {
		if isSame(other[0], other[1]) {
			t.Errorf("%[1]v (%[1]T) is the same as %[2]v (%[2]T)", other[0], other[1])
		}
	}
}

func TestCheck(t *testing.T) {
	chain := func(verbs ...string) (out permissions.Chain) {
		for i, v := range verbs {
			out = append(out, permissions.Permission{Verb: v, Depth: i + 1})
		}
		return out
	}
	chains := []permissions.Chain{chain("m", "l", "l1"), chain("m", "l", "l2")}
	yes := func(verb string) FieldDecision { return FieldDecision{verb, true} }
	no := func(verb string) FieldDecision { return FieldDecision{verb, false} }
	for _, c := range []struct {
		name    string
		asked   []FieldDecision
		allowed bool
		want    string
	}{
		{"by the most general", []FieldDecision{yes("m")}, true, ""},
		{"by each", []FieldDecision{no("m"), no("l"), yes("l1"), yes("l2")}, true, ""},
		{"denied", []FieldDecision{no("m"), no("l"), no("l1")}, false, ""},
		{"not covered", []FieldDecision{no("m"), no("l"), yes("l1")}, true, "the request was allowed, and not every field is covered"},
		{"denied though covered", []FieldDecision{yes("m")}, false, "the request was denied, and every field is covered"},
		{"denied too early", []FieldDecision{no("m")}, false, "the request was denied before it had failed"},
		{"specific first", []FieldDecision{no("l1"), no("m"), yes("l")}, true, "m was asked after a more specific permission; l was asked after a more specific permission"},
		{"twice", []FieldDecision{no("m"), no("m"), yes("l")}, true, "m was asked twice"},
		{"not needed", []FieldDecision{yes("m"), no("l")}, true, "l was asked, and no field needs it any more"},
		{"goes on", []FieldDecision{no("m"), no("l"), no("l1"), no("l2")}, false, "l2 was asked after the request had failed"},
		{"foreign", []FieldDecision{yes("m"), yes("x")}, true, "x was asked, and is not a permission of a field that changes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(Check(chains, c.asked, c.allowed), "; "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
