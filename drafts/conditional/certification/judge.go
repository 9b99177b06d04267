package certification

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/internal/seq"
)

// judge judges the exchanges of a run, in their order.
type judge struct {
	plan  *Plan
	found *certify.Findings
	// asked are the answers to the steps themselves.
	asked map[string]*vectors.SubjectAccessReviewStatus
	wire  *wire.Revision
	// replica is set if a second replica was asked.
	replica bool
}

// Judge returns the certification that follows from exchanges.
func (b *Plan) Judge(all []Exchange) (*certify.Certification, error) {
	j := &judge{plan: b, found: certify.NewFindings(), asked: map[string]*vectors.SubjectAccessReviewStatus{}, wire: wire.Newest(), replica: b.replica}
	if err := j.findWire(all); err != nil {
		return nil, err
	}
	byEntry := map[*entry][]Exchange{}
	for i, x := range all {
		e := b.byID[x.Vector]
		if e == nil || x.Step < 0 || x.Step >= len(e.Steps) {
			return nil, fmt.Errorf("the evidence is about %q, step %d, which the vectors do not have", x.Vector, x.Step)
		}
		if x.Variant == Probe {
			isLast := i == len(all)-1
			if isLast { // no other question was asked after it
				j.probe(e, x)
			}
			continue
		}
		byEntry[e] = append(byEntry[e], x)
		switch s := e.Steps[x.Step]; {
		case s.Authorize != nil:
			j.review(e, x, s.Authorize)
		case s.Evaluate != nil:
			j.evaluate(e, x, s.Evaluate)
		}
	}
	policies, err := PoliciesJSON(b.Policies())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(policies)
	c := &certify.Certification{
		Mode: "conditional", Wire: j.wire.Name, Seed: b.Seed, SuiteDigest: b.Suite(), PolicyDigest: hex.EncodeToString(sum[:]),
		Findings: j.found.Sorted(Levels()), Cases: map[string]certify.CaseResult{},
	}
	if j.replica {
		c.Mode += ", with a second replica"
	}
	return j.conclude(c, byEntry), nil
}

// findWire finds out in which revision of the wire the exchanges are, and whether a replica was asked.
func (j *judge) findWire(all []Exchange) error {
	isFirst := true
	for i, x := range all {
		if x.Variant == Probe {
			continue
		}
		w, err := wire.Named(cmp.Or(x.Wire, wire.Seed.Name))
		isOther := !isFirst && w != j.wire
		if err != nil || isOther {
			return fmt.Errorf("exchange %d is in %q: one certification is of one revision of the wire", i, x.Wire)
		}
		j.wire, isFirst = w, false
		j.replica = j.replica || x.Variant == Replica
	}
	return nil
}

// The reasons of findings about all answers of a webhook.
const (
	unknownForm  = "unknown-form"
	noConditions = "no-conditions"
)

// IsAboutForm reports whether a finding says that a webhook answers in no known revision of the wire.
func IsAboutForm(f certify.Finding) bool { return f.Reason == unknownForm || f.Reason == noConditions }

// probe judges the last probe of a run in which nothing else was asked.
func (j *judge) probe(e *entry, x Exchange) {
	if !j.readable(e, x, wire.AccessVersion, wire.AccessKind) || len(wire.Recognize(x.Answer)) > 0 {
		return
	}
	ways := "a client asks for them by spec.authorizationOptions or by spec.conditionalAuthorization, and they come in " + wire.Fields()
	if unknown := wire.FindUnknown(x.Answer); len(unknown) > 0 {
		j.note(e, x, false, unknownForm, "status.%s is in no revision of the wire that is known: %s", strings.Join(unknown, ", status."), ways)
		return
	}
	j.note(e, x, false, noConditions, "no answer has conditions, whichever vector asks for them. Either the policies of this seed are not loaded, or conditions are asked for and answered in fields that the webhook does not know: %s", ways)
}

