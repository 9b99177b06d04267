package scenarios

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
)

// What follows from the rest of an expectation is not written into files. The loader derives it, and it is judged, too:
//
//   - the code follows from the outcome, unless that is allowed or serverError;
//   - the audit fields follow from the outcome and the mode, where the reviews or
//     the resulting user are stated;
//   - the metric deltas follow from the reviews, where the gate is on.
//
// The mode is that of the last review about the impersonation. Where a cache has answered instead, there is none;
// then the file states the audit fields, and the mode is taken from their constraint. "audit: {}" and "metrics:
// {}" say that nothing of it is to be judged.

// Full returns a copy with everything derived that expectations leave to be. Scenarios that Load returns are full.
func (s *Scenario) Full() *Scenario { return s.mapExpect(deriver.fill) }

// Lean returns a copy of the scenario without the expectations that Full derives: the form in which a file states it.
func (s *Scenario) Lean() *Scenario { return s.mapExpect(deriver.strip) }

func (s *Scenario) mapExpect(fn func(deriver, Expect) Expect) *Scenario {
	out := *s
	out.Steps = seq.Map(s.Steps, func(st Step) Step {
		if st.Request != nil && st.Expect != nil {
			e := fn(deriver{st.Request, s.Requires.Gate}, *st.Expect)
			st.Expect = &e
		}
		if st.Kubectl != nil && st.ExpectClient != nil {
			client := *st.ExpectClient
			client.Requests = seq.Map(client.Requests, func(r ClientRequest) ClientRequest {
				r.Expect = fn(deriver{st.Kubectl.Step(r).Request, s.Requires.Gate}, r.Expect)
				return r
			})
			st.ExpectClient = &client
		}
		return st
	})
	return &out
}

// deriver knows of a request what its expectation does not say.
type deriver struct {
	request *Request
	gate    Gate
}

func (d deriver) fill(e Expect) Expect {
	e.Code = cmp.Or(e.Code, refusalCodes[e.Outcome])
	if e.Audit == nil {
		e.Audit = d.audit(e)
	}
	if e.Metrics == nil && !slices.ContainsFunc(e.OneOf, func(a Alternative) bool { return a.Metrics != nil }) {
		e.Metrics, e.OneOf = d.metrics(e)
	}
	if e.Audit != nil && *e.Audit == (AuditExpect{}) {
		e.Audit = nil
	}
	if m := e.Metrics; m != nil && m.Attempts == nil && m.Authorizations == nil {
		e.Metrics = nil
	}
	return e
}

// strip leaves out what fill derives again.
func (d deriver) strip(e Expect) Expect {
	for _, leave := range leavable {
		if lean := leave.out(e); reflect.DeepEqual(d.fill(lean), d.fill(e)) {
			e = lean
		}
	}
	return e
}

// leavable are the fields that may be left out, in the order of trying: metrics may need the mode that audit states.
var leavable = []struct {
	field string
	out   func(Expect) Expect
}{
	{"code", func(e Expect) Expect { e.Code = 0; return e }},
	{"audit", func(e Expect) Expect { e.Audit = nil; return e }},
	{"metrics", func(e Expect) Expect { e.Metrics = nil; return e }},
	{"oneOf", func(e Expect) Expect {
		e.OneOf = seq.Map(e.OneOf, func(a Alternative) Alternative { a.Metrics = nil; return a })
		return e
	}},
}

// restated lists the fields of an expectation that only say what follows.
func (d deriver) restated(e Expect) (fields []string) {
	for _, leave := range leavable {
		if lean := leave.out(e); !reflect.DeepEqual(lean, e) && reflect.DeepEqual(d.fill(lean), d.fill(e)) {
			fields, e = append(fields, leave.field), lean
		}
	}
	return fields
}

// findNoted records the expectations of the file that can be left out, and the denials that any denial would fit.
func (f *loadedFile) findNoted() {
	find := func(e Expect, r *Request, path ...any) {
		if slices.Contains(denials, e.Outcome) && e.Message == "" && e.MessageMatches == "" && e.Reviews == nil && e.OneOf == nil {
			n, _ := find(f.source.root, path)
			f.source.noted = append(f.source.noted, f.source.at(posOf(n),
				"the denial states neither message nor reviews, so that any denial will do (expected one of message, messageMatches, reviews, oneOf)"))
		}
		for _, field := range (deriver{r, f.scenario.Requires.Gate}).restated(e) {
			n, _ := find(f.source.root, extend(path, field))
			f.source.noted = append(f.source.noted, f.source.at(posOf(n),
				"%s says only what follows from the rest (expected it left out: it is derived, and judged)", field))
		}
	}
	for i, st := range f.scenario.Steps {
		if st.Request != nil && st.Expect != nil {
			find(*st.Expect, st.Request, "steps", i, "expect")
		}
		if st.Kubectl != nil && st.ExpectClient != nil {
			for j, r := range st.ExpectClient.Requests {
				find(r.Expect, st.Kubectl.Step(r).Request, "steps", i, "expectClient", "requests", j, "expect")
			}
		}
	}
}

