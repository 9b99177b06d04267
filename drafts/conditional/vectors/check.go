package vectors

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// checker checks a file, and keeps the first rule of the format that the file breaks.
type checker struct {
	file *scenarios.Document
	err  error
}

// must records that the node at path breaks a rule, unless ok.
func (c *checker) must(ok bool, path, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = fmt.Errorf("%s: %s", c.file.At(path), fmt.Sprintf(format, args...))
	}
}

func oneOf[T ~string](c *checker, path string, value T, words ...T) {
	c.must(slices.Contains(words, value), path, "%q is unknown (expected one of %s)", value, join(words))
}

func join[T ~string](words []T) string {
	out := make([]string, 0, len(words))
	for _, w := range words {
		if w != "" {
			out = append(out, string(w))
		}
	}
	return strings.Join(out, ", ")
}

func (c *checker) vector(v *Vector) {
	c.must(v.Description != "", "$", "the description is missing (expected a sentence)")
	c.must(v.Source.Document != "" && v.Source.Section != "", "$.source", "the source is not complete (expected document and section)")
	oneOf(c, "$.level", v.Level, Must, Should)
	kinds := seq.Count([]bool{v.APIServer != nil, v.Webhook != nil, v.Table != nil}, func(isThere bool) bool { return isThere })
	c.must(kinds == 1, "$", "the file has %d of apiServer, webhook and table (expected one)", kinds)
	if c.err != nil {
		return
	}
	switch {
	case v.APIServer != nil:
		c.apiServer(v.APIServer, "$.apiServer")
	case v.Webhook != nil:
		c.webhook(v.Webhook)
	default:
		c.table(v.Table)
	}
}

func (c *checker) table(t *Table) {
	for word, a := range t.Authorizers {
		c.authorizer(&a, "$.table.authorizers."+word, 1)
		c.must(a.Name == "", "$.table.authorizers."+word, "the authorizer has a name (expected none: in a row it is a0, a1 and so on)")
	}
	c.must(len(t.Rows) > 0, "$.table", "there are no rows (expected chains)")
	seen := map[string]bool{}
	for i, row := range t.Rows {
		path := fmt.Sprintf("$.table.rows[%d]", i)
		words := strings.Fields(row.Chain)
		for _, word := range append(words, strings.Fields(row.Compound)...) {
			_, known := t.Authorizers[word]
			c.must(known, path+".chain", "%q is not a word of authorizers", word)
		}
		key := strings.TrimSuffix(strings.Join(words, " ")+" then "+row.Compound, " then ")
		c.must(!seen[key], path, "the chain %q is there twice", key)
		seen[key] = true
	}
}

func (c *checker) apiServer(m *APIServer, path string) {
	oneOf(c, path+".server.version", m.Server.Version, "", "new", "old")
	oneOf(c, path+".server.gate", m.Server.Gate, "", "on", "off", "rolledBack")
	oneOf(c, path+".server.plugin", m.Server.Plugin, "", "on", "off")
	oneOf(c, path+".request.served", m.Request.Served, "", "self", "aggregated", "nobody")
	oneOf(c, path+".request.mode", m.Request.Mode, "", "None", string(Optimized), string(HumanReadable))
	c.must(m.Objects >= 0 && m.Objects <= 100, path+".objects", "objects is %d (expected 1 to 100)", m.Objects)
	if c.err != nil {
		return
	}
	c.chain(m.Chain, path+".chain", max(m.Objects, 1))
	c.chain(m.Compound, path+".compound", max(m.Objects, 1))
	c.want(&m.Want, path+".want")
	if m.Eager != nil {
		c.want(m.Eager, path+".eager")
	}
	c.must(!reflect.ValueOf(m.Want).IsZero(), path+".want", "nothing is wanted (expected what the chain results in)")
}

func (c *checker) chain(chain []Authorizer, path string, objects int) {
	c.must(len(chain) <= 16, path, "the chain has %d authorizers (expected at most 16)", len(chain))
	names := map[string]bool{}
	for i := range chain {
		at := fmt.Sprintf("%s[%d]", path, i)
		name := cmp.Or(chain[i].Name, fmt.Sprintf("a%d", i))
		c.must(!names[name], at, "the name %q is there twice", name)
		names[name] = true
		c.authorizer(&chain[i], at, objects)
	}
}

func (c *checker) authorizer(a *Authorizer, path string, objects int) {
	oneOf(c, path+".failureMode", a.FailureMode, "", FailDeny, FailNoOpinion)
	if a.Status != nil {
		c.must(
			a.Decision == "" && len(a.Conditions) == 0,
			path,
			"the authorizer has a status and more (expected decision and conditions left out)",
		)
	} else {
		oneOf(c, path+".decision", a.Decision, Allow, Deny, NoOpinion, Conditional)
		c.must(
			len(a.Conditions) == 0 || a.Decision == Conditional,
			path,
			"there are conditions for %s (expected them for Conditional only)",
			a.Decision,
		)
	}
	c.must(!a.Empty || a.Decision == Deny, path, "the empty decision is %s (expected Deny)", a.Decision)
	for id, truth := range a.Truths {
		oneOf(c, path+".truths."+id, truth, True, False, Error)
	}
	for i, cond := range a.Conditions {
		c.condition(cond, fmt.Sprintf("%s.conditions[%d]", path, i), objects)
	}
}

