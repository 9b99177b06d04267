package enforcer

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/authzconf/authzconf/drafts/granular/model"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// thing is the schema of the generated objects. It has lists of every kind, with and without described permissions.
const thing = `types:
- name: thing
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: metadata, type: {namedType: meta}}
    - {name: spec, type: {namedType: spec}}
    - {name: status, type: {namedType: status}}
- name: meta
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: generateName, type: {scalar: string}}
    - {name: resourceVersion, type: {scalar: string}}
    - {name: labels, type: {map: {elementType: {scalar: string}}}}
    - {name: annotations, type: {map: {elementType: {scalar: string}}}}
    - {name: finalizers, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
    - {name: ownerReferences, type: {list: {elementType: {namedType: owner}, elementRelationship: associative, keys: [uid]}}}
- name: owner
  map: {fields: [{name: uid, type: {scalar: string}}, {name: kind, type: {scalar: string}}]}
- name: spec
  map:
    fields:
    - {name: nodeName, type: {scalar: string}}
    - {name: replicas, type: {scalar: numeric}}
    - {name: triggerSelfDestructOnSecurityBreach, type: {scalar: boolean}}
    - {name: parts, type: {list: {elementType: {namedType: part}, elementRelationship: associative, keys: [name]}}}
    - {name: tags, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
    - {name: args, type: {list: {elementType: {scalar: string}, elementRelationship: atomic}}}
    - {name: selector, type: {map: {elementType: {scalar: string}, elementRelationship: atomic}}}
    - {name: config, type: {map: {elementType: {scalar: string}}}}
- name: part
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: image, type: {scalar: string}}
    - {name: weight, type: {scalar: numeric}}
- name: status
  map:
    fields:
    - {name: phase, type: {scalar: string}}
    - {name: conditions, type: {list: {elementType: {namedType: condition}, elementRelationship: associative, keys: [type]}}}
- name: condition
  map: {fields: [{name: type, type: {scalar: string}}, {name: status, type: {scalar: string}}]}
`

func thingType(t testing.TB) typed.ParseableType {
	t.Helper()
	p, err := typed.NewParser(thing)
	if err != nil {
		t.Fatal(err)
	}
	return p.Type("thing")
}

func widgetTree(t testing.TB) *permissions.Node {
	t.Helper()
	set, err := permissions.Load(permissions.Descriptions)
	if err != nil {
		t.Fatal(err)
	}
	return set.Tree("granular.authzconf.dev", "v1", "widgets")
}

// objects generates random objects.
type objects struct{ *rand.Rand }

func (g objects) maybe(m map[string]any, name string, value func() any) {
	if g.IntN(3) > 0 {
		m[name] = value()
	}
}

func (g objects) pick(words ...string) any { return words[g.IntN(len(words))] }

func (g objects) strings() any {
	out := map[string]any{}
	for range g.IntN(4) {
		out[g.pick("a.io/x", "a.io/y", "b.io/x", "plain", "b.io").(string)] = g.pick("1", "2")
	}
	return out
}

// list returns a random selection of items in random order, each at most once.
func (g objects) list(keys []string, item func(key string) any) any {
	out := []any{}
	for _, i := range g.Perm(len(keys))[:g.IntN(len(keys)+1)] {
		out = append(out, item(keys[i]))
	}
	return out
}

func (g objects) set() any {
	return g.list([]string{"a.io/x", "a.io/y", "b.io/x"}, func(k string) any { return k })
}

func (g objects) keyed(key, field string) any {
	return g.list([]string{"X", "Y", "Z"}, func(k string) any {
		out := map[string]any{key: k}
		g.maybe(out, field, func() any { return g.pick("1", "2") })
		return out
	})
}

