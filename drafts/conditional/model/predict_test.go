package model

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// predict predicts the result of an API-server vector in one of the readings.
func predict(w *wire.Revision, m *vectors.APIServer, reading vectors.Reading) *vectors.Want {
	r := &run{wire: w, m: m, reading: reading}
	starts := m.Server.Version == "old" || m.Server.Gate != "on" || m.Server.Plugin == "on"
	if !starts {
		return &vectors.Want{Starts: &starts}
	}
	main := r.check(m.Chain)
	main.Starts = &starts
	if m.Compound != nil && *main.Admitted && !bySecond(m.Chain) {
		// Both checks are made. Only the result of the second check matters here. The check of escalate supports no
		// conditions.
		second := *m
		if m.Request.Resource == "clusterroles" {
			second.Request.Mode = "None"
		}
		*main.Admitted = *(&run{wire: w, m: &second, reading: reading}).check(m.Compound).Admitted
	}
	return main
}

// bySecond reports whether a condition asks for the second check itself.
func bySecond(chain []vectors.Authorizer) bool {
	return slices.ContainsFunc(chain, func(a vectors.Authorizer) bool {
		return slices.ContainsFunc(a.Conditions, func(c vectors.EvaluatedCondition) bool { return c.Secondary })
	})
}

// run is the prediction of one request.
type run struct {
	wire    *wire.Revision
	m       *vectors.APIServer
	reading vectors.Reading
}

// conditions reports whether authorizers are asked for conditions at all.
func (r *run) conditions() bool {
	s := r.m.Server
	return s.Version == "new" && s.Gate == "on" && r.m.Request.Mode != "None"
}

// supports reports whether a request can be let through on conditions ("Computing a concrete decision from a
// conditional authorization chain", "Feature availability and version skew").
func supports(q *vectors.Request) bool {
	if q.Connect {
		return true
	}
	writes := []string{"create", "update", "patch", "delete", "deletecollection"}
	if !slices.Contains(writes, q.Verb) || strings.Contains(q.APIGroup+q.APIVersion+q.Resource, "*") {
		return false
	}
	return q.Served == "self" || q.Served == "aggregated"
}

// check predicts both phases of one authorization check. Decision is the result of the evaluation even if the request
// does not get that far: the two phases must not contradict each other.
func (r *run) check(chain []vectors.Authorizer) *vectors.Want {
	w := &vectors.Want{Asked: []string{}, AskedLater: []string{}, EvaluatedBy: []string{}, ConditionsChain: []string{}}
	links, rest := r.authorize(chain, w)
	w.ConditionsChain = r.shown(links, rest, w.Authorized)
	proceeds := w.Authorized == vectors.Allow ||
		w.Authorized == vectors.ConditionalAllow && supports(&r.m.Request)
	w.Proceeds = &proceeds

	admitted, failed := proceeds, false
	for o := range r.m.Objects {
		later := []string{}
		evaluated := []string{}
		d, err := r.evaluate(links, rest, o, &later, &evaluated)
		w.Decisions = append(w.Decisions, d)
		if o == 0 {
			w.Decision, w.Reason = d, r.reason(links, rest, d)
		}
		if o == 0 && proceeds {
			w.AskedLater, w.EvaluatedBy = later, evaluated
		}
		failed = failed || err
		admitted = admitted && d == vectors.Allow
	}
	w.Error, w.Admitted = &failed, &admitted
	return w
}

// authorize asks the chain before admission. It returns the answers that count, and the authorizers that were not
// asked.
func (r *run) authorize(chain []vectors.Authorizer, w *vectors.Want) (links []link, rest []vectors.Authorizer) {
	conditional := false
	for i := range chain {
		if !chain[i].Cached {
			w.Asked = append(w.Asked, chain[i].Name)
		}
		l := r.ask(&chain[i])
		links = append(links, l)
		switch l.decision {
		case vectors.NoOpinion:
		case vectors.Conditional:
			conditional = true
			if r.reading == vectors.Lazy && l.canAllow() {
				w.Authorized = vectors.ConditionalAllow
				return links, chain[i+1:]
			}
		default:
			w.Authorized = l.decision
			if conditional {
				w.Authorized = r.union(links)
			}
			return links, nil
		}
	}
	w.Authorized = vectors.NoOpinion
	if conditional {
		w.Authorized = r.union(links)
	}
	return links, nil
}

// union is the decision of a chain that was asked to its end and has conditions.
func (r *run) union(links []link) vectors.Decision {
	var allow, deny bool
	for i := range links {
		allow = allow || links[i].decision == vectors.Allow || links[i].canAllow()
		deny = deny || links[i].decision == vectors.Deny || links[i].canDeny()
	}
	last := links[len(links)-1].decision
	switch {
	case last == vectors.Deny && !allow:
		return vectors.Deny
	case r.reading == vectors.Eager && last == vectors.Allow && !deny:
		return vectors.Allow
	case allow:
		return vectors.ConditionalAllow
	}
	return vectors.ConditionalDeny
}

