package model

import (
	"math/rand/v2"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// generator generates the parts of cases.
type generator struct{ *rand.Rand }

func newGenerator(seed int64, group int) *generator {
	return &generator{rand.New(rand.NewPCG(uint64(seed), uint64(group)))}
}

func pick[T any](g *generator, all ...T) T { return all[g.IntN(len(all))] }

// longest is the largest number of bytes of a policy. Its residual then fits into a condition of every revision of the
// wire, even with the known values written out.
const longest = 512

func (g *generator) policies() (out []generatedPolicy) {
	for n := 1 + g.IntN(4); len(out) < n; {
		e := g.expression(3)
		if len(e.String()) > longest {
			continue
		}
		out = append(out, generatedPolicy{effect: pick(g, vectors.Allow, vectors.Allow, vectors.Deny, vectors.NoOpinion), expression: e})
	}
	return out
}

func (g *generator) expression(depth int) *expression {
	if depth == 0 || g.IntN(5) == 0 {
		if g.IntN(2) == 0 {
			return leaf(pick(g, sureAtoms...))
		}
		return leaf(pick(g, openAtoms...))
	}
	op := pick(g, "&&", "&&", "&&", "||", "||", "!", "?:")
	n := map[string]int{"!": 1, "?:": 3, "&&": 2 + g.IntN(2), "||": 2}[op]
	e := &expression{op: op}
	for range n {
		e.args = append(e.args, g.expression(depth-1))
	}
	return e
}

func (g *generator) request(f *facts) {
	f.user, f.verb = pick(g, "alice", "bob", "eve"), pick(g, "create", "update", "delete")
	f.name = pick(g, "", "gold", "alice")
	f.groups = pick(g, nil, []string{"dev"}, []string{"ops", "dev"}, []string{"ops"})
	f.hasTeam = g.IntN(2) == 0
	f.team = pick(g, "blue", "red")
}

// late adds the data of the second phase that fits to the verb. An update can become a create.
func (g *generator) late(f *facts) {
	f.object, f.old = nil, nil
	switch f.operation = map[string]string{"create": "CREATE", "update": pick(g, "UPDATE", "UPDATE", "CREATE"), "delete": "DELETE"}[f.verb]; f.operation {
	case "CREATE":
		f.object = g.thing()
	case "UPDATE":
		f.object, f.old = g.thing(), g.thing()
	case "DELETE":
		f.old = g.thing()
	}
}

// thing is an object that has some fields, and others not.
func (g *generator) thing() vectors.Object {
	metadata, spec := map[string]any{"name": pick(g, "gold", "alice", "bob", "x")}, map[string]any{}
	o := vectors.Object{"metadata": metadata}
	if g.IntN(10) > 0 {
		o["spec"] = spec
	}
	if g.IntN(4) > 0 {
		spec["class"] = pick(g, "dev", "ops", "gold")
	}
	if replicas := pick[any](g, nil, int64(1), int64(5), "many"); replicas != nil {
		spec["replicas"] = replicas
	}
	labels := pick(
		g,
		nil,
		map[string]any{},
		map[string]any{"env": "dev"},
		map[string]any{"env": "prod", "alice": "owner"},
		map[string]any{"bob": "owner"},
	)
	if labels != nil {
		metadata["labels"] = labels
	}
	if finalizers := pick(g, nil, []any{}, []any{"alice"}, []any{"other", "bob"}); finalizers != nil {
		metadata["finalizers"] = finalizers
	}
	return o
}