func authorized(o Outcome) bool {
	return o == Allowed || o == RequestForbidden || o == EscalationForbidden
}

func (d deriver) impersonated(o Outcome) bool { return authorized(o) && d.request.WantedUser() != "" }

// mode is that by which the request was impersonated, "" if that is unknown.
func (d deriver) mode(e Expect) (mode string) {
	if d.gate != GateOn {
		return legacyMode // with "any" too: what holds in both states is not of a new mode
	}
	for _, r := range flatten(e.allReviews()) {
		if m := r.mode(); m != "" {
			mode = m
		}
	}
	if a := e.Audit; mode == "" && a != nil && a.Constraint != nil {
		if _, constrained, ok := strings.Cut(*a.Constraint, ":"); ok {
			return constrained
		}
		return legacyMode
	}
	return mode
}

const legacyMode = "legacy"

// mode is that of which the requestor is asked, "" for a review that is about something else.
func (r Review) mode() string {
	if r.By == ByImpersonated {
		return ""
	}
	mode, _ := ImpersonationMode(r.Verb)
	return mode
}

func flatten(list []Review) (out []Review) {
	for _, r := range list {
		if r.Unordered != nil {
			out = append(out, flatten(r.Unordered)...)
			continue
		}
		out = append(out, r)
	}
	return out
}

// statesReviews tells whether an expectation or its alternatives state reviews.
func (e *Expect) statesReviews() bool {
	return e.Reviews != nil || slices.ContainsFunc(e.OneOf, func(a Alternative) bool { return a.Reviews != nil })
}

func (d deriver) audit(e Expect) *AuditExpect {
	impersonated, constraint, decision := d.impersonated(e.Outcome), "", ""
	mode := d.mode(e)
	if !e.statesReviews() && e.User == nil || e.Outcome == HeadersTooLarge || impersonated && mode == "" {
		return nil
	}
	if impersonated && mode != legacyMode {
		constraint = "impersonate:" + mode
	}
	switch {
	case e.Outcome == RequestForbidden:
		decision = "forbid"
	case authorized(e.Outcome):
		decision = "allow"
	}
	return &AuditExpect{ImpersonatedUser: &impersonated, Constraint: &constraint, Decision: &decision}
}

// metrics derives the deltas of the expectation, or of each alternative where they differ.
func (d deriver) metrics(e Expect) (*MetricsExpect, []Alternative) {
	impersonated, mode := d.impersonated(e.Outcome), d.mode(e)
	if d.gate != GateOn || d.request.WantedUser() == "" || !e.statesReviews() || impersonated && mode == "" {
		return nil, e.OneOf
	}
	m := MetricsExpect{Attempts: []MetricDelta{}}
	switch {
	case impersonated:
		m.Attempts = append(m.Attempts, MetricDelta{mode, "allowed", 1})
	case e.Outcome == ImpersonationForbidden:
		m.Attempts = append(m.Attempts, MetricDelta{"", "denied", 1})
	}
	if e.Reviews != nil {
		m.Authorizations = authorizations(e.Reviews)
		return &m, e.OneOf
	}
	differ := false
	each := seq.Map(e.OneOf, func(a Alternative) Alternative {
		own := m
		own.Authorizations = authorizations(a.Reviews)
		a.Metrics = &own
		return a
	})
	for _, a := range each {
		differ = differ || !reflect.DeepEqual(a.Metrics, each[0].Metrics)
	}
	if differ {
		return nil, each
	}
	return each[0].Metrics, e.OneOf
}

func authorizations(list []Review) []MetricDelta {
	out := []MetricDelta{}
	for _, r := range flatten(list) {
		mode, decision := r.mode(), DecisionLabel(r.Decision)
		if mode == "" {
			continue
		}
		i := slices.IndexFunc(out, func(m MetricDelta) bool { return m.Mode == mode && m.Decision == decision })
		if i < 0 {
			i, out = len(out), append(out, MetricDelta{Mode: mode, Decision: decision})
		}
		out[i].Count++
	}
	return out
}