// shown returns the conditionsChain of a SubjectAccessReview: all sets up to the first concrete decision, including the
// sets of authorizers that were not asked yet.
func (r *run) shown(links []link, rest []vectors.Authorizer, authorized vectors.Decision) []string {
	out := []string{}
	if slices.Contains(vectors.Effects(), authorized) {
		return out
	}
	for i := range rest {
		links = append(slices.Clip(links), r.ask(&rest[i]))
	}
	for _, l := range links {
		switch l.decision {
		case vectors.Allow:
			return append(out, l.from.Name+" allowed")
		case vectors.Deny:
			return append(out, l.from.Name+" denied")
		case vectors.Conditional:
			for _, s := range l.sets {
				word := map[vectors.Decision]string{vectors.Allow: " allowed", vectors.Deny: " denied", "": " conditions"}[s.concrete]
				out = append(out, l.from.Name+word)
			}
		}
	}
	return out
}

// evaluate returns the concrete decision about one object.
func (r *run) evaluate(links []link, rest []vectors.Authorizer, object int, later, evaluated *[]string) (vectors.Decision, bool) {
	failed := false
	for i := 0; i < len(links)+len(rest); i++ {
		var l link
		if i < len(links) {
			l = links[i]
		} else {
			a := &rest[i-len(links)]
			l = r.ask(a)
			if !a.Cached {
				*later = append(*later, a.Name)
			}
		}
		d, err := l.decision, l.err
		if d == vectors.Conditional {
			d, err = r.resolve(&l, object, later, evaluated)
		}
		if d != vectors.NoOpinion {
			return d, err
		}
		failed = failed || err
	}
	return vectors.NoOpinion, failed
}

// reason returns what the reason of a decision about the first object names: the reason of the authorizer that has
// decided, or the conditions that are true and have that effect.
func (r *run) reason(links []link, rest []vectors.Authorizer, d vectors.Decision) []string {
	out := []string{}
	for i := range rest {
		links = append(slices.Clip(links), r.ask(&rest[i]))
	}
	for i := range links {
		l := &links[i]
		got := l.decision
		if got == vectors.Conditional {
			got, _ = r.resolve(l, 0, &[]string{}, &[]string{})
		}
		if got != d {
			continue
		}
		if l.decision == d && l.from.Reason != "" {
			out = append(out, l.from.Reason)
		}
		for _, c := range l.from.Conditions {
			if l.decision == vectors.Conditional && c.Effect == d && c.PerObject[0] == vectors.True {
				out = append(out, slices.DeleteFunc([]string{c.ID, c.Description}, func(s string) bool { return s == "" })...)
			}
		}
		if d != vectors.NoOpinion {
			break
		}
	}
	return out
}

// resolve evaluates the sets of one authorizer. The API server evaluates them in its own process if it knows every
// type. Otherwise it calls the authorizer once.
func (r *run) resolve(l *link, object int, later, evaluated *[]string) (vectors.Decision, bool) {
	builtin := true
	for _, s := range l.sets {
		for i, t := range s.types {
			builtin = builtin && slices.Contains(r.m.Server.BuiltinTypes, t) && s.builtin[object][i] != vectors.Error
		}
	}
	if !builtin {
		*evaluated = append(*evaluated, l.from.Name)
		if l.from.Cannot {
			return failedAs(l.from.FailureMode), true
		}
	}
	errs := false
	for _, s := range l.sets {
		if s.concrete != "" {
			return s.concrete, errs
		}
		truths := slices.Clone(s.truths[object])
		if builtin {
			truths = slices.Clone(s.builtin[object])
		}
		for i := range truths {
			if builtin && i < len(s.secondary) && s.secondary[i] {
				truths[i] = r.second(later)
			}
		}
		d, err := Evaluate(s.mode, s.effects, truths)
		if d != vectors.NoOpinion {
			return d, err
		}
		errs = errs || err
	}
	return vectors.NoOpinion, errs
}

// second is the truth of a condition that asks for the second check, of all authorizers in their order and without
// conditions.
func (r *run) second(later *[]string) vectors.Truth {
	m := *r.m
	m.Request.Mode = "None"
	w := &vectors.Want{Asked: []string{}}
	(&run{wire: r.wire, m: &m, reading: r.reading}).authorize(m.Compound, w)
	*later = append(*later, w.Asked...)
	if w.Authorized == vectors.Allow {
		return vectors.True
	}
	return vectors.False
}