// conclude adds the results of vectors and levels.
func (j *judge) conclude(c *certify.Certification, byEntry map[*entry][]Exchange) *certify.Certification {
	whole := map[certify.CertificationLevel]int{}
	for i := range j.plan.entries {
		e := &j.plan.entries[i]
		result := certify.CaseResult{Planned: 1, Findings: j.found.OfCase(e.caseID()), Inapplicable: e.inapplicable(j.wire)}
		if seen := byEntry[e]; len(seen) > 0 && j.isWhole(e, seen) {
			result.Answered = 1
			whole[e.level]++
		}
		c.Cases[e.caseID()] = result
	}
	for _, l := range Levels() {
		r := certify.LevelResult{Level: l, Reviews: whole[l], Planned: j.plan.Len(l, j.wire)}
		c.Results = append(c.Results, r.Conclude(r.Reviews == r.Planned, c.Findings))
	}
	return c.Grant()
}

// isWhole reports whether a vector was asked all its questions, once and in order. A missing exchange could be one that
// failed.
func (j *judge) isWhole(e *entry, seen []Exchange) bool {
	type asked struct {
		step    int
		variant Variant
	}
	var want []asked
	for i, s := range e.Steps {
		first := slices.IndexFunc(seen, func(x Exchange) bool {
			return s.Evaluate != nil && x.Step == s.Evaluate.Of && x.Variant == Asked
		})
		hasConditions := first >= 0 && j.hasConditions(e, seen[first])
		if s.Authorize == nil && !hasConditions {
			continue
		}
		want = append(want, seq.Map(e.variants(i, j.replica), func(v Variant) asked { return asked{i, v} })...)
	}
	return slices.Equal(want, seq.Map(seen, func(x Exchange) asked { return asked{x.Step, x.Variant} }))
}

// hasConditions reports whether an answer has conditions that can be sent back.
func (j *judge) hasConditions(e *entry, x Exchange) bool {
	if e.Steps[x.Step].Evaluate != nil {
		return conditionsLeft(j.wire, x.Answer) != nil
	}
	return chainIn(j.wire, x.Answer) != nil
}

// note writes a finding down.
func (j *judge) note(e *entry, x Exchange, advice bool, reason, format string, args ...any) {
	j.found.Add(e.caseID(), certify.Finding{Reason: reason, Level: e.level, Advice: advice},
		func() string {
			return strings.TrimSpace(fmt.Sprintf("%s#%d %s", e.id, x.Step, x.Variant)) + ": " + fmt.Sprintf(format, args...)
		})
}

// readable decodes an answer, and records a finding if it cannot.
func (j *judge) readable(e *entry, x Exchange, version, kind string) bool {
	var head struct{ APIVersion, Kind string }
	switch unread := json.Unmarshal(x.Answer, &head); {
	case x.Fault != "":
		j.note(e, x, false, x.Fault, "it is not answered")
	case x.HTTP != 200:
		j.note(e, x, false, "http-status", "status %d", x.HTTP)
	case unread != nil:
		j.note(e, x, false, "answer-unreadable", "it is not a review")
	case head.Kind != kind || head.APIVersion != version:
		j.note(e, x, false, "wrong-kind", "it is %.80q of %.80q, want %s of %s", head.Kind, head.APIVersion, kind, version)
	default:
		return true
	}
	return false
}

// mixed records a finding if an answer is not in the revision of the wire, or is in several revisions at once.
func (j *judge) mixed(e *entry, x Exchange) bool {
	known := seq.Map(wire.Recognize(x.Answer), func(w *wire.Revision) string { return fmt.Sprintf("%s (%s)", w.Name, w.Rules.Chain) })
	switch {
	case len(known) > 1:
		j.note(e, x, false, "several-revisions", "one answer is in the form of %s", strings.Join(known, " and of "))
	case len(known) == 1 && wire.Recognize(x.Answer)[0] != j.wire:
		j.note(e, x, false, "another-revision", "it is in the form of %s, and this certification is of %s: a webhook speaks one revision at a time", known[0], j.wire.Name)
	default:
		return false
	}
	return true
}