func (g objects) object() map[string]any {
	out := map[string]any{"apiVersion": "v1", "kind": "Thing"}
	metadata := func() any {
		m := map[string]any{"name": "x", "resourceVersion": g.pick("1", "2")}
		g.maybe(m, "labels", g.strings)
		g.maybe(m, "annotations", g.strings)
		g.maybe(m, "finalizers", g.set)
		g.maybe(m, "generateName", func() any { return g.pick("x-", "y-") })
		g.maybe(m, "ownerReferences", func() any { return g.keyed("uid", "kind") })
		return m
	}
	out["metadata"] = metadata() // every object has a name
	g.maybe(out, "spec", func() any {
		m := map[string]any{}
		g.maybe(m, "nodeName", func() any { return g.pick("n1", "n2") })
		g.maybe(m, "replicas", func() any { return int64(g.IntN(2)) })
		g.maybe(m, "triggerSelfDestructOnSecurityBreach", func() any { return g.IntN(2) > 0 })
		g.maybe(m, "parts", func() any { return g.keyed("name", "image") })
		g.maybe(m, "tags", g.set)
		g.maybe(m, "args", g.set)
		g.maybe(m, "selector", g.strings)
		g.maybe(m, "config", g.strings)
		return m
	})
	g.maybe(out, "status", func() any {
		m := map[string]any{}
		g.maybe(m, "phase", func() any { return g.pick("A", "B") })
		g.maybe(m, "conditions", func() any { return g.keyed("type", "status") })
		return m
	})
	return out
}

// pair is a generated case: two objects that are compared. If create is set, old is the object that was sent.
type pair struct {
	old, new map[string]any
	create   bool
}

// pair returns a case. In many cases the two objects are similar.
func (g objects) pair() pair {
	p := pair{old: g.object(), new: g.object(), create: g.IntN(4) == 0}
	if p.create {
		// The server adds fields on creation, so the object that was sent has fewer.
		p.old = p.new
		for range g.IntN(5) {
			if less := smaller(p.old); len(less) > 0 {
				p.old = less[g.IntN(len(less))].(map[string]any)
			}
		}
		return p
	}
	if g.IntN(2) == 0 {
		for _, part := range []string{"metadata", "spec", "status"} {
			if g.IntN(3) > 0 {
				p.new[part] = p.old[part]
			}
			if p.new[part] == nil {
				delete(p.new, part)
			}
		}
	}
	return p
}

// verbs returns chains in a form that can be compared. A permission with a "!" is not in the ordinary one.
func verbs(chains []permissions.Chain) []string {
	var out []string
	for _, c := range chains {
		var words []string
		for _, p := range c {
			word := fmt.Sprintf("%s@%d", p.Verb, p.Depth)
			if p.Excluded {
				word += "!"
			}
			words = append(words, word)
		}
		out = append(out, strings.Join(words, " > "))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sides returns the results of the enforcer and of the model for a pair.
func sides(
	t testing.TB,
	typ typed.ParseableType,
	root *permissions.Node,
	p pair,
) (enforced, predicted []string, fields []ChangedField, chains []permissions.Chain) {
	t.Helper()
	c := Change{Type: typ, Old: p.old, New: p.new}
	if chains = model.Update(root, p.old, p.new); p.create {
		c.Old, c.Sent = nil, p.old
		chains = model.Create(root, p.old, p.new)
	}
	fields, err := ChangedFields(root, c)
	if err != nil {
		t.Fatal(err)
	}
	var found []permissions.Chain
	for _, f := range fields {
		found = append(found, f.Chain)
	}
	return verbs(found), verbs(chains), fields, chains
}

// smaller returns objects with one part less.
func smaller(v any) (out []any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			less := maps.Clone(v)
			// These fields cannot be removed: they identify an object or an item.
			if delete(less, name); !slices.Contains([]string{"metadata", "name", "uid", "type"}, name) {
				out = append(out, less)
			}
			for _, s := range smaller(v[name]) {
				with := maps.Clone(v)
				with[name] = s
				out = append(out, with)
			}
		}
	case []any:
		for i := range v {
			out = append(out, slices.Delete(slices.Clone(v), i, i+1))
		}
	}
	return out
}

// shrink makes a pair that causes a disagreement as small as possible.
func shrink(p pair, disagree func(pair) bool) pair {
	for again := true; again; {
		again = false
		for _, s := range smaller(p.old) {
			if q := (pair{s.(map[string]any), p.new, p.create}); disagree(q) {
				p, again = q, true
				break
			}
		}
		for _, s := range smaller(p.new) {
			if q := (pair{p.old, s.(map[string]any), p.create}); !p.create && disagree(q) {
				p, again = q, true
				break
			}
		}
	}
	return p
}

func (p pair) String() string {
	old, _ := json.Marshal(p.old)
	updated, _ := json.Marshal(p.new)
	return fmt.Sprintf("create: %t\nold: %s\nnew: %s", p.create, old, updated)
}

