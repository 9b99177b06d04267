package enforcer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/authzconf/authzconf/drafts/granular/model"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// holders describes a resource that has a template of a Widget, and one that has a template of that.
const holders = `kind: FieldPermissions
resources:
  - {group: test, versions: [v1], resource: holders, fields: [{path: spec.replicas, verb: scale}], embeds: [{path: spec.template, group: granular.authzconf.dev, version: v1, resource: widgets}]}
  - {group: test, versions: [v1], resource: cases, embeds: [{path: spec.holder, group: test, version: v1, resource: holders}]}
`

// parseHolders returns the type of things whose specs have further things in them.
func parseHolders(t *testing.T) typed.ParseableType {
	t.Helper()
	const spec, inner = "- name: spec\n  map:\n    fields:\n", "- name: inner\n  map: {fields: [{name: metadata, type: {namedType: meta}}, {name: spec, type: {namedType: spec}}]}\n"
	text := strings.Replace(thing, spec, spec+"    - {name: template, type: {namedType: inner}}\n    - {name: holder, type: {namedType: inner}}\n", 1) + inner
	p, err := typed.NewParser(typed.YAMLObject(text))
	if err != nil {
		t.Fatal(err)
	}
	return p.Type("thing")
}

// casesTree returns the permissions of what embeds twice.
func casesTree(t *testing.T) *permissions.Node {
	t.Helper()
	files := fstest.MapFS{"holders.yaml": {Data: []byte(holders)}}
	for _, name := range []string{"builtin.yaml", "widgets.yaml"} {
		text, err := permissions.Descriptions.ReadFile("descriptions/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	set, err := permissions.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	return set.Tree("test", "v1", "cases")
}

// put puts the metadata and the spec of an object into the spec of another one.
func put(object map[string]any, name string, inner map[string]any) map[string]any {
	spec, isThere := object["spec"].(map[string]any)
	if !isThere {
		spec = map[string]any{}
		object["spec"] = spec
	}
	part := map[string]any{"metadata": inner["metadata"]}
	if inner["spec"] != nil {
		part["spec"] = inner["spec"]
	}
	spec[name] = part
	return object
}

// nested returns a case whose objects have two levels of others in them.
func (g objects) nested() pair {
	p := g.pair()
	holder, template := g.pair(), g.pair()
	if p.create {
		p.new = put(p.new, "holder", put(holder.new, "template", template.new))
		p.old = p.new
		if less := smaller(p.old); g.IntN(2) == 0 {
			p.old = less[g.IntN(len(less))].(map[string]any)
		}
		return p
	}
	p.old = put(p.old, "holder", put(holder.old, "template", template.old))
	p.new = put(p.new, "holder", put(holder.new, "template", template.new))
	return p
}

// TestModelAndDiffAgreeOnEmbedded compares the permissions of changes in what is embedded, at two levels.
func TestModelAndDiffAgreeOnEmbedded(t *testing.T) {
	typ, root := parseHolders(t), casesTree(t)
	inner := 0
	for seed := range uint64(500) {
		p := objects{rand.New(rand.NewPCG(seed, 4))}.nested()
		enforced := requireAgreement(t, typ, root, seed, p)
		if slices.ContainsFunc(enforced, func(chain string) bool { return strings.Contains(chain, "granular:selfDestruction@6") }) {
			inner++
		}
	}
	if inner < 50 {
		t.Errorf("only %d cases change the field at the second level: the generator is no use", inner)
	}
}

// TestDecisionsOnEmbeddedFollowTheRules decides such changes with random grants. Most verbs are in several places of a
// chain, and each must be asked for once.
func TestDecisionsOnEmbeddedFollowTheRules(t *testing.T) {
	typ, root := parseHolders(t), casesTree(t)
	outcomes := map[bool]int{}
	for seed := range uint64(500) {
		g := objects{rand.New(rand.NewPCG(seed, 5))}
		_, _, fields, chains := sides(t, typ, root, g.nested())
		grants, asked, share := map[string]bool{}, []model.FieldDecision{}, (3+g.Float64())/4
		missing, err := Decide(fields, func(verb string) (bool, error) {
			if _, isDrawn := grants[verb]; !isDrawn {
				grants[verb] = g.Float64() < share
			}
			asked = append(asked, model.FieldDecision{Verb: verb, Allowed: grants[verb]})
			return grants[verb], nil
		})
		if err != nil {
			t.Fatal(err)
		}
		outcomes[missing == nil]++
		if wrong := model.Check(chains, asked, missing == nil); len(wrong) > 0 {
			t.Fatalf("seed %d: %s\nasked %v", seed, strings.Join(wrong, "; "), asked)
		}
	}
	if outcomes[true] < 50 || outcomes[false] < 50 {
		t.Errorf("outcomes %v: the generator is no use", outcomes)
	}
}
