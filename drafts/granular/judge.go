package granular

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/model"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
)

// judgement has the problems of a trial, and the number of expectations that were compared.
type judgement struct {
	problems []string
	compared int
}

// expect adds a problem unless an expectation is met.
func (j *judgement) expect(isMet bool, format string, args ...any) {
	j.compared++
	if !isMet {
		j.problems = append(j.problems, fmt.Sprintf(format, args...))
	}
}

// judge compares what was seen of a trial with the expectations of the scenario and of the model.
func judge(enforcement Enforcement, t trial, evidence *TrialEvidence) *judgement {
	o := newObservation(enforcement, t, evidence)
	a, j := o.expectedOf(enforcement.Kind, t.attempt), &judgement{}
	j.compareAnswer(enforcement.Kind, a, t.request(), o)
	j.compareObject(a, t.request(), o)
	j.expect(o.decision != nil, "the enforcer did not decide, or more than once")
	if o.decision != nil {
		j.compareChecks(enforcement.Kind, a, o)
		j.compareFields(o)
		if enforcement.Kind == Reference {
			j.compareStatement(a, o)
		}
		j.compareReviews(enforcement.Kind, t.request(), o)
		j.compareModel(a, o)
	}
	j.problems = append(j.problems, o.compareUsers()...)
	return j
}

// expectedOf returns the attempt with the expected outcome. For a webhook, the model predicts the outcome, because the
// webhook may have other descriptions than the scenario.
func (o *observation) expectedOf(kind string, a *Attempt) *Attempt {
	byModel := kind == Webhook && o.predicted && a.Outcome != Rejected
	if !byModel {
		return a
	}
	out := *a
	out.Outcome = Denied
	if model.Allowed(model.Excluded(o.chains), a.isGranted) {
		out.Outcome = Allowed
	}
	return &out
}

// codes are the status codes of outcomes.
var codes = map[Outcome]int{Allowed: http.StatusOK, Denied: http.StatusForbidden, Rejected: http.StatusUnprocessableEntity}

// compareAnswer compares the status code, and of the reference the whole message of a denial.
func (j *judgement) compareAnswer(kind string, a *Attempt, want *Request, o *observation) {
	code := codes[a.Outcome]
	j.expect(o.Code == code, "code %d, expected %d: %s", o.Code, code, cmp.Or(o.Message, "carried out"))
	if o.Code == code && a.Outcome == Denied && kind == Reference {
		want := renderDenial(a, want, o)
		j.expect(o.Message == want, "message %q, expected %q", o.Message, want)
	}
}

// noDryRun is the problem of an attempt that the model has no say in.
const noDryRun = "an administrator's dry run made nothing, and the model knows of no permission"

// compareObject compares the stored object with the result that the request must have.
func (j *judgement) compareObject(a *Attempt, want *Request, o *observation) {
	j.expect(o.Result != nil || a.Outcome == Rejected, noDryRun)
	changes := a.Outcome == Allowed && !want.DryRun
	changed := !reflect.DeepEqual(o.Before, o.After)
	j.expect(changed == changes, "the stored object: changed %t, expected %t", changed, changes)
	after, result := withoutServerFields(o.After), withoutServerFields(o.Result)
	if changes && result != nil && after != nil {
		change := reports.Change(after, result)
		j.expect(reflect.DeepEqual(after, result), "the stored object is not what the request makes of it: %s", change)
	}
}

// compareChecks compares the questions to the authorizer with the questions of the scenario, and the message of a
// denial with the answers.
func (j *judgement) compareChecks(kind string, a *Attempt, o *observation) {
	checks := seq.Map(o.decision.Checks, renderCheck)
	if kind != Webhook { // a webhook may have other descriptions; the model judges it
		j.expect(slices.Equal(checks, a.Checks), "checks %q, expected %q", checks, a.Checks)
	}
	if o.Code != http.StatusForbidden || a.Reason != "" {
		return
	}
	names := func(c enforcer.Check) bool { return !c.Allowed && strings.Contains(o.Message, c.Verb) }
	j.expect(
		slices.ContainsFunc(o.decision.Checks, names),
		"message %q, expected a permission in it that the authorizer has refused",
		o.Message,
	)
}

func renderCheck(c enforcer.Check) string {
	if c.Allowed {
		return "yes " + c.Verb
	}
	return "no " + c.Verb
}

// compareFields compares the number of changed fields that the enforcer reports with what differs.
func (j *judgement) compareFields(o *observation) {
	fields := o.decision.Fields
	if o.predicted && fields >= 0 {
		j.expect(
			fields >= len(o.chains),
			"the enforcer says that %d fields change, the model that %d permissions are needed",
			fields,
			len(o.chains),
		)
	}
	if o.Result != nil {
		most := countDifferences(withoutServerFields(o.Before), withoutServerFields(o.Result))
		j.expect(fields <= most, "the enforcer says that %d fields change, and there are %d that differ", fields, most)
	}
}

