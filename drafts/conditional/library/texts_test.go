package library

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/union"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// This file collects texts of the library that vectors do not state: reasons, errors, and the printed form of
// decisions. They are compared with testdata/texts.golden, so that a change in a new release is detected. The tests of
// library mutants compare the same texts.

// texts returns all texts of the library, one on each line.
func texts(ctx context.Context, all []*vectors.Vector) (out []string) {
	for _, v := range all {
		if v.APIServer == nil || strings.HasPrefix(v.ID, "kep-5681/chain/words/") {
			continue
		}
		text, err := describePhases(ctx, v.APIServer)
		if err != nil {
			text = "union.New: " + err.Error()
		}
		out = append(out, v.ID+": "+strings.ReplaceAll(text, "\n", `\n`))
	}
	for _, c := range calls(ctx) {
		out = append(out, strings.ReplaceAll(c, "\n", `\n`))
	}
	return out
}

// describePhases returns the answer of a vector's chain in each phase.
func describePhases(ctx context.Context, m *vectors.APIServer) (string, error) {
	run := &libraryRun{m: m, want: &vectors.Want{}}
	chain, err := run.chain(m.Chain)
	if err != nil {
		return "", err
	}
	if run.second, err = run.chain(m.Compound); err != nil {
		return "", err
	}
	run.asking = &run.want.Asked
	d := chain.ConditionsAwareAuthorize(ctx, authorizer.AttributesRecord{})
	partly := authorizer.PartiallyEvaluateConditionsAwareDecision(ctx, d, record{}, run.builtin)
	return fmt.Sprintf("unasked %s; %s; here %s; in the end %s",
		parts(chain.Authorize(ctx, authorizer.AttributesRecord{})), whole(d), whole(partly), parts(chain.EvaluateConditions(ctx, partly, record{}))), nil
}

// parts prints a decision, its reason and its error.
func parts(d authorizer.Decision, reason string, err error) string {
	return fmt.Sprintf("%s %q %v", d, reason, err)
}

// whole prints everything that the methods of a decision return.
func whole(d authorizer.ConditionsAwareDecision) string {
	var possible []string
	for p := range d.PossibleDecisions() {
		possible = append(possible, p.String())
	}
	slices.Sort(possible)
	return fmt.Sprintf(
		"%s possible %v fails %s decided %t maps %v",
		d,
		possible,
		d.FailureDecision(),
		d.ContainsUnconditionalAllowOrDeny(),
		maps(d),
	)
}

// maps are the conditions of a decision.
func maps(d authorizer.ConditionsAwareDecision) (out []string) {
	if d.IsConditionsMap() {
		m := d.ConditionsMap()
		return []string{
			fmt.Sprintf(
				"%s %d %v %v %v",
				m.FailureDecision(),
				m.Length(),
				ids(m.DenyConditions()),
				ids(m.NoOpinionConditions()),
				ids(m.AllowConditions()),
			),
		}
	}
	for name, inner := range d.UnionedDecisions() {
		out = append(out, fmt.Sprint(name, maps(inner)))
	}
	return out
}

// ids prints at most three conditions. That checks that the iteration stops when its caller stops it.
func ids(all iter.Seq[authorizer.Condition]) (out []string) {
	for c := range all {
		if len(out) == 3 {
			return append(out, "…")
		}
		out = append(out, strings.Join([]string{c.GetID(), c.GetType(), c.GetCondition(), c.GetDescription()}, " "))
	}
	return out
}

// calls returns texts of the library for callers other than a server, and for authorizers that break a rule.
func calls(ctx context.Context) (out []string) {
	say := func(what, text string) { out = append(out, what+": "+text) }
	answering := func(d authorizer.Decision, reason string, err error) authorizer.Authorizer {
		return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return d, reason, err
		})
	}
	bad := errors.New("bad")
	for _, d := range []authorizer.Decision{authorizer.DecisionDeny, authorizer.DecisionAllow, authorizer.DecisionNoOpinion, 7} {
		say("AuthorizerFunc", whole(answering(d, "why", bad).ConditionsAwareAuthorize(ctx, nil)))
		say("FromParts", whole(authorizer.ConditionsAwareDecisionFromParts(d, "", nil)))
	}
	say("AuthorizerFunc", parts(answering(1, "why", bad).Authorize(ctx, nil)))
	say("AuthorizerFunc", parts(answering(1, "", nil).EvaluateConditions(ctx, authorizer.ConditionsAwareDecision{}, record{})))
	for _, names := range [][]string{{"a", ""}, {"a", "a"}, {"b"}} {
		named := make([]union.NamedAuthorizer, 0, len(names))
		for _, name := range names {
			named = append(named, union.NamedAuthorizer{AuthorizerName: name, Authorizer: answering(7, "odd", nil)})
		}
		chain, err := union.New(named...)
		say("union.New", fmt.Sprint(chain != nil, " ", err))
		if err == nil {
			say("an odd decision", parts(chain.Authorize(ctx, nil)))
		}
	}
	for _, c := range chains() {
		text, err := describePhases(
			ctx,
			&vectors.APIServer{Server: vectors.Server{BuiltinTypes: []string{"example.com/here"}}, Chain: c, Objects: 1},
		)
		say("a chain", fmt.Sprint(text, " ", err))
	}
	return slices.Concat(out, built(), evaluated(ctx))
}