func (c *checker) condition(cond EvaluatedCondition, at string, objects int) {
	isLength := cond.Length >= 0 && cond.Length <= 1<<16
	isCount := cond.Repeat >= 0 && cond.Repeat <= 1024
	c.must(isLength && isCount, at, "length or repeat is out of range (expected at most 65536 and 1024)")
	oneOf(c, at+".builtin", cond.Builtin, "", True, False, Error)
	if len(cond.PerObject) == 0 {
		oneOf(c, at+".is", cond.Is, True, False, Error)
		return
	}
	c.must(
		cond.Is == "" && len(cond.PerObject) == objects,
		at+".perObject",
		"there are %d truths (expected one for each of %d objects, and no is)",
		len(cond.PerObject),
		objects,
	)
	for _, truth := range cond.PerObject {
		oneOf(c, at+".perObject", truth, True, False, Error)
	}
}

func (c *checker) want(w *Want, path string) {
	oneOf(c, path+".authorized", w.Authorized, "", Allow, Deny, NoOpinion, ConditionalAllow, ConditionalDeny)
	for _, d := range append([]Decision{w.Decision}, w.Decisions...) {
		oneOf(c, path, d, "", Allow, Deny, NoOpinion)
	}
	for _, s := range w.ConditionsChain {
		words := strings.Fields(s)
		c.must(len(words) == 2 && slices.Contains([]string{"conditions", "allowed", "denied"}, words[1]), path+".conditionsChain",
			"%q is not a set (expected a name, and conditions, allowed or denied)", s)
	}
}

func (c *checker) webhook(w *Webhook) {
	c.policies(w.Policies, "$.webhook.policies")
	oneOf(c, "$.webhook.failureMode", w.FailureMode, "", FailDeny, FailNoOpinion)
	c.must(len(w.Steps) > 0, "$.webhook", "there are no steps (expected at least one)")
	for i, s := range w.Steps {
		c.step(w.Steps, i, s, fmt.Sprintf("$.webhook.steps[%d]", i))
	}
}

func (c *checker) step(steps []Step, i int, s Step, path string) {
	kinds := seq.Count([]bool{s.Authorize != nil, s.Evaluate != nil, s.SetPolicies != nil}, func(isThere bool) bool { return isThere })
	if c.must(kinds == 1, path, "the step must have exactly one of authorize, evaluate and setPolicies"); kinds != 1 {
		return
	}
	switch {
	case s.Authorize != nil:
		c.authorize(s.Authorize, path+".authorize")
	case s.Evaluate != nil:
		c.evaluate(steps[:i], s.Evaluate, path+".evaluate")
	default:
		c.policies(s.SetPolicies, path+".setPolicies")
	}
}

func (c *checker) authorize(s *AuthorizeStep, path string) {
	oneOf(c, path+".spec.conditionalAuthorization.mode", s.Spec.Mode(), None, HumanReadable, Optimized)
	c.must(
		(s.Spec.ResourceAttributes != nil) != (s.Spec.NonResourceAttributes != nil),
		path+".spec",
		"the spec has both or neither of resourceAttributes and nonResourceAttributes (expected one)",
	)
	c.decisions(s.Want.OneOf, path+".want", Allow, Deny, NoOpinion, Conditional)
	for _, e := range s.Want.Effects {
		oneOf(c, path+".want.effects", e, Allow, Deny, NoOpinion)
	}
}

// evaluate checks a step by the steps before it.
func (c *checker) evaluate(before []Step, s *EvaluateStep, path string) {
	c.must(answers(before, s.Of), path, "of is %d (expected the index of a step before this one that is answered with conditions)", s.Of)
	oneOf(c, path+".data.operation", s.Data.Operation, "", "CREATE", "UPDATE", "DELETE", "CONNECT")
	c.decisions(s.Want.OneOf, path+".want", Allow, Deny, NoOpinion, Conditional)
}

// answers reports whether a step can be answered with conditions: a step of the first phase, or a step of the second
// phase in which conditions evaluate to conditions.
func answers(steps []Step, at int) bool {
	if at < 0 || at >= len(steps) {
		return false
	}
	s := steps[at]
	evaluatesToConditions := s.Evaluate != nil && slices.Contains(s.Evaluate.Want.OneOf, Conditional)
	return s.Authorize != nil || evaluatesToConditions
}

func (c *checker) policies(all []Policy, path string) {
	ids := map[string]bool{}
	for i, p := range all {
		at := fmt.Sprintf("%s[%d]", path, i)
		c.must(p.ID != "" && p.Expression != "", at, "the policy is not complete (expected id, effect and expression)")
		c.must(!ids[p.ID], at, "the ID %q is there twice", p.ID)
		ids[p.ID] = true
		oneOf(c, at+".effect", p.Effect, Allow, Deny, NoOpinion)
	}
}

func (c *checker) decisions(all []Decision, path string, words ...Decision) {
	c.must(len(all) > 0, path, "oneOf is missing (expected at least one decision)")
	for _, d := range all {
		oneOf(c, path+".oneOf", d, words...)
	}
}
