package gate

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/conditional/certification"
	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/conditional/wire"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Cannot says why a vector cannot be played on an API server; it is empty for all others.
func Cannot(v *vectors.Vector, w *wire.Revision) string {
	m := v.APIServer
	if m == nil {
		return "it judges an authorizer, and this is an API server"
	}
	if what := w.Cannot(v); what != "" {
		return "the wire cannot say it: " + what
	}
	any := func(is func(vectors.Authorizer) bool) bool {
		return slices.ContainsFunc(m.Chain, is) || slices.ContainsFunc(m.Compound, is)
	}
	_, _, known := routeOf(m)
	for _, reason := range []struct {
		is   bool
		text string
	}{
		{m.Server.Version == "old", "it is about an API server that does not know the KEP"},
		{len(m.Server.BuiltinTypes) > 0, "it is about conditions that the API server evaluates itself, of which it may know none"},
		{any(func(a vectors.Authorizer) bool { return a.Cached }), "it is about the cache, and nothing is cached here"},
		{any(func(a vectors.Authorizer) bool { return a.Empty }), "no webhook answers with an empty decision"},
		{any(func(a vectors.Authorizer) bool {
			return a.Error && (a.Decision != vectors.NoOpinion || a.FailureMode != vectors.FailDeny)
		}), "a webhook in error is its failure policy, and no other decision"},
		{m.Request.Served == "aggregated", "no aggregated API server is started"},
		{strings.Contains(m.Request.APIGroup+m.Request.APIVersion+m.Request.Resource, "*"), "no request has a wildcard"},
		{m.Request.Verb == "impersonate", "it is the impersonation filter that asks for the verb"},
		{!known, "no request is known that is authorized so"},
		{ofTheSet(m), "it is about what one set evaluates to, which the authorizer says, and that is ours"},
	} {
		if reason.is {
			return reason.text
		}
	}
	return ""
}

// ofTheSet says that nothing but the evaluation of one set is judged: the API server asks for it, and is told.
func ofTheSet(m *vectors.APIServer) bool {
	w := m.Want
	w.Decision, w.Decisions, w.Error, w.Admitted, w.Reason = "", nil, nil, nil, nil
	return len(m.Chain) == 1 && (m.Chain[0].Decision == vectors.Conditional || m.Chain[0].Status != nil) && w.Stated(&w) == 0
}

// Judge is what came of all vectors, in the reading of the chain that the API server has: the one with fewer failures.
func Judge(all []*vectors.Vector, play *Play) *certification.Played {
	lazy, eager := play.judgeAll(all, vectors.Lazy), play.judgeAll(all, vectors.Eager)
	if eager.Totals[verdicts.Failed] < lazy.Totals[verdicts.Failed] {
		return eager
	}
	return lazy
}

func (p *Play) judgeAll(all []*vectors.Vector, reading vectors.Reading) *certification.Played {
	how := map[vectors.Reading]string{vectors.Lazy: "lazily", vectors.Eager: "eagerly"}[reading]
	out := &certification.Played{Subject: p.Server + ", which reads chains " + how}
	for _, v := range all {
		out.Add(p.judge(v, reading))
	}
	return out
}

// judge is what came of one vector.
func (p *Play) judge(v *vectors.Vector, reading vectors.Reading) certification.VectorResult {
	w, err := wire.Named(p.Wire)
	r := certification.VectorResult{Vector: v, Wire: p.Wire, Verdict: verdicts.NotSupported}
	if err != nil {
		r.Verdict, r.Why = verdicts.Invalid, []string{err.Error()}
		return r
	}
	if why := Cannot(v, w); why != "" {
		r.Why = []string{why}
		return r
	}
	at := slices.IndexFunc(p.Seen, func(s Seen) bool { return s.Vector == v.ID })
	if at < 0 {
		r.Verdict, r.Why = verdicts.Invalid, []string{"it was not played"}
		return r
	}
	got, broken := p.Seen[at].want(v.APIServer)
	want := v.APIServer.Wanted(reading)
	r.Why = append(want.Differences(got), broken...)
	switch {
	case want.Stated(got) == 0 && len(broken) == 0:
		r.Why = []string{"nothing of what it states is seen of an API server"}
	case len(r.Why) > 0 && v.Level == vectors.Must:
		r.Verdict = verdicts.Failed
	default:
		r.Verdict = verdicts.Passed
		r.Why = scenarios.Each(r.Why, func(s string) string { return "the text advises otherwise: " + s })
	}
	return r
}

