package certification

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/conditional/vectors"
)

// Finding is one thing that is wrong with a webhook.
type Finding struct {
	// Reason is its short name: a rule, or the last part of a vector's ID.
	Reason string `json:"reason"`
	Level  Level  `json:"level"`
	// Advice says that the text only recommends it: it costs no level.
	Advice   bool     `json:"advice,omitempty"`
	Count    int      `json:"count"`
	Examples []string `json:"examples"`
}

const maxExamples = 3

// Result is what became of a level.
type Result struct {
	Level   Level `json:"level"`
	Granted bool  `json:"granted"`
	// Vectors is how many were asked, of Planned; Exchanges how many answers that
	// took.
	Vectors   int `json:"vectors"`
	Planned   int `json:"planned"`
	Exchanges int `json:"exchanges"`
	Findings  int `json:"findings"`
}

// judge collects findings.
type judge struct {
	book  *Book
	found map[string]*Finding
	// asked are the answers to the steps themselves.
	asked map[string]*vectors.SubjectAccessReviewStatus
}

// Judge says what is wrong, from the answers alone.
func (b *Book) Judge(all []Exchange) ([]Finding, []Result, error) {
	j := &judge{book: b, found: map[string]*Finding{}, asked: map[string]*vectors.SubjectAccessReviewStatus{}}
	vectorsSeen, exchanges := map[Level]map[string]bool{Phases: {}, Atomic: {}}, map[Level]int{}
	for _, x := range all {
		e := b.byID[x.Vector]
		if e == nil || x.Step < 0 || x.Step >= len(e.Steps) {
			return nil, nil, fmt.Errorf("the evidence is about %q, step %d, which the vectors do not have", x.Vector, x.Step)
		}
		vectorsSeen[e.level][e.id] = true
		exchanges[e.level]++
		switch s := e.Steps[x.Step]; {
		case s.Authorize != nil:
			j.review(e, x, s.Authorize)
		case s.Evaluate != nil:
			j.evaluate(e, x, s.Evaluate)
		}
	}
	var findings []Finding
	for _, f := range j.found {
		findings = append(findings, *f)
	}
	slices.SortFunc(findings, func(x, y Finding) int {
		return cmp.Or(strings.Compare(string(y.Level), string(x.Level)), cmp.Compare(y.Count, x.Count), strings.Compare(x.Reason, y.Reason))
	})
	var results []Result
	for _, l := range Levels() {
		r := Result{Level: l, Vectors: len(vectorsSeen[l]), Planned: b.Len(l), Exchanges: exchanges[l]}
		for _, f := range findings {
			if f.Level == l && !f.Advice {
				r.Findings++
			}
		}
		r.Granted = r.Planned > 0 && r.Vectors == r.Planned && r.Findings == 0
		results = append(results, r)
	}
	return findings, results, nil
}

// note writes a finding down.
func (j *judge) note(e *entry, x Exchange, advice bool, reason, format string, args ...any) {
	key := fmt.Sprint(e.level, advice, reason)
	f := j.found[key]
	if f == nil {
		f = &Finding{Reason: reason, Level: e.level, Advice: advice}
		j.found[key] = f
	}
	f.Count++
	if len(f.Examples) < maxExamples {
		f.Examples = append(f.Examples, strings.TrimSpace(fmt.Sprintf("%s, step %d %s: ", e.id, x.Step, x.Variant))+" "+fmt.Sprintf(format, args...))
	}
}

// readable decodes an answer, and notes why it cannot.
func (j *judge) readable(e *entry, x Exchange, version, kind string, into any) bool {
	if x.Fault != "" {
		j.note(e, x, false, x.Fault, "it is not answered")
		return false
	}
	if x.HTTP != 200 {
		j.note(e, x, false, "http-status", "status %d", x.HTTP)
		return false
	}
	var head struct{ APIVersion, Kind string }
	if json.Unmarshal(x.Answer, &head) != nil {
		j.note(e, x, false, "answer-unreadable", "it is no review")
		return false
	}
	if head.Kind != kind || head.APIVersion != version {
		j.note(e, x, false, "wrong-kind", "it is %.80q of %.80q, want %s of %s", head.Kind, head.APIVersion, kind, version)
		return false
	}
	if json.Unmarshal(x.Answer, into) != nil {
		j.note(e, x, false, "answer-unreadable", "it is no review")
		return false
	}
	return true
}

// decision is what a status says.
func decision(s *vectors.SubjectAccessReviewStatus) vectors.Decision {
	switch {
	case len(s.ConditionsChain) > 0:
		return vectors.Conditional
	case s.Allowed:
		return vectors.Allow
	case s.Denied:
		return vectors.Deny
	}
	return vectors.NoOpinion
}

