package gate

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/verdicts"
)

// ChooseReading returns the reading of the chain that an API server has: the one with fewer failures. observations has what was
// seen of vectors, by their IDs.
func ChooseReading(all []*vectors.Vector, observations map[string]*VectorEvidence) vectors.Reading {
	if countFailures(all, observations, vectors.Eager) < countFailures(all, observations, vectors.Lazy) {
		return vectors.Eager
	}
	return vectors.Lazy
}

func countFailures(all []*vectors.Vector, observations map[string]*VectorEvidence, reading vectors.Reading) (n int) {
	for _, v := range all {
		s := observations[v.ID]
		if s == nil {
			continue
		}
		if r, _ := s.Judge(v, reading); r.Verdict == verdicts.Failed {
			n++
		}
	}
	return n
}

// Judge compares what was seen of a vector with what the vector wants in a reading of the chain. comparisons is the number
// of fields that were compared.
func (s *VectorEvidence) Judge(v *vectors.Vector, reading vectors.Reading) (r vectors.Result, comparisons int) {
	got, broken := s.want(v.APIServer)
	want := v.APIServer.WantIn(reading)
	wrong := append(want.Differences(got), broken...)
	unseen := want.Unknown(got)
	comparisons = want.Stated(got)
	switch {
	case len(wrong) > 0 && v.Level == vectors.Must:
		return vectors.Result{Verdict: verdicts.Failed, Why: wrong}, comparisons
	case len(wrong) > 0:
		r.Why = seq.Map(wrong, func(text string) string { return "the text advises otherwise: " + text })
	case comparisons == 0:
		return vectors.Result{Verdict: verdicts.NotSupported, Why: []string{"nothing of what it states is seen of an API server"}}, 0
	case len(unseen) > 0:
		r.Why = []string{"not seen: " + strings.Join(unseen, ", ")}
	}
	r.Verdict = verdicts.Passed
	return r, comparisons
}

// want translates what was seen into the fields of vectors. broken lists faults that no vector has to name.
func (s *VectorEvidence) want(m *vectors.APIServer) (w *vectors.Want, broken []string) {
	w = &vectors.Want{Starts: &s.Starts}
	if !s.Starts {
		return w, nil
	}
	w.ConditionsChain = renderSets(s.Review, m)
	failed := s.Review.EvaluationError != ""
	switch w.Authorized = s.Review.Decision(); {
	case w.Authorized != vectors.Conditional:
		w.Error = &failed
	case slices.ContainsFunc(vectors.Leaves(s.Review.ConditionsChain), canAllow):
		w.Authorized = vectors.ConditionalAllow
	default:
		w.Authorized = vectors.ConditionalDeny
	}
	if s.Request == nil { // the caller of the vector accepts no conditions
		w.Asked, w.EvaluatedBy, w.Decision = names(s.ReviewEvents, asked), names(s.ReviewEvents, evaluates), w.Authorized
		return w, nil
	}
	before, after := s.Request.Events, []string{}
	if i := slices.Index(before, admission); i >= 0 {
		before, after = before[:i], before[i:]
	}
	w.Asked, w.AskedLater, w.EvaluatedBy = names(before, asked), names(after, asked), names(s.Request.Events, evaluates)
	proceeded, admitted := s.Request.proceeded(), s.Request.admitted()
	w.Proceeds, w.Admitted, w.Decision = &proceeded, &admitted, s.decision(m)
	w.Reason = s.reason(m, w.Authorized)
	for _, sent := range []*Sent{s.Request, s.Alone, s.Behind} {
		if sent != nil {
			broken = append(broken, sent.check(m)...)
		}
	}
	broken = append(broken, s.checkReviews()...)
	if s.Form == newestForm {
		broken = append(broken, s.Alone.checkUpstream(m, w.Authorized == vectors.ConditionalAllow)...)
	}
	return w, slices.Compact(broken)
}

// checkReviews returns where reviews of the other kinds differ from the SubjectAccessReview.
func (s *VectorEvidence) checkReviews() (broken []string) {
	for _, kind := range slices.Sorted(maps.Keys(s.Reviews)) {
		if other := s.Reviews[kind]; !reflect.DeepEqual(other, s.Review) {
			broken = append(broken, fmt.Sprintf("a %s shows %+v, and a %s %+v", kind, *other, subjectReview, *s.Review))
		}
	}
	return broken
}

// check returns the faults of a request that no vector has to name. A request that nobody has allowed, after an error
// of an authorizer, is answered with 500.
func (s *Sent) check(m *vectors.APIServer) (broken []string) {
	isRefusal := s.Code == http.StatusForbidden || s.Code == http.StatusInternalServerError
	if !s.admitted() && !isRefusal {
		broken = append(broken, fmt.Sprintf("the request is answered %d", s.Code))
	}
	if slices.ContainsFunc(s.Events, func(e string) bool { return strings.HasSuffix(e, forObject+"-1") }) {
		broken = append(broken, "conditions are evaluated by other data than admission has")
	}
	if slices.ContainsFunc(s.Events, func(e string) bool { return strings.HasSuffix(e, exposed) }) {
		broken = append(broken, "an admission webhook sees conditions")
	}
	isOneCheck := m.Compound == nil && m.Objects < 2 // a second check or object may be evaluated after admission of the first
	if isOneCheck && !s.isInOrder() {
		broken = append(broken, "admission plugins that validate are asked before conditions are enforced")
	}
	return broken
}

