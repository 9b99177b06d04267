package scenarios

import (
	"cmp"
	"iter"
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

// Full returns a copy that also has everything that follows from its expectations. Scenarios that Load returns are
// full.
func (s *Scenario) Full() *Scenario { return s.mapExpect(deriver.fill) }

// Lean returns a copy of the scenario without the expectations that Full derives. That is the form in which a file
// states it.
func (s *Scenario) Lean() *Scenario { return s.mapExpect(deriver.strip) }

// mapExpect returns a copy of the scenario in which fn has replaced every expectation.
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

// deriver knows what an expectation does not say about its request.
type deriver struct {
	request *Request
	gate    Gate
}

// fill returns an expectation with everything that follows from it.
func (d deriver) fill(e Expect) Expect {
	e.Code = cmp.Or(e.Code, refusalCodes[e.Outcome])
	if e.Audit == nil {
		e.Audit = d.deriveAudit(e)
	}
	if e.Metrics == nil && !slices.ContainsFunc(e.OneOf, func(a Alternative) bool { return a.Metrics != nil }) {
		e.Metrics, e.OneOf = d.deriveMetrics(e)
	}
	if e.Audit != nil && *e.Audit == (AuditExpect{}) {
		e.Audit = nil
	}
	if m := e.Metrics; m != nil && m.Attempts == nil && m.Authorizations == nil {
		e.Metrics = nil
	}
	return e
}

// strip returns an expectation without what fill derives again.
func (d deriver) strip(e Expect) Expect {
	for _, leave := range leavable {
		if lean := leave.out(e); reflect.DeepEqual(d.fill(lean), d.fill(e)) {
			e = lean
		}
	}
	return e
}

// leavable are the fields that may be left out, in the order in which this is tried. metrics may need the mode that
// audit states.
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

// findRestated returns the fields of an expectation that only state what follows from the others.
func (d deriver) findRestated(e Expect) (fields []string) {
	for _, leave := range leavable {
		if lean := leave.out(e); !reflect.DeepEqual(lean, e) && reflect.DeepEqual(d.fill(lean), d.fill(e)) {
			fields, e = append(fields, leave.field), lean
		}
	}
	return fields
}

// findNoted records the expectations of the file that can be left out, and the denials whose expectation would fit any
// denial.
func (f *loadedFile) findNoted() {
	for i, st := range f.scenario.Steps {
		if st.Request != nil && st.Expect != nil {
			f.noteExpect(*st.Expect, st.Request, at("steps", i, "expect"))
		}
		if st.Kubectl != nil && st.ExpectClient != nil {
			for j, r := range st.ExpectClient.Requests {
				f.noteExpect(r.Expect, st.Kubectl.Step(r).Request, at("steps", i, "expectClient", "requests", j, "expect"))
			}
		}
	}
}

func (f *loadedFile) noteExpect(e Expect, r *Request, path []any) {
	isStated := e.Message != "" || e.MessageMatches != "" || e.Reviews != nil || e.OneOf != nil
	if !isStated && slices.Contains(denials, e.Outcome) {
		f.source.noteAt(
			path,
			"the denial states neither message nor reviews, so that any denial will do (expected one of message, messageMatches, reviews, oneOf)",
		)
	}
	for _, field := range (deriver{r, f.scenario.Requires.Gate}).findRestated(e) {
		f.source.noteAt(
			extend(path, field),
			"%s says only what follows from the rest (expected it left out: it is derived, and judged)",
			field,
		)
	}
}

// isAuthorized reports whether a request with this outcome reached authorization and was decided there.
func isAuthorized(o Outcome) bool {
	return o == Allowed || o == RequestForbidden || o == EscalationForbidden
}

// isImpersonated reports whether the request was carried out on behalf of somebody else.
func (d deriver) isImpersonated(o Outcome) bool {
	return isAuthorized(o) && d.request.WantedUser() != ""
}

// mode returns the mode by which the request was impersonated, or "" if that is unknown.
func (d deriver) mode(e Expect) (mode string) {
	if d.gate != GateOn {
		return legacyMode // also with "any": what is expected in both states cannot depend on a new mode
	}
	for _, list := range e.allReviews() {
		for r := range flatten(list) {
			mode = cmp.Or(r.mode(), mode)
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

// mode returns the mode in which a review asks for the requestor's permission, or "" if the review is about something
// else.
func (r *Review) mode() string {
	if r.By == ByImpersonated {
		return ""
	}
	mode, _ := ImpersonationMode(r.Verb)
	return mode
}

// flatten returns the reviews, with each group of reviews replaced by its members. Groups are not within groups.
func flatten(list []Review) iter.Seq[*Review] {
	return func(yield func(*Review) bool) {
		for i := range list {
			members := list[i].Unordered
			if members == nil {
				members = list[i : i+1]
			}
			for j := range members {
				if !yield(&members[j]) {
					return
				}
			}
		}
	}
}

// statesReviews reports whether an expectation or one of its alternatives states reviews.
func (e *Expect) statesReviews() bool {
	return e.Reviews != nil || slices.ContainsFunc(e.OneOf, func(a Alternative) bool { return a.Reviews != nil })
}

// deriveMetrics returns the deltas of the expectation, or those of each alternative if they differ.
func (d deriver) deriveMetrics(e Expect) (*MetricsExpect, []Alternative) {
	isImpersonated, mode := d.isImpersonated(e.Outcome), d.mode(e)
	isCounted := d.gate == GateOn && d.request.WantedUser() != ""
	isModeUnknown := isImpersonated && mode == ""
	if !isCounted || isModeUnknown || !e.statesReviews() {
		return nil, e.OneOf
	}
	m := MetricsExpect{Attempts: []MetricDelta{}}
	switch {
	case isImpersonated:
		m.Attempts = append(m.Attempts, MetricDelta{mode, "allowed", 1})
	case e.Outcome == ImpersonationForbidden:
		m.Attempts = append(m.Attempts, MetricDelta{"", "denied", 1})
	}
	if e.Reviews != nil {
		m.Authorizations = countAuthorizations(e.Reviews)
		return &m, e.OneOf
	}
	areEqual := true
	alternatives := seq.Map(e.OneOf, func(a Alternative) Alternative {
		own := m
		own.Authorizations = countAuthorizations(a.Reviews)
		a.Metrics = &own
		return a
	})
	for _, a := range alternatives {
		areEqual = areEqual && reflect.DeepEqual(a.Metrics, alternatives[0].Metrics)
	}
	if !areEqual {
		return nil, alternatives
	}
	return alternatives[0].Metrics, e.OneOf
}

// countAuthorizations counts the impersonation checks among reviews by mode and decision.
func countAuthorizations(list []Review) []MetricDelta {
	out := []MetricDelta{}
	for r := range flatten(list) {
		mode, decision := r.mode(), DecisionLabel(r.Decision)
		if mode == "" {
			continue
		}
		i := slices.IndexFunc(out, func(m MetricDelta) bool { return m.Mode == mode && m.Decision == decision })
		if i < 0 {
			i = len(out)
			out = append(out, MetricDelta{Mode: mode, Decision: decision})
		}
		out[i].Count++
	}
	return out
}