// read reads an answer in the revision, and notes why it cannot.
func read[T any](j *judge, e *entry, x Exchange, by func([]byte) (T, error), into *T) bool {
	var err error
	if *into, err = by(x.Answer); err != nil {
		j.note(e, x, false, "answer-unreadable", "%v", err)
	}
	return err == nil
}

func (j *judge) review(e *entry, x Exchange, step *vectors.AuthorizeStep) {
	var s *vectors.SubjectAccessReviewStatus
	if !j.readable(e, x, wire.AccessVersion, wire.AccessKind) || j.mixed(e, x) || !read(j, e, x, j.wire.ReadAccess, &s) {
		return
	}
	mode := step.Spec.Mode()
	if x.Variant == Unaware {
		mode = vectors.None
	}
	if j.form(e, x, s, mode) {
		return // the meaning of a malformed answer is unknown
	}
	key := fmt.Sprintf("%s %d", e.id, x.Step)
	switch x.Variant {
	case Asked:
		j.asked[key] = s
		j.decided(e, x, s, step.Want)
	case Again, Replica:
		if first := j.asked[key]; first != nil && canonical(first) != canonical(s) {
			j.note(e, x, false, map[Variant]string{Again: "not-deterministic", Replica: "replicas-differ"}[x.Variant], "the same review has another answer")
		}
	case Unaware:
		j.unaware(e, x, s, step.Want)
	}
}

// decided compares a decision with the decisions that are right.
func (j *judge) decided(e *entry, x Exchange, s *vectors.SubjectAccessReviewStatus, want vectors.AuthorizeWant) {
	got := s.Decision()
	if !slices.Contains(want.OneOf, got) {
		j.note(e, x, e.should, e.reason(), "%s, want %v", got, want.OneOf)
		return
	}
	// An answer that is a conditional decision of a union has no place for an error.
	isSayable := got != vectors.Conditional || !j.wire.Rules.Union
	isOther := want.Error != nil && *want.Error != (s.EvaluationError != "")
	if isOther && isSayable {
		j.note(e, x, e.should, e.reason(), "there is an evaluationError: %t, want %t", !*want.Error, *want.Error)
	}
	if got != vectors.Conditional {
		return
	}
	effects, wanted := effectsOf(s), slices.Sorted(slices.Values(want.Effects))
	if len(wanted) > 0 && !slices.Equal(effects, wanted) {
		j.note(e, x, e.should, e.reason(), "conditions of effect %v, want %v", effects, wanted)
	}
	if residuals, ok := residualsOf(s, j.wire.CEL); ok && len(want.Residuals) > 0 && !slices.Equal(residuals, sortedExpressions(want.Residuals)) {
		j.note(e, x, e.should, e.reason(), "residuals %q, want %q", residuals, want.Residuals)
	}
}

