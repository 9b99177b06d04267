package vectors

import (
	"strings"
	"testing"
)

const head = "description: A chain.\nsource: {document: KEP-5681, section: Proposal}\nlevel: must\n"

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"API server", head + "apiServer: {chain: [{decision: Allow}], want: {decision: Allow}}\n", ""},
		{"webhook", head + "webhook: {policies: [], steps: [{setPolicies: [{id: a, effect: Allow, expression: 'true'}]}]}\n", ""},
		{"no kind", head, "has 0 of apiServer, webhook and table"},
		{"two kinds", head + "apiServer: {chain: [], want: {decision: NoOpinion}}\nwebhook: {policies: [], steps: []}\n", "has 2 of apiServer"},
		{"no level", strings.Replace(head, "must", "maybe", 1) + "apiServer: {chain: [], want: {decision: Allow}}\n", `x.vector.yaml:3:8: "maybe" is unknown (expected one of must, should)`},
		{"unknown field", head + "apiServer: {links: []}\n", `x.vector.yaml:4:13: unknown field "links"`},
		{"a status of another revision", head + "apiServer: {chain: [{status: {conditionSetChain: []}}], want: {decision: Allow}}\n", `x.vector.yaml:4:31: unknown field "conditionSetChain"`},
		{"unknown decision", head + "apiServer:\n  chain:\n    - decision: Perhaps\n  want: {decision: Allow}\n", `x.vector.yaml:6:17: "Perhaps" is unknown`},
		{"nothing wanted", head + "apiServer: {chain: [{decision: Allow}], want: {}}\n", "nothing is wanted"},
		{"conditions of Allow", head + "apiServer: {chain: [{decision: Allow, conditions: [{id: a, effect: Allow, is: true}]}], want: {decision: Allow}}\n", "there are conditions for Allow"},
		{"no truth", head + "apiServer: {chain: [{decision: Conditional, conditions: [{id: a, effect: Allow}]}], want: {decision: Allow}}\n", `"" is unknown (expected one of true, false, error)`},
		{"truths for too few objects", head + "apiServer: {objects: 2, chain: [{decision: Conditional, conditions: [{id: a, effect: Allow, perObject: [true]}]}], want: {decision: Allow}}\n", "there are 1 truths"},
		{"a name twice", head + "apiServer: {chain: [{name: a1, decision: Deny}, {decision: Allow}], want: {decision: Deny}}\n", `the name "a1" is there twice`},
		{"an unknown word", head + "table: {authorizers: {allow: {decision: Allow}}, rows: [{chain: allow deny, want: {decision: Allow}}]}\n", `"deny" is not a word of authorizers`},
		{"a row twice", head + "table: {authorizers: {a: {decision: Allow}}, rows: [{chain: a, want: {decision: Allow}}, {chain: ' a', want: {decision: Allow}}]}\n", `the chain "a" is there twice`},
		{"an unknown word of the second check", head + "table: {authorizers: {allow: {decision: Allow}}, rows: [{chain: allow, compound: deny, want: {decision: Allow}}]}\n", `"deny" is not a word of authorizers`},
		{"evaluate of nothing", head + "webhook: {policies: [], steps: [{evaluate: {of: 0, data: {}, want: {oneOf: [Allow]}}}]}\n", "of is 0"},
		{"a step of two", head + "webhook: {policies: [], steps: [{setPolicies: [{id: a, effect: Allow, expression: x}], evaluate: {of: 0, data: {}, want: {oneOf: [Allow]}}}]}\n", "exactly one of authorize"},
		{"a policy twice", head + "webhook: {policies: [{id: a, effect: Allow, expression: x}, {id: a, effect: Deny, expression: x}], steps: [{setPolicies: []}]}\n", `the ID "a" is there twice`},
		{"no YAML", "apiServer: [", "x.vector.yaml:1:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			vs, err := Parse("x.vector.yaml", []byte(c.text))
			switch {
			case c.want == "" &&
				(err != nil || len(vs) != 1 || vs[0].ID != "x"):
				t.Fatalf("got %v, %v", vs, err)
			case c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want)):
				t.Fatalf("got %v, want %s", err, c.want)
			}
		})
	}
}

// TestComplete checks that defaults are filled in, and that short forms are expanded.
func TestComplete(t *testing.T) {
	vs, err := Parse("x.vector.yaml", []byte(head+"apiServer: {chain: [{decision: Conditional, conditions: [{id: a, effect: Allow, is: true, repeat: 3, length: 7}]}], want: {decision: Allow}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	m := vs[0].APIServer
	if a := m.Chain[0]; a.Name != "a0" || a.FailureMode != FailDeny || len(a.Conditions) != 3 || a.Conditions[2].ID != "a-2" ||
		len(a.Conditions[0].Condition.Condition) != 7 ||
		a.Conditions[0].PerObject[0] != True {
		t.Errorf("%+v", a)
	}
	if m.Server.Gate != "on" || m.Request.Verb != "create" || m.Objects != 1 {
		t.Errorf("%+v", m)
	}
}

func TestWanted(t *testing.T) {
	yes, no := true, false
	m := &APIServer{
		Want:  Want{Authorized: ConditionalAllow, Asked: []string{"a0"}, Admitted: &no},
		Eager: &Want{Authorized: Allow, Asked: []string{}, Admitted: &yes},
	}
	if w := m.WantIn(Lazy); w.Authorized != ConditionalAllow || len(w.Asked) != 1 || *w.Admitted {
		t.Errorf("lazy: %+v", w)
	}
	if w := m.WantIn(Eager); w.Authorized != Allow || w.Asked == nil || len(w.Asked) != 0 || !*w.Admitted {
		t.Errorf("eager: %+v", w)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "apiServer: {objects: 2, chain: [{decision: Conditional, conditions: [{id: a, effect: Allow, perObject: [true, error], repeat: 2}]}], want: {decision: Allow}}\n"))
	f.Add([]byte(head + "table: {authorizers: {a: {decision: Allow}}, rows: [{chain: a a, want: {decision: Allow}}]}\n"))
	f.Add([]byte(head + "webhook: {policies: [{id: a, effect: Allow, expression: x}], steps: [{authorize: {spec: {user: a, resourceAttributes: {verb: get}}, want: {oneOf: [Allow]}}}, {evaluate: {of: 0, data: {object: {a: [1, {b: 2}]}}, want: {oneOf: [Deny]}}}]}\n"))
	f.Add([]byte("apiServer: null\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		vs, err := Parse("x.vector.yaml", raw)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x.vector.yaml") {
				t.Errorf("no file in %q", err)
			}
			return
		}
		for _, v := range vs {
			if (v.APIServer == nil) == (v.Webhook == nil) {
				t.Errorf("%s has both kinds or neither", v.ID)
			}
			if v.APIServer != nil {
				for _, a := range v.APIServer.Chain {
					for _, c := range a.Conditions {
						if len(c.PerObject) != v.APIServer.Objects {
							t.Errorf("%s: %d truths for %d objects", v.ID, len(c.PerObject), v.APIServer.Objects)
						}
					}
				}
			}
		}
	})
}