// chains returns chains with reasons and errors, and with conditions that are evaluated by the server (here) or by the
// authorizer (there).
func chains() (out [][]vectors.Authorizer) {
	conditions := func(kind vectors.Decision, is vectors.Truth, where string) vectors.EvaluatedCondition {
		return vectors.EvaluatedCondition{
			Condition: vectors.Condition{
				ID:        strings.ToLower(fmt.Sprint(kind, "-", is, "-", where)),
				Effect:    kind,
				Type:      "example.com/" + where,
				Condition: "x",
			},
			PerObject: []vectors.Truth{is},
		}
	}
	words := map[string]vectors.Authorizer{
		"allow":  {Decision: vectors.Allow, Reason: "granted", Error: true},
		"deny":   {Decision: vectors.Deny, Reason: "forbidden", Error: true},
		"unsure": {Decision: vectors.NoOpinion, Reason: "unsure", Error: true},
		"silent": {Decision: vectors.NoOpinion},
	}
	for _, where := range []string{"here", "there"} {
		for _, is := range []vectors.Truth{vectors.True, vectors.False, vectors.Error} {
			for _, kind := range []vectors.Decision{vectors.Allow, vectors.Deny} {
				c := []vectors.EvaluatedCondition{conditions(kind, is, where)}
				words[strings.ToLower(string(kind))+"-"+string(is)+"-"+where] = vectors.Authorizer{
					Decision:   vectors.Conditional,
					Conditions: c,
				}
			}
		}
	}
	for _, text := range []string{
		"unsure silent unsure", "unsure silent allow", "unsure deny allow", "unsure allow-false-there unsure", "deny-false-there unsure deny",
		"allow-true-there unsure allow", "allow-false-here unsure allow-true-there", "allow-false-here deny-false-there allow-true-here allow", "deny-false-here silent allow",
		"allow-false-there allow-true-here deny-true-here", "allow-true-here deny-true-there", "deny-true-here allow-true-there", "allow-true-there deny-true-here",
		"deny-false-here deny-false-here deny-false-here", "deny-error-there allow", "unsure allow-error-there silent allow-error-there", "unsure deny-error-here deny",
		"deny-false-there allow", "allow-false-there deny", "deny-false-there allow-false-there allow",
	} {
		var chain []vectors.Authorizer
		for i, word := range strings.Fields(text) {
			a := words[word]
			a.Name = fmt.Sprint("a", i)
			chain = append(chain, a)
		}
		out = append(out, chain)
	}
	return out
}

// named is a condition whose author has it evaluated at once, if at all.
func named(id string, is ...authorizer.ConditionEvaluationResult) authorizer.Condition {
	c := authorizer.GenericCondition{ID: id, Condition: "x", Type: "example.com/t", Description: "about " + id}
	if len(is) > 0 {
		c.EvaluateFunc = func(context.Context, authorizer.ConditionsData) authorizer.ConditionEvaluationResult { return is[0] }
	}
	return c
}

// built prints decisions that are built as authorizers build them.
func built() (out []string) {
	say := func(what string, d authorizer.ConditionsAwareDecision) { out = append(out, what+": "+whole(d)) }
	say("the empty decision", authorizer.ConditionsAwareDecision{})
	say("no conditions", authorizer.ConditionsAwareDecisionConditionsMap(nil, nil, nil))
	one, two, invalid := named("one"), named("two"), named("not valid/")
	only := func(c ...authorizer.Condition) []authorizer.Condition { return c }
	say("twice", authorizer.ConditionsAwareDecisionConditionsMap(only(one), only(one), nil))
	say("twice in a list", authorizer.ConditionsAwareDecisionConditionsMap(nil, nil, only(one, one)))
	for _, deny := range [][]authorizer.Condition{nil, only(two)} {
		say("invalid NoOpinion", authorizer.ConditionsAwareDecisionConditionsMap(deny, only(invalid), only(one)))
		say("invalid Allow", authorizer.ConditionsAwareDecisionConditionsMap(deny, nil, only(invalid)))
	}
	say(
		"invalid type",
		authorizer.ConditionsAwareDecisionConditionsMap(nil, nil, only(authorizer.GenericCondition{ID: "one", Type: "not valid/"})),
	)
	lists := [][]authorizer.Condition{only(named("d"), named("e")), only(named("n")), only(named("a"))}
	kept := authorizer.ConditionsAwareDecisionConditionsMap(lists[0], lists[1], lists[2])
	for _, l := range lists {
		l[0] = invalid
	}
	say("lists of the caller change", kept)
	for _, adds := range [][]string{{}, {""}, {"a", "a"}, {"a", "b"}, {"x", "y"}} {
		var u authorizer.ConditionsAwareDecisionUnion
		for i, name := range adds {
			switch name {
			case "b":
				u.Add(name, authorizer.ConditionsAwareDecisionDeny("b's", errors.New("b's")))
			case "x":
				u.Add(name, authorizer.ConditionsAwareDecisionAllow("x's", nil))
			default:
				u.Add(name, authorizer.ConditionsAwareDecisionConditionsMap(nil, nil, only(named(fmt.Sprint(name, i)))))
			}
		}
		d := u.ToDecision()
		u.Add("later", kept)
		out = append(out,
			fmt.Sprintf(
				"a union of %q: fails %s decided %t: %s",
				adds,
				u.FailureDecision(),
				u.ContainsUnconditionalAllowOrDeny(),
				whole(d),
			),
		)
	}
	return out
}