// unaware judges the answer to a client that does not accept conditions.
func (j *judge) unaware(e *entry, x Exchange, s *vectors.SubjectAccessReviewStatus, want vectors.AuthorizeWant) {
	got := s.Decision()
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

func (j *judge) evaluate(e *entry, x Exchange, step *vectors.EvaluateStep) {
	isRefusal := x.Fault == "" && x.HTTP/100 == 4
	if x.Variant == Foreign && isRefusal {
		return
	}
	var r *vectors.AuthorizationConditionsResponse
	if !j.readable(e, x, wire.ConditionsVersion, wire.ConditionsKind) || !read(j, e, x, j.wire.ReadConditions, &r) {
		return
	}
	switch {
	case r == nil:
		j.note(e, x, false, "no-response", "the review has no response")
		return
	case r.Allowed && r.Denied:
		j.note(e, x, false, "allowed-and-denied", "allowed and denied at once")
		return
	}
	if !j.wire.IsReplyTo(j.plan.uid(x), x.Answer) {
		j.note(e, x, false, "wrong-uid", "response.uid is not the uid of the admissionRequest")
	}
	got := r.Decision()
	switch {
	case x.Variant == Foreign:
		if got == vectors.Allow { // an authorizer whose conditions have no type cannot recognize those of another
			j.note(e, x, !j.hasTypes(e, step), "unknown-type-evaluated", "conditions of type %s allow", foreignType)
		}
	case !slices.Contains(step.Want.OneOf, got) && x.Variant == Replica:
		j.note(e, x, false, "replicas-differ", "the conditions of the other replica come to %s, want %v", got, step.Want.OneOf)
	case !slices.Contains(step.Want.OneOf, got):
		j.note(e, x, e.should, e.reason(), "the conditions come to %s, want %v", got, step.Want.OneOf)
	case step.Want.Error != nil && *step.Want.Error != (r.EvaluationError != ""):
		j.note(e, x, e.should, e.reason(), "there is an evaluationError: %t, want %t", !*step.Want.Error, *step.Want.Error)
	}
}

// hasTypes reports whether the conditions of a step have types.
func (j *judge) hasTypes(e *entry, step *vectors.EvaluateStep) bool {
	first := j.asked[fmt.Sprintf("%s %d", e.id, step.Of)]
	return first == nil || slices.ContainsFunc(conditionsOf(first), func(c vectors.Condition) bool { return c.Type != "" })
}

// form judges the form of a status by the rules of the KEP, whatever it says. wrong is true if it contradicts itself.
func (j *judge) form(e *entry, x Exchange, s *vectors.SubjectAccessReviewStatus, mode vectors.Mode) (wrong bool) {
	for _, b := range j.wire.Rules.Breaches(*s, mode) {
		if b.Reason != "" {
			wrong = true
			j.note(e, x, false, b.Reason, "%s", b.Text)
		}
	}
	return wrong
}

func conditionsOf(s *vectors.SubjectAccessReviewStatus) []vectors.Condition {
	return slices.Concat(seq.Map(vectors.Leaves(s.ConditionsChain), func(set vectors.ConditionSet) []vectors.Condition { return set.Conditions })...)
}

func effectsOf(s *vectors.SubjectAccessReviewStatus) []vectors.Decision {
	return slices.Compact(slices.Sorted(slices.Values(seq.Map(conditionsOf(s), func(c vectors.Condition) vectors.Decision { return c.Effect }))))
}

// residualsOf are the conditions as expressions, if all are of the type that is CEL.
func residualsOf(s *vectors.SubjectAccessReviewStatus, typeCEL string) ([]string, bool) {
	all := conditionsOf(s)
	other := slices.ContainsFunc(all, func(c vectors.Condition) bool { return c.Type != typeCEL })
	return sortedExpressions(seq.Map(all, func(c vectors.Condition) string { return c.Condition })), !other
}

func sortedExpressions(in []string) []string {
	out := make([]string, len(in))
	for i, text := range in {
		out[i] = strings.TrimSpace(text)
		env, err := cel.NewEnv(cel.OptionalTypes(), cel.ClearMacros())
		if err != nil {
			continue
		}
		parsed, issues := env.Parse(text)
		if issues.Err() != nil {
			continue
		}
		if again, err := cel.AstToString(parsed); err == nil {
			out[i] = again
		}
	}
	slices.Sort(out)
	return out
}

// canonical returns a status in a form that can be compared: conditions have no order.
func canonical(s *vectors.SubjectAccessReviewStatus) string {
	raw, _ := json.Marshal([]any{s.Allowed, s.Denied, sorted(s.ConditionsChain)}) // it has only strings and booleans: marshalling cannot fail
	return string(raw)
}

func sorted(chain []vectors.ConditionSet) []vectors.ConditionSet {
	out := slices.Clone(chain)
	for i, set := range out {
		out[i].Conditions = slices.SortedFunc(slices.Values(set.Conditions), func(a, b vectors.Condition) int { return strings.Compare(a.ID, b.ID) })
		out[i].ConditionsChain = sorted(set.ConditionsChain)
	}
	return out
}