// compareStatement compares the decision that the reference reports with its own checks, and with the answer.
func (j *judgement) compareStatement(a *Attempt, o *observation) {
	d := o.decision
	first := slices.IndexFunc(d.Checks, func(c enforcer.Check) bool { return !isGranularVerb(c.Verb) })
	general := slices.ContainsFunc(d.Checks, func(c enforcer.Check) bool { return c.Verb == permissions.GeneralVerb && c.Allowed })
	sameVerb := first < 0 || d.Verb == d.Checks[first].Verb
	j.expect(d.Granular == general && sameVerb, "the enforcer says %s, granular %t, and its checks do not", d.Verb, d.Granular)
	j.expect(agreesWithAnswer(a, o), "the enforcer says that %+v is missing, and answers %d: %s", d.Missing, o.Code, o.Message)
}

// agreesWithAnswer reports whether the answer fits to the permission that the reference reports as missing.
func agreesWithAnswer(a *Attempt, o *observation) bool {
	missing := o.decision.Missing
	if missing == nil {
		looked := o.decision.Fields >= 0
		return a.Outcome != Denied || !looked
	}
	switch o.Code {
	case http.StatusOK:
		return false
	case http.StatusForbidden:
		name := missing.Field
		if missing.Verb != "" {
			name = missing.Verb + " " // the space excludes longer verbs
		}
		return strings.Contains(o.Message, name)
	}
	return true
}

func isGranularVerb(verb string) bool { return strings.HasPrefix(verb, permissions.GeneralVerb) }

// compareReviews compares the questions to the API server's authorizer, and the questions that the enforcer reports,
// with the right ones.
func (j *judgement) compareReviews(kind string, want *Request, o *observation) {
	right := func(verb string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{
			Verb: verb, Group: o.resource.Group, Version: o.resource.Version, Resource: o.resource.Resource, Subresource: want.Subresource,
			Namespace: o.actor.namespace, Name: o.objectName(want),
		}
	}
	var claimedReviews, seenReviews []authorizationv1.ResourceAttributes
	for _, c := range o.decision.Checks {
		if kind == Reference {
			j.expect(
				c.ResourceAttributes == right(c.Verb),
				"the enforcer says that it asked %v, expected %v",
				c.ResourceAttributes,
				right(c.Verb),
			)
		}
		if isGranularVerb(c.Verb) {
			claimedReviews = append(claimedReviews, right(c.Verb))
		}
	}
	for _, a := range o.reviewed {
		question := *a
		if kind != Reference && question.Version == "*" {
			question.Version = o.resource.Version // a policy asks about all
		}
		seenReviews = append(seenReviews, question)
	}
	j.expect(slices.Equal(claimedReviews, seenReviews), "the authorizer was asked %v, expected %v", seenReviews, claimedReviews)
}

// compareModel judges the checks by the rules of the model.
func (j *judgement) compareModel(a *Attempt, o *observation) {
	ordinary := o.heldOrdinary()
	looked := ordinary || o.decision.Granular
	if !o.predicted || !looked {
		return
	}
	chains := o.chains
	if ordinary {
		chains = model.Excluded(chains)
	}
	var answers []model.FieldDecision
	for _, c := range o.decision.Checks {
		if strings.HasPrefix(c.Verb, permissions.GeneralVerb+":") {
			answers = append(answers, model.FieldDecision{Verb: c.Verb, Allowed: c.Allowed})
		}
	}
	wrong := model.Check(chains, answers, o.Code != http.StatusForbidden)
	j.compared++
	j.problems = append(j.problems, seq.Map(wrong, func(text string) string { return "model: " + text })...)
	allowed := model.Allowed(chains, a.isGranted)
	j.expect(allowed == (a.Outcome == Allowed), "model: allowed %t, and the scenario says %s", allowed, a.Outcome)
}

// heldOrdinary reports whether the actor has the ordinary permission, by the first check.
func (o *observation) heldOrdinary() bool {
	checks := o.decision.Checks
	return len(checks) > 0 && checks[0].Allowed && !isGranularVerb(checks[0].Verb)
}

// renderDenial returns the message of an API server about the missing verb.
func renderDenial(a *Attempt, want *Request, o *observation) string {
	return responsewriters.ForbiddenStatusError(authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: o.actor.user}, Verb: a.Missing, ResourceRequest: true, APIGroup: o.resource.Group,
		Resource: o.resource.Resource, Subresource: want.Subresource, Namespace: o.actor.namespace, Name: o.objectName(want),
	}, a.Reason).ErrStatus.Message
}

// withoutServerFields returns an object without the metadata that the server changes with every write.
func withoutServerFields(object map[string]any) map[string]any {
	object = runtime.DeepCopyJSON(object)
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(object, "metadata", field)
	}
	return object
}

// countDifferences counts all differences between two values, at every depth. The result is at least the number of
// changed fields.
func countDifferences(a, b any) int {
	x, aIsMap := a.(map[string]any)
	y, bIsMap := b.(map[string]any)
	switch {
	case reflect.DeepEqual(a, b):
		return 0
	case aIsMap && bIsMap:
		return 1 + countInMaps(x, y)
	}
	return countValues(a) + countValues(b)
}

func countInMaps(x, y map[string]any) (n int) {
	for name := range x {
		n += countDifferences(x[name], y[name])
	}
	for name := range y {
		if _, both := x[name]; !both {
			n += countDifferences(nil, y[name])
		}
	}
	return n
}

// countValues counts a value and all values inside it. A null inside it is not counted.
func countValues(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, field := range v {
			n += countDifferences(nil, field)
		}
	case []any:
		for _, item := range v {
			n += countDifferences(nil, item)
		}
	}
	return n
}
