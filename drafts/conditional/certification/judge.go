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
	plan     *Plan
	findings *certify.Findings
	// firstAnswers are the answers to the steps themselves.
	firstAnswers map[string]*vectors.SubjectAccessReviewStatus
	wire         *wire.Revision
	// replica is set if a second replica was asked.
	replica bool
}

// Judge returns the certification that follows from exchanges.
func (b *Plan) Judge(all []Exchange) (*certify.Certification, error) {
	j := &judge{
		plan:         b,
		findings:     certify.NewFindings(),
		firstAnswers: map[string]*vectors.SubjectAccessReviewStatus{},
		wire:         wire.Newest(),
		replica:      b.replica,
	}
	if err := j.findWire(all); err != nil {
		return nil, err
	}
	byEntry := map[*entry][]Exchange{}
	for i, x := range all {
		e := b.byID[x.Vector]
		isStep := e != nil && x.Step >= 0
		if !isStep || x.Step >= len(e.Steps) {
			return nil, fmt.Errorf("the evidence is about %q, step %d, which the vectors do not have", x.Vector, x.Step)
		}
		if x.Variant == Probe {
			isLast := i == len(all)-1
			if isLast { // no other question was asked after it
				j.judgeProbe(e, x)
			}
			continue
		}
		byEntry[e] = append(byEntry[e], x)
		switch s := e.Steps[x.Step]; {
		case s.Authorize != nil:
			j.judgeReview(e, x, s.Authorize)
		case s.Evaluate != nil:
			j.judgeEvaluation(e, x, s.Evaluate)
		}
	}
	policies, err := PoliciesJSON(b.Policies())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(policies)
	c := &certify.Certification{
		Mode: "conditional", Wire: j.wire.Name, Seed: b.Seed, SuiteDigest: b.Suite(), PolicyDigest: hex.EncodeToString(sum[:]),
		Findings: j.findings.Sorted(Levels()), Cases: map[string]certify.CaseResult{},
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

// judgeProbe judges the last probe of a run in which nothing else was asked.
func (j *judge) judgeProbe(e *entry, x Exchange) {
	if !j.checkReadable(e, x, wire.AccessVersion, wire.AccessKind) || len(wire.Recognize(x.Answer)) > 0 {
		return
	}
	requestForms := "a client asks for them by spec.authorizationOptions or by spec.conditionalAuthorization, and they come in " + wire.Fields()
	if unknown := wire.FindUnknown(x.Answer); len(unknown) > 0 {
		j.addFinding(
			e,
			x,
			false,
			unknownForm,
			"status.%s is in no revision of the wire that is known: %s",
			strings.Join(unknown, ", status."),
			requestForms,
		)
		return
	}
	j.addFinding(
		e,
		x,
		false,
		noConditions,
		"no answer has conditions, whichever vector asks for them. Either the policies of this seed are not loaded, or conditions are asked for and answered in fields that the webhook does not know: %s",
		requestForms,
	)
}

// conclude adds the results of vectors and levels.
func (j *judge) conclude(c *certify.Certification, byEntry map[*entry][]Exchange) *certify.Certification {
	complete := map[certify.CertificationLevel]int{}
	for i := range j.plan.entries {
		e := &j.plan.entries[i]
		result := certify.CaseResult{Planned: 1, Findings: j.findings.OfCase(e.caseID()), Inapplicable: e.inapplicable(j.wire)}
		if exchanges := byEntry[e]; len(exchanges) > 0 && j.isComplete(e, exchanges) {
			result.Answered = 1
			complete[e.level]++
		}
		c.Cases[e.caseID()] = result
	}
	for _, l := range Levels() {
		r := certify.LevelResult{Level: l, Reviews: complete[l], Planned: j.plan.Len(l, j.wire)}
		c.Results = append(c.Results, r.Conclude(r.Reviews == r.Planned, c.Findings))
	}
	return c.Grant()
}

// isComplete reports whether a vector was asked all its questions, once and in order. A missing exchange could be one
// that failed.
func (j *judge) isComplete(e *entry, exchanges []Exchange) bool {
	type exchangeKey struct {
		step    int
		variant Variant
	}
	var want []exchangeKey
	for i, s := range e.Steps {
		first := slices.IndexFunc(exchanges, func(x Exchange) bool {
			return s.Evaluate != nil && x.Step == s.Evaluate.Of && x.Variant == Original
		})
		hasConditions := first >= 0 && j.hasConditions(e, exchanges[first])
		if s.Authorize == nil && !hasConditions {
			continue
		}
		want = append(want, seq.Map(e.variants(i, j.replica), func(v Variant) exchangeKey { return exchangeKey{i, v} })...)
	}
	return slices.Equal(want, seq.Map(exchanges, func(x Exchange) exchangeKey { return exchangeKey{x.Step, x.Variant} }))
}

// hasConditions reports whether an answer has conditions that can be sent back.
func (j *judge) hasConditions(e *entry, x Exchange) bool {
	if e.Steps[x.Step].Evaluate != nil {
		return conditionsLeft(j.wire, x.Answer) != nil
	}
	return readChain(j.wire, x.Answer) != nil
}

// addFinding adds a finding about an exchange.
func (j *judge) addFinding(e *entry, x Exchange, advice bool, reason, format string, args ...any) {
	j.findings.Add(e.caseID(), certify.Finding{Reason: reason, Level: e.level, Advice: advice},
		func() string {
			return strings.TrimSpace(fmt.Sprintf("%s#%d %s", e.id, x.Step, x.Variant)) + ": " + fmt.Sprintf(format, args...)
		})
}

// checkReadable reports whether an answer is a review of the given version and kind. If it is not, it adds a finding.
func (j *judge) checkReadable(e *entry, x Exchange, version, kind string) bool {
	var head struct{ APIVersion, Kind string }
	switch unread := json.Unmarshal(x.Answer, &head); {
	case x.Fault != "":
		j.addFinding(e, x, false, x.Fault, "it is not answered")
	case x.HTTP != 200:
		j.addFinding(e, x, false, "http-status", "status %d", x.HTTP)
	case unread != nil:
		j.addFinding(e, x, false, "answer-unreadable", "it is not a review")
	case head.Kind != kind || head.APIVersion != version:
		j.addFinding(e, x, false, "wrong-kind", "it is %.80q of %.80q, want %s of %s", head.Kind, head.APIVersion, kind, version)
	default:
		return true
	}
	return false
}

// noteMixedRevision reports whether an answer is not in the revision of the wire, or is in several revisions at once.
// Then it adds a finding.
func (j *judge) noteMixedRevision(e *entry, x Exchange) bool {
	revisions := seq.Map(wire.Recognize(x.Answer), func(w *wire.Revision) string { return fmt.Sprintf("%s (%s)", w.Name, w.Rules.Chain) })
	switch {
	case len(revisions) > 1:
		j.addFinding(e, x, false, "several-revisions", "one answer is in the form of %s", strings.Join(revisions, " and of "))
	case len(revisions) == 1 && wire.Recognize(x.Answer)[0] != j.wire:
		j.addFinding(
			e,
			x,
			false,
			"another-revision",
			"it is in the form of %s, and this certification is of %s: a webhook speaks one revision at a time",
			revisions[0],
			j.wire.Name,
		)
	default:
		return false
	}
	return true
}

// decodeAnswer reports whether it could read an answer in the revision. If it could not, it adds a finding.
func decodeAnswer[T any](j *judge, e *entry, x Exchange, decode func([]byte) (T, error), into *T) bool {
	var err error
	if *into, err = decode(x.Answer); err != nil {
		j.addFinding(e, x, false, "answer-unreadable", "%v", err)
	}
	return err == nil
}

// judgeReview judges the answer to a question of the first phase.
func (j *judge) judgeReview(e *entry, x Exchange, step *vectors.AuthorizeStep) {
	var s *vectors.SubjectAccessReviewStatus
	if !j.checkReadable(e, x, wire.AccessVersion, wire.AccessKind) || j.noteMixedRevision(e, x) {
		return
	}
	if !decodeAnswer(j, e, x, j.wire.ReadAccess, &s) {
		return
	}
	mode := step.Spec.Mode()
	if x.Variant == Unaware {
		mode = vectors.None
	}
	if j.judgeForm(e, x, s, mode) {
		return // the meaning of a malformed answer is unknown
	}
	key := fmt.Sprintf("%s %d", e.id, x.Step)
	switch x.Variant {
	case Original:
		j.firstAnswers[key] = s
		j.judgeDecision(e, x, s, step.Want)
	case Repeated, Replica:
		if first := j.firstAnswers[key]; first != nil && canonicalText(first) != canonicalText(s) {
			j.addFinding(
				e,
				x,
				false,
				map[Variant]string{Repeated: "not-deterministic", Replica: "replicas-differ"}[x.Variant],
				"the same review has another answer",
			)
		}
	case Unaware:
		j.judgeUnaware(e, x, s, step.Want)
	}
}

// judgeDecision compares a decision with the decisions that are right.
func (j *judge) judgeDecision(e *entry, x Exchange, s *vectors.SubjectAccessReviewStatus, want vectors.AuthorizeWant) {
	got := s.Decision()
	if !slices.Contains(want.OneOf, got) {
		j.addFinding(e, x, e.should, e.reason(), "%s, want %v", got, want.OneOf)
		return
	}
	// An answer that is a conditional decision of a union has no place for an error.
	isSayable := got != vectors.Conditional || !j.wire.Rules.Union
	isOther := want.Error != nil && *want.Error != (s.EvaluationError != "")
	if isOther && isSayable {
		j.addFinding(e, x, e.should, e.reason(), "there is an evaluationError: %t, want %t", !*want.Error, *want.Error)
	}
	if got != vectors.Conditional {
		return
	}
	effects, wantedEffects := effectsOf(s), slices.Sorted(slices.Values(want.Effects))
	if len(wantedEffects) > 0 && !slices.Equal(effects, wantedEffects) {
		j.addFinding(e, x, e.should, e.reason(), "conditions of effect %v, want %v", effects, wantedEffects)
	}
	residuals, areCEL := residualsOf(s, j.wire.CEL)
	areCompared := areCEL && len(want.Residuals) > 0
	if areCompared && !slices.Equal(residuals, sortedExpressions(want.Residuals)) {
		j.addFinding(e, x, e.should, e.reason(), "residuals %q, want %q", residuals, want.Residuals)
	}
}

// judgeUnaware judges the answer to a client that does not accept conditions.
func (j *judge) judgeUnaware(e *entry, x Exchange, s *vectors.SubjectAccessReviewStatus, want vectors.AuthorizeWant) {
	got := s.Decision()
	switch {
	case slices.Contains(want.OneOf, vectors.Conditional):
		if got == vectors.Allow && !slices.Contains(want.OneOf, vectors.Allow) {
			j.addFinding(e, x, false, "allows-without-conditions", "what depends on conditions is allowed to a client that takes none")
		}
		if got == vectors.NoOpinion && slices.Contains(want.Effects, vectors.Deny) {
			j.addFinding(e, x, true, "deny-not-folded", "NoOpinion, want Deny: a condition might deny")
		}
	case !slices.Contains(want.OneOf, got) && got != vectors.Conditional:
		j.addFinding(e, x, e.should, e.reason(), "%s for a client that takes no conditions, want %v", got, want.OneOf)
	}
}

// judgeEvaluation judges the answer to a question of the second phase.
func (j *judge) judgeEvaluation(e *entry, x Exchange, step *vectors.EvaluateStep) {
	isRefusal := x.Fault == "" && x.HTTP/100 == 4
	if x.Variant == Foreign && isRefusal {
		return
	}
	var r *vectors.AuthorizationConditionsResponse
	if !j.checkReadable(e, x, wire.ConditionsVersion, wire.ConditionsKind) || !decodeAnswer(j, e, x, j.wire.ReadConditions, &r) {
		return
	}
	switch {
	case r == nil:
		j.addFinding(e, x, false, "no-response", "the review has no response")
		return
	case r.Allowed && r.Denied:
		j.addFinding(e, x, false, "allowed-and-denied", "allowed and denied at once")
		return
	}
	if !j.wire.IsReplyTo(j.plan.uid(x), x.Answer) {
		j.addFinding(e, x, false, "wrong-uid", "response.uid is not the uid of the admissionRequest")
	}
	got := r.Decision()
	switch {
	case x.Variant == Foreign:
		if got == vectors.Allow { // an authorizer whose conditions have no type cannot recognize those of another
			j.addFinding(e, x, !j.hasTypes(e, step), "unknown-type-evaluated", "conditions of type %s allow", foreignType)
		}
	case !slices.Contains(step.Want.OneOf, got) && x.Variant == Replica:
		j.addFinding(e, x, false, "replicas-differ", "the conditions of the other replica come to %s, want %v", got, step.Want.OneOf)
	case !slices.Contains(step.Want.OneOf, got):
		j.addFinding(e, x, e.should, e.reason(), "the conditions come to %s, want %v", got, step.Want.OneOf)
	case step.Want.Error != nil && *step.Want.Error != (r.EvaluationError != ""):
		j.addFinding(e, x, e.should, e.reason(), "there is an evaluationError: %t, want %t", !*step.Want.Error, *step.Want.Error)
	}
}

// hasTypes reports whether the conditions of a step have types.
func (j *judge) hasTypes(e *entry, step *vectors.EvaluateStep) bool {
	first := j.firstAnswers[fmt.Sprintf("%s %d", e.id, step.Of)]
	return first == nil || slices.ContainsFunc(conditionsOf(first), func(c vectors.Condition) bool { return c.Type != "" })
}

// judgeForm judges the form of a status by the rules of the KEP, whatever it says. wrong is true if it contradicts
// itself.
func (j *judge) judgeForm(e *entry, x Exchange, s *vectors.SubjectAccessReviewStatus, mode vectors.Mode) (wrong bool) {
	for _, b := range j.wire.Rules.Breaches(*s, mode) {
		if b.Reason != "" {
			wrong = true
			j.addFinding(e, x, false, b.Reason, "%s", b.Text)
		}
	}
	return wrong
}

// conditionsOf returns all conditions of a status.
func conditionsOf(s *vectors.SubjectAccessReviewStatus) []vectors.Condition {
	return slices.Concat(
		seq.Map(vectors.Leaves(s.ConditionsChain), func(set vectors.ConditionSet) []vectors.Condition { return set.Conditions })...)
}

// effectsOf returns the effects of the conditions of a status, each of them once, in order.
func effectsOf(s *vectors.SubjectAccessReviewStatus) []vectors.Decision {
	return slices.Compact(
		slices.Sorted(slices.Values(seq.Map(conditionsOf(s), func(c vectors.Condition) vectors.Decision { return c.Effect }))),
	)
}

// residualsOf are the conditions as expressions, if all are of the type that is CEL.
func residualsOf(s *vectors.SubjectAccessReviewStatus, typeCEL string) ([]string, bool) {
	all := conditionsOf(s)
	other := slices.ContainsFunc(all, func(c vectors.Condition) bool { return c.Type != typeCEL })
	return sortedExpressions(seq.Map(all, func(c vectors.Condition) string { return c.Condition })), !other
}

// sortedExpressions returns expressions in order, each written as CEL's own printer writes it.
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
		if text, err := cel.AstToString(parsed); err == nil {
			out[i] = text
		}
	}
	slices.Sort(out)
	return out
}

// canonicalText returns a status in a form that can be compared: conditions have no order.
func canonicalText(s *vectors.SubjectAccessReviewStatus) string {
	raw, _ := json.Marshal([]any{s.Allowed, s.Denied, sortConditions(s.ConditionsChain)}) // it has only strings and booleans: marshalling cannot fail
	return string(raw)
}

// sortConditions returns a chain in which the conditions of each set are in the order of their IDs.
func sortConditions(chain []vectors.ConditionSet) []vectors.ConditionSet {
	out := slices.Clone(chain)
	for i, set := range out {
		out[i].Conditions = slices.SortedFunc(
			slices.Values(set.Conditions),
			func(a, b vectors.Condition) int { return strings.Compare(a.ID, b.ID) },
		)
		out[i].ConditionsChain = sortConditions(set.ConditionsChain)
	}
	return out
}