// isInOrder reports whether conditions were enforced before anything else validated the request.
func (s *Sent) isInOrder() bool {
	if s.isForbidden() {
		return !s.isCalled()
	}
	validated := slices.Index(s.Events, validation)
	if validated < 0 {
		return true
	}
	return !slices.ContainsFunc(s.Events[validated:], func(e string) bool { return strings.HasPrefix(e, evaluates+" ") })
}

// checkUpstream returns the faults of a request that are specific to an API server of kubernetes/kubernetes#141959. Its
// audit event must report whether the request was let through on conditions, and a refusal must say what the user may
// not do.
func (s *Sent) checkUpstream(m *vectors.APIServer, isConditional bool) (broken []string) {
	want := ""
	if isConditional && s.proceeded() {
		want = "true"
	}
	if got := s.Annotations[conditionalAnnotation]; got != want {
		broken = append(broken, fmt.Sprintf("the audit annotation %s is %q, want %q", conditionalAnnotation, got, want))
	}
	q := sentFor(m)
	text := fmt.Sprintf("cannot %s resource %q", q.Verb, strings.TrimSuffix(q.Resource+"/"+q.Subresource, "/"))
	isSecond := m.Compound != nil || q.Resource == "clusterroles" // such a refusal names another verb
	if s.Code == http.StatusForbidden && !isSecond && !strings.Contains(s.Message, text) {
		broken = append(broken, fmt.Sprintf("the refusal is %q, want %q in it", s.Message, text))
	}
	return broken
}

func canAllow(s vectors.ConditionSet) bool {
	return s.Allowed || slices.ContainsFunc(s.Conditions, func(c vectors.Condition) bool { return c.Effect == vectors.Allow })
}

// names returns the names of the authorizers in the events of one kind, without the events of the second check and of
// further objects.
func names(events []string, event string) []string {
	found := []string{}
	for _, e := range events {
		rest, isEvent := strings.CutPrefix(e, event+" ")
		name, number, isNumbered := strings.Cut(rest, forObject)
		isFirst := !isNumbered || number == "-1"
		if isEvent && isFirst {
			found = append(found, name)
		}
	}
	return found
}

// setWords are the words for a set without conditions, by its decision, and for a set with conditions.
var setWords = map[vectors.Decision]string{vectors.Allow: " allowed", vectors.Deny: " denied", vectors.NoOpinion: " conditions"}

// renderSets returns the sets of a SubjectAccessReview in the words of vectors.
func renderSets(r *vectors.SubjectAccessReviewStatus, m *vectors.APIServer) []string {
	words := []string{}
	for _, set := range r.ConditionsChain {
		name := set.AuthorizerName
		if a := link(m.Chain, name); a != nil {
			name = a.Name
		}
		for _, leaf := range vectors.Leaves([]vectors.ConditionSet{set}) {
			d := (&vectors.SubjectAccessReviewStatus{Allowed: leaf.Allowed, Denied: leaf.Denied}).Decision()
			words = append(words, name+setWords[d])
		}
	}
	return words
}

// decision returns the concrete decision about a request. A request that was refused was denied, or nobody had an
// opinion: then an authorizer behind the chain could allow it. For a request that supports no conditions, and for
// several objects, the decision is unknown.
func (s *VectorEvidence) decision(m *vectors.APIServer) vectors.Decision {
	isVerb := slices.Contains([]string{"create", "update", "patch", "delete"}, m.Request.Verb)
	writes := isVerb && m.Request.Served == "self"
	isAdmitted := m.Request.Connect || writes // which admission sees
	switch {
	case m.Objects > 1:
		return ""
	case s.Alone.admitted():
		return vectors.Allow
	case s.Behind.admitted():
		return vectors.NoOpinion
	case isAdmitted || s.Review.Decision() == vectors.Deny:
		return vectors.Deny
	}
	return ""
}

// reasonAnnotation is the reason of a decision in an audit event.
const reasonAnnotation = "authorization.k8s.io/reason"

// reason returns the words of a vector that are in the answer to the request, or in its audit event. A request that was
// allowed on conditions has no reason that is certain to be visible.
func (s *VectorEvidence) reason(m *vectors.APIServer, authorized vectors.Decision) []string {
	text := s.Alone.Message
	switch {
	case s.Alone.admitted() && authorized == vectors.ConditionalAllow:
		return nil
	case s.Alone.admitted():
		text = s.Alone.Annotations[reasonAnnotation]
	}
	return append([]string{}, slices.DeleteFunc(m.Words(), func(word string) bool { return !strings.Contains(text, word) })...)
}