// wrong is an authorizer whose Deny condition evaluates to itself, which cannot be.
type wrong authorizer.Decision

func (w wrong) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.Decision(w), "", nil
}

func (w wrong) ConditionsAwareAuthorize(context.Context, authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionConditionsMap([]authorizer.Condition{named("d")}, nil, nil)
}

func (w wrong) EvaluateConditions(
	context.Context,
	authorizer.ConditionsAwareDecision,
	authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return authorizer.Decision(w), "because", nil
}

// evaluated prints decisions that are evaluated by a wrong authorizer, or with results that are wrong.
func evaluated(ctx context.Context) (out []string) {
	say := func(what, text string) { out = append(out, what+": "+text) }
	yes, no := authorizer.ConditionEvaluationResultBoolean(true), authorizer.ConditionEvaluationResultBoolean(false)
	results := map[string]authorizer.ConditionEvaluationResult{
		"true":      yes,
		"false":     no,
		"error":     authorizer.ConditionEvaluationResultError(errors.New("bad")),
		"nil error": authorizer.ConditionEvaluationResultError(nil),
		"none":      {},
	}
	for _, name := range []string{"true", "false", "error", "nil error", "none"} {
		r := results[name]
		say(name, fmt.Sprint(r.IsTrue(), r.IsFalse(), r.IsError(), r.IsUnevaluatable(), " ", r.Error()))
		for i, effect := range []string{"Deny", "NoOpinion", "Allow"} {
			lists := [][]authorizer.Condition{{named("d", no)}, {named("n", no)}, {named("a", no), named("b")}}
			lists[i] = append(lists[i][:1:1], named("first", r), named("second", r))
			d := authorizer.ConditionsAwareDecisionConditionsMap(lists[0], lists[1], lists[2])
			say(effect+" is "+name, whole(authorizer.PartiallyEvaluateConditionsAwareDecision(ctx, d, record{}, nil)))
			say(
				effect+" is "+name,
				parts(
					d.ConditionsMap().
						Evaluate(ctx, record{}, func(context.Context, authorizer.Condition, authorizer.ConditionsData) (bool, error) {
							return false, nil
						}),
				),
			)
		}
	}
	for _, odd := range []wrong{7, wrong(authorizer.DecisionAllow)} {
		chain, _ := union.New(union.NamedAuthorizer{AuthorizerName: "a", Authorizer: odd})
		parts := parts(chain.EvaluateConditions(ctx, chain.ConditionsAwareAuthorize(ctx, nil), record{}))
		say(fmt.Sprintf("a union whose authorizer evaluates to %d", odd), parts)
	}
	chain, _ := union.New(
		union.NamedAuthorizer{AuthorizerName: "a", Authorizer: authorizer.AuthorizerFunc(nil)},
		union.NamedAuthorizer{AuthorizerName: "c", Authorizer: authorizer.AuthorizerFunc(nil)},
	)
	allow, deny := []authorizer.Condition{named("may")}, []authorizer.Condition{named("must-not")}
	for _, d := range []authorizer.ConditionsAwareDecision{
		{},
		authorizer.ConditionsAwareDecisionAllow("", nil),
		authorizer.ConditionsAwareDecisionConditionsMap(nil, nil, allow),
		authorizer.ConditionsAwareDecisionConditionsMap(deny, nil, allow),
	} {
		say("a union evaluates what is not one", parts(chain.EvaluateConditions(ctx, d, record{})))
	}
	for _, name := range []string{"a", "stranger"} {
		for _, d := range []authorizer.ConditionsAwareDecision{authorizer.ConditionsAwareDecisionConditionsMap(nil, nil, allow), authorizer.ConditionsAwareDecisionConditionsMap(deny, nil, allow)} {
			var u authorizer.ConditionsAwareDecisionUnion
			u.Add("before", authorizer.ConditionsAwareDecisionNoOpinion("unsure", errors.New("unsure")))
			u.Add(name, d)
			u.Add("behind", authorizer.ConditionsAwareDecisionNoOpinion("", nil))
			say("a union evaluates "+name+"'s", parts(chain.EvaluateConditions(ctx, u.ToDecision(), record{})))
		}
	}
	return out
}
