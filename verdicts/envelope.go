package verdicts

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	kjson "sigs.k8s.io/json"

	"github.com/authzconf/authzconf/scenarios"
)

// annotation matches the annotations that Kubernetes gives to audit events.
var annotation = regexp.MustCompile(`^(authorization\.k8s\.io/(decision|reason)|apiserver\.latency\.k8s\.io/.+|authentication\.(k8s|kubernetes)\.io/.+|pod-security\.kubernetes\.io/.+|k8s\.io/(deprecated|removed-release)|[a-z.]+\.admission\.k8s\.io/.+)$`)

// envelope judges what an audit event has to be whatever it is about: of the API type and the level that the policy asks
// for, not from before the request, with the status of the answer, and with no field that nobody knows.
func (v *stepJudge) envelope(field string, raw json.RawMessage) {
	var ev auditv1.Event
	strict, err := kjson.UnmarshalStrict(raw, &ev)
	if err = errors.Join(append(strict, err)...); err != nil {
		v.compare(field+" (fields)", "known ones", err.Error())
		return
	}
	v.compare(field+" (type)", "Event of audit.k8s.io/v1, Metadata", fmt.Sprintf("%s of %s, %s", ev.Kind, ev.APIVersion, ev.Level))
	v.compare(field+".stageTimestamp", "not before the request", orElse(ev.StageTimestamp.Before(&ev.RequestReceivedTimestamp), "before the request", "not before the request"))
	odd := slices.DeleteFunc(slices.Sorted(maps.Keys(ev.Annotations)), annotation.MatchString)
	v.compare(field+".annotations", "none of unknown names", orElse(len(odd) == 0, "none of unknown names", scenarios.List(odd)))
	if v.status != nil && ev.ResponseStatus != nil && ev.Stage == auditv1.StageResponseComplete {
		v.compare(field+".responseStatus.status", v.status.Status, ev.ResponseStatus.Status)
	}
}

// answered judges what every answer has to be: a Status says the code that it came with, and the answer to a review has
// what was asked in it.
func (v *stepJudge) answered() {
	if st := v.status; st != nil && v.o.Response.Code >= codeBadRequest {
		v.compare("status", fmt.Sprintf("%s of v1, %d", metav1.StatusFailure, v.o.Response.Code), fmt.Sprintf("%s of %s, %d", st.Status, st.APIVersion, st.Code))
	}
	var asked, told struct{ Spec, Kind any }
	if v.o.Response.Code == codeCreated && json.Unmarshal(v.o.Request.Body, &asked) == nil && asked.Spec != nil &&
		json.Unmarshal([]byte(v.o.Response.Body), &told) == nil && reviewKind.MatchString(fmt.Sprint(asked.Kind)) {
		v.compare("spec of the answer", "what was asked", orElse(within(asked.Spec, told.Spec), "what was asked", fmt.Sprintf("%v", told.Spec)))
	}
}

// reviewKind matches the kinds of reviews whose answer repeats the question: that of SelfSubjectRulesReview does not.
var reviewKind = regexp.MustCompile(`^[A-Za-z]+(Access|Token)Review$`)

// within says whether all of a JSON value is in another one, which may have more fields.
func within(a, b any) bool {
	fields, ok := a.(map[string]any)
	if !ok {
		return reflect.DeepEqual(a, b)
	}
	of, _ := b.(map[string]any)
	for name := range fields {
		if !within(fields[name], of[name]) {
			return false
		}
	}
	return true
}

// scripted judges that the scripted webhook answered as the scenario's rules say, which is not the API server's doing, and
// that what arrived is of a kind that the recorder writes.
func (v *stepJudge) scripted() (problem string) {
	points, plain := map[string]int{}, v.plainly()
	for _, r := range v.o.Reviews {
		points[r.Point]++
		rule, answers := v.rule(r), map[scenarios.PolicyAnswer]scenarios.Decision{"": scenarios.NoOpinion, scenarios.AnswerNoOpinion: scenarios.NoOpinion, scenarios.AnswerAllow: scenarios.Allow, scenarios.AnswerDeny: scenarios.Deny, scenarios.AnswerBoth: scenarios.Deny}
		want, known := answers[rule.Answer] // of what is no answer, the failure policy decides
		switch {
		case r.APIVersion != "authorization.k8s.io/v1" || !slices.Contains([]string{Front, Back, Policy}, r.Point):
			return fmt.Sprintf("a review of %q arrived at %q", r.APIVersion, r.Point)
		case r.Point != Policy && cmp.Or(r.Decision, scenarios.NoOpinion) != scenarios.NoOpinion && !v.e.Authorizer || r.Point == Policy && known && r.Decision != want && plain:
			return fmt.Sprintf("the webhook at %q is said to have answered %q to %s, by the scenario %q", r.Point, r.Decision, describe(r.Spec), want)
		}
	}
	if v.s.Requires.Chain == "webhook-first" && plain { // which is asked again where it breaks
		v.compare("reviews (at the webhook)", strconv.Itoa(points[Front]), strconv.Itoa(min(points[Front], points[Policy])))
	}
	return ""
}

// plainly says that the webhook is asked everything, and nothing but the scenario's rules decides what it answers: the
// scenario does not take it away or put it elsewhere, and it has no conditions.
func (v *stepJudge) plainly() bool {
	return slices.Contains([]string{"webhook-first", "webhook-last"}, v.s.Requires.Chain) &&
		!slices.ContainsFunc(v.s.Steps[:v.index+1], func(st scenarios.Step) bool { return st.Reload != "" })
}

// rule is the one by which the scripted webhook answers a review; empty if there is none.
func (v *stepJudge) rule(r Review) (rule scenarios.PolicyRule) {
	if i := slices.IndexFunc(v.s.Policy, func(p scenarios.PolicyRule) bool { return p.For.Covers(r.Spec) }); i >= 0 {
		rule = v.s.Policy[i]
	}
	return rule
}