// want is what was seen, in the words of vectors. What could not be seen is left out; broken is what is wrong whatever a
// vector wants.
func (s *Seen) want(m *vectors.APIServer) (w *vectors.Want, broken []string) {
	w = &vectors.Want{Starts: &s.Starts}
	if !s.Starts {
		return w, nil
	}
	w.ConditionsChain = shown(s.Review, m)
	switch d := s.Review.Decision(); {
	case d != vectors.Conditional:
		failed := s.Review.EvaluationError != ""
		w.Authorized, w.Error = d, &failed
	case canAllow(s.Review.ConditionsChain):
		w.Authorized = vectors.ConditionalAllow
	default:
		w.Authorized = vectors.ConditionalDeny
	}
	if s.Request == nil { // of a caller that wants no conditions
		w.Asked, w.EvaluatedBy, w.Decision = names(s.ReviewEvents, asked), names(s.ReviewEvents, evaluates), w.Authorized
		return w, nil
	}
	proceeded, admitted := s.Request.proceeded(), s.Request.admitted()
	w.Proceeds, w.Admitted = &proceeded, &admitted
	before, after := s.Request.Events, []string{}
	if i := slices.Index(before, admission); i >= 0 {
		before, after = before[:i], before[i:]
	}
	w.Asked, w.AskedLater, w.EvaluatedBy = names(before, asked), names(after, asked), names(s.Request.Events, evaluates)
	w.Decision, w.Decisions = s.decision(m), s.decisions()
	for _, sent := range []*Sent{s.Request, s.Alone, s.Behind} {
		// The filter answers 500 to what nobody has allowed and somebody was in error about.
		inError := sent != nil && sent.Code == http.StatusInternalServerError && !sent.proceeded()
		if sent != nil && !sent.admitted() && sent.Code != http.StatusForbidden && !inError {
			broken = append(broken, fmt.Sprintf("the request is answered %d", sent.Code))
		}
	}
	return w, slices.Compact(broken)
}

// names are those of an event, of the first check and the first object.
func names(events []string, event string) []string {
	out := []string{}
	for _, e := range events {
		name, is := strings.CutPrefix(e, event+" ")
		if _, object, of := strings.Cut(name, forObject); is && (!of || object == "-1") { // which differs from every name
			out = append(out, name)
		}
	}
	return out
}

// shown are the sets of a SubjectAccessReview, by the names of the vector.
func shown(r *vectors.SubjectAccessReviewStatus, m *vectors.APIServer) []string {
	out := []string{}
	for _, set := range r.ConditionsChain {
		name := set.AuthorizerName
		for i := range m.Chain {
			for _, mode := range []vectors.FailureMode{vectors.FailDeny, vectors.FailNoOpinion} {
				if placeOf(i, mode) == name {
					name = m.Chain[i].Name
				}
			}
		}
		for _, leaf := range vectors.Leaves([]vectors.ConditionSet{set}) {
			word := " conditions"
			if leaf.Allowed {
				word = " allowed"
			} else if leaf.Denied {
				word = " denied"
			}
			out = append(out, name+word)
		}
	}
	return out
}

// canAllow says whether sets have a way to Allow.
func canAllow(sets []vectors.ConditionSet) bool {
	return slices.ContainsFunc(vectors.Leaves(sets), func(s vectors.ConditionSet) bool {
		return s.Allowed || slices.ContainsFunc(s.Conditions, func(c vectors.Condition) bool { return c.Effect == vectors.Allow })
	})
}

// decision is the concrete one. A request that was refused was denied, or nobody had an opinion: then an authorizer behind
// the chain could allow it. Of a request that supports no conditions that cannot be told.
func (s *Seen) decision(m *vectors.APIServer) vectors.Decision {
	q := m.Request
	writes := slices.Contains([]string{"create", "update", "patch", "delete"}, q.Verb) && q.Served == "self" || q.Connect
	switch {
	case m.Objects > 1:
		return ""
	case s.Alone.admitted():
		return vectors.Allow
	case s.Behind.admitted() && s.Review.Decision() != vectors.Allow:
		return vectors.NoOpinion
	case writes || s.Review.Decision() == vectors.Deny:
		return vectors.Deny
	}
	return ""
}

// decisions are those of each object of a deletecollection, if each was looked at.
func (s *Seen) decisions() (out []vectors.Decision) {
	for o, gone := range s.Request.Gone {
		switch {
		case gone:
			out = append(out, vectors.Allow)
		case s.Behind != nil && s.Behind.Gone[o]:
			out = append(out, vectors.NoOpinion)
		case s.Behind != nil && slices.ContainsFunc(s.Behind.Events, func(e string) bool {
			return strings.HasPrefix(e, evaluates) && strings.HasSuffix(e, fmt.Sprintf(forObject+"%d", o))
		}):
			out = append(out, vectors.Deny)
		default:
			return nil
		}
	}
	return out
}