func TestModelAndDiffAgree(t *testing.T) {
	for name, root := range map[string]*permissions.Node{"built-in": widgetTree(t), "values": valuesTree(t)} {
		t.Run(name, func(t *testing.T) { compareWithModel(t, root) })
	}
}

// requireAgreement returns the permissions that a change needs. It ends the test, with the smallest change like it, if
// enforcer and model disagree about them.
func requireAgreement(t *testing.T, typ typed.ParseableType, root *permissions.Node, seed uint64, p pair) []string {
	t.Helper()
	agree := func(p pair) bool {
		enforced, predicted, _, _ := sides(t, typ, root, p)
		return slices.Equal(enforced, predicted)
	}
	if !agree(p) {
		p = shrink(p, func(p pair) bool { return !agree(p) })
		enforced, predicted, _, _ := sides(t, typ, root, p)
		t.Fatalf("seed %d, shrunk:\n%s\nenforcer: %q\nmodel:    %q", seed, p, enforced, predicted)
	}
	enforced, _, _, _ := sides(t, typ, root, p)
	return enforced
}

// compareWithModel compares the enforcer with the model on generated pairs of objects.
func compareWithModel(t *testing.T, root *permissions.Node) {
	typ, different, excluded := thingType(t), 0, 0
	for seed := range uint64(2000) {
		p := objects{rand.New(rand.NewPCG(seed, 1))}.pair()
		enforced := requireAgreement(t, typ, root, seed, p)
		if len(enforced) > 1 {
			different++
		}
		if strings.Contains(strings.Join(enforced, " "), "!") {
			excluded++
		}
	}
	if different < 500 || excluded < 500 {
		t.Errorf("only %d cases with several permissions, and %d with excluded ones: the generator is no use", different, excluded)
	}
}

// TestDecisionsFollowTheRules decides generated cases with random grants.
func TestDecisionsFollowTheRules(t *testing.T) {
	typ, root := thingType(t), widgetTree(t)
	outcomes := map[bool]int{}
	for seed := range uint64(1500) {
		g := objects{rand.New(rand.NewPCG(seed, 2))}
		_, _, fields, chains := sides(t, typ, root, g.pair())
		grants := map[string]bool{}
		share := g.Float64()
		for _, c := range chains {
			for _, p := range c {
				if _, drawn := grants[p.Verb]; !drawn {
					grants[p.Verb] = g.Float64() < share
				}
			}
		}
		var asked []model.FieldDecision
		missing, err := Decide(fields, func(verb string) (bool, error) {
			asked = append(asked, model.FieldDecision{Verb: verb, Allowed: grants[verb]})
			return grants[verb], nil
		})
		if err != nil {
			t.Fatal(err)
		}
		allowed := missing == nil
		outcomes[allowed]++
		if want := model.Allowed(chains, func(v string) bool { return grants[v] }); allowed != want {
			t.Fatalf("seed %d: allowed %t, want %t", seed, allowed, want)
		}
		if wrong := model.Check(chains, asked, allowed); len(wrong) > 0 {
			t.Fatalf("seed %d: %s\nasked %v", seed, strings.Join(wrong, "; "), asked)
		}
		if !allowed && missing.Verb != "" && grants[missing.Verb] {
			t.Fatalf("seed %d: named %s, which is granted", seed, missing.Verb)
		}
	}
	if outcomes[true] < 150 || outcomes[false] < 150 {
		t.Errorf("outcomes %v: the generator is no use", outcomes)
	}
}

// TestShrink checks that a disagreement is found, and made small.
func TestShrink(t *testing.T) {
	typ, root := thingType(t), widgetTree(t)
	// blind is a disagreement of a diff that does not see removed fields.
	blind := func(p pair) bool {
		_, predicted, _, _ := sides(t, typ, root, p)
		both := maps.Clone(p.new)
		for name, v := range p.old {
			if _, ok := both[name]; !ok {
				both[name] = v
			}
		}
		enforced, _, _, _ := sides(t, typ, root, pair{old: p.old, new: both})
		return !p.create && !slices.Equal(enforced, predicted)
	}
	for seed := range uint64(100) {
		p := objects{rand.New(rand.NewPCG(seed, 3))}.pair()
		if !blind(p) {
			continue
		}
		s := shrink(p, blind)
		if size := len(s.String()); size > 120 {
			t.Errorf("still %d bytes:\n%s", size, s)
		}
		return
	}
	t.Error("no seed of 100 found it")
}