// review judges an answer of the first phase.
func (j *judge) review(e *entry, x Exchange, step *vectors.AuthorizeStep) {
	var in vectors.SubjectAccessReview
	if !j.readable(e, x, vectors.AccessVersion, vectors.AccessKind, &in) {
		return
	}
	s, mode := &in.Status, step.Spec.Mode()
	if x.Variant == Unaware {
		mode = vectors.None
	}
	if j.form(e, x, s, mode) {
		return // what it means cannot be said
	}
	key := fmt.Sprintf("%s %d", e.id, x.Step)
	switch x.Variant {
	case Asked:
		j.asked[key] = s
		j.decided(e, x, s, step.Want)
	case Again:
		if first := j.asked[key]; first != nil && canonical(first) != canonical(s) {
			j.note(e, x, false, "not-deterministic", "the same review has another answer")
		}
	case Unaware:
		j.unaware(e, x, s, step.Want)
	}
}

// decided compares a decision with what is wanted.
func (j *judge) decided(e *entry, x Exchange, s *vectors.SubjectAccessReviewStatus, want vectors.AuthorizeWant) {
	got := decision(s)
	if !slices.Contains(want.OneOf, got) {
		j.note(e, x, e.should, e.reason(), "%s, want %v", got, want.OneOf)
		return
	}
	if want.Error != nil && *want.Error != (s.EvaluationError != "") {
		j.note(e, x, e.should, e.reason(), "there is an evaluationError: %t, want %t", !*want.Error, *want.Error)
	}
	if got != vectors.Conditional {
		return
	}
	effects := effectsOf(s)
	wanted := slices.Clone(want.Effects)
	slices.Sort(wanted)
	if len(wanted) > 0 && !slices.Equal(effects, wanted) {
		j.note(e, x, e.should, e.reason(), "conditions of effect %v, want %v", effects, wanted)
	}
	if residuals, ok := residualsOf(s); ok && len(want.Residuals) > 0 && !slices.Equal(residuals, sortedExpressions(want.Residuals)) {
		j.note(e, x, e.should, e.reason(), "residuals %q, want %q", residuals, want.Residuals)
	}
}

// unaware judges what a client gets that takes no conditions.
func (j *judge) unaware(e *entry, x Exchange, s *vectors.SubjectAccessReviewStatus, want vectors.AuthorizeWant) {
	got := decision(s)
	switch {
	case slices.Contains(want.OneOf, vectors.Conditional):
		if got == vectors.Allow && !slices.Contains(want.OneOf, vectors.Allow) {
			j.note(e, x, false, "allows-without-conditions", "what depends on conditions is allowed to a client that takes none")
		}
		if got == vectors.NoOpinion && slices.Contains(want.Effects, vectors.Deny) {
			j.note(e, x, true, "deny-not-folded", "NoOpinion, want Deny: a condition might deny")
		}
	case !slices.Contains(want.OneOf, got) && got != vectors.Conditional:
		j.note(e, x, e.should, e.reason(), "%s for a client that takes no conditions, want %v", got, want.OneOf)
	}
}

// evaluate judges an answer of the second phase.
func (j *judge) evaluate(e *entry, x Exchange, step *vectors.EvaluateStep) {
	if x.Variant == Foreign && x.Fault == "" && x.HTTP >= 400 && x.HTTP < 500 {
		return // a refusal
	}
	var in vectors.AuthorizationConditionsReview
	if !j.readable(e, x, vectors.ConditionsVersion, vectors.ConditionsKind, &in) {
		return
	}
	r := in.Response
	switch {
	case r == nil:
		j.note(e, x, false, "no-response", "the review has no response")
		return
	case r.Allowed && r.Denied:
		j.note(e, x, false, "allowed-and-denied", "allowed and denied at once")
		return
	}
	got := vectors.NoOpinion
	if r.Allowed {
		got = vectors.Allow
	} else if r.Denied {
		got = vectors.Deny
	}
	switch {
	case x.Variant == Foreign:
		if got == vectors.Allow {
			j.note(e, x, false, "unknown-type-evaluated", "conditions of type %s allow", foreignType)
		}
	case !slices.Contains(step.Want.OneOf, got):
		j.note(e, x, e.should, e.reason(), "the conditions come to %s, want %v", got, step.Want.OneOf)
	case step.Want.Error != nil && *step.Want.Error != (r.EvaluationError != ""):
		j.note(e, x, e.should, e.reason(), "there is an evaluationError: %t, want %t", !*step.Want.Error, *step.Want.Error)
	}
}
