package verdicts

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/authzconf/authzconf/scenarios"
)

type stepJudge struct {
	*judge
	index     int
	request   *scenarios.Request
	requestor scenarios.Requestor
	expect    *scenarios.Expect
	o         *Observation
	client    bool // the request is one of a client program's
	event     *auditv1.Event
	status    *metav1.Status // of the answer
	decided   []Decided
}

// impersonated is the wanted user's name; "" if nobody is impersonated.
func (v *stepJudge) impersonated() string { return v.request.WantedUser() }

// final are the reviews up to that of the request itself: behind it may stand one that the request asks for.
func (v *stepJudge) final() []Decided {
	if _, asked := v.question(); asked {
		return v.decided[:max(0, len(v.decided)-1)]
	}
	return v.decided
}

// foreign judges that reviews are about the requestor, the impersonated user, or whom the request asks about. Requests are sent one at a time, so
// that there is nobody else whom the API server could have asked about.
func (v *stepJudge) foreign() {
	const nobody = "nobody else"
	about, asked := v.question()
	for _, d := range v.decided {
		if d.Spec.User != v.requestor.Username() && d.Spec.User != v.impersonated() && (!asked || d.Spec.User != about.User) {
			v.compare(aboutField, nobody, describe(d.Spec))
			return
		}
	}
}

// reconcile compares the recorder's count of impersonation checks with the API server's own
// (apiserver_impersonation_authorization_attempts_total), by mode and decision. An API server that counts otherwise
// than it asks contradicts itself. But where it counted what the scenario wants, and the recorder has seen too little,
// two speak against one: the recorder lost something, and what it has cannot be believed.
func (v *stepJudge) reconcile() (problem string) {
	if !v.has(scenarios.Metrics) || !v.has(scenarios.Reviews) || slices.Contains(v.requestor.Groups, user.SystemPrivilegedGroup) {
		return "" // of system:masters no authorizer is asked
	}
	asked := v.decided
	if v.impersonated() == "" {
		asked = nil // who asks what he may impersonate, as kubectl auth can-i does, impersonates nobody
	}
	got, counted := checks(asked, v.requestor.Username()), v.increases(AuthorizationsMetric)
	if got != counted && v.lost(counted) {
		return fmt.Sprintf("the recorder saw the impersonation checks %s, the API server counted %s, as it should", got, counted)
	}
	v.compare(countedField, got, counted)
	return ""
}

// checks are the impersonation checks among reviews, by mode and decision; user, if given, is whose permission was asked.
func checks(decided []Decided, user string) string {
	var seen []scenarios.MetricDelta
	for _, d := range decided {
		if mode, ok := scenarios.ImpersonationMode(Describe(d).Verb); ok && (user == "" || d.Spec.User == user) {
			seen = append(seen, scenarios.MetricDelta{Mode: mode, Decision: scenarios.DecisionLabel(d.Decision), Count: 1})
		}
	}
	return scenarios.RenderDeltas(seen)
}

// lost says that the recorder has seen fewer reviews than go with what the API server counted.
func (v *stepJudge) lost(counted string) bool {
	all := append([]scenarios.Alternative{{Reviews: v.expect.Reviews, Metrics: v.expect.Metrics}}, v.expect.OneOf...)
	return slices.ContainsFunc(all, func(a scenarios.Alternative) bool {
		return a.Metrics != nil && scenarios.RenderDeltas(a.Metrics.Authorizations) == counted && len(v.decided) < count(a.Reviews)
	})
}

// outcome judges the class of the answer, its code and message; an audit event has to tell the same.
func (v *stepJudge) outcome() {
	got := outcomeOf(v.o.Response.Code, v.status)
	if got == "" && (v.audited() || !v.has(scenarios.Audit)) {
		got = outcomeFromAudit(v.o.Response.Code, v.event)
	}
	if got == scenarios.RequestForbidden && v.event != nil {
		switch decision := v.event.Annotations[decisionAnnotation]; {
		case decision == "allow":
			got = scenarios.Allowed // refused behind authorization: by admission, or a handler's own check
		case decision == "" && v.status != nil:
			got = scenarios.ImpersonationForbidden // refused before it, with the text of an authorizer
		}
	}
	if v.onlyAuditTells(got) {
		v.notJudged("outcome")
	} else {
		v.compare("outcome", string(v.expect.Outcome), string(got))
	}
	if v.event != nil {
		v.compare("outcome in the audit event", quote(expectedAnnotation[got]), quote(v.event.Annotations[decisionAnnotation]))
	}
	if v.expect.Code != 0 {
		v.compare("code", strconv.Itoa(v.expect.Code), strconv.Itoa(v.o.Response.Code))
	}
	v.message()
	v.refused()
	if v.expect.Warnings != nil || !v.e.Capabilities.Foreign() {
		v.compare("warnings", scenarios.List(v.expect.Warnings), scenarios.List(v.o.Response.Warnings))
	}
	if v.expect.Output != "" { // of a log or a command
		v.compare("output", v.expect.Output, strings.TrimSpace(v.o.Response.Body))
	}
}

// onlyAuditTells says that the target has no audit event by which to tell the outcome: the answer tells nothing,
// or it is the refusal that is expected behind authorization, by admission or a handler, and looks like one by it.
func (v *stepJudge) onlyAuditTells(got scenarios.Outcome) bool {
	if v.audited() {
		return false
	}
	behind := v.expect.Outcome == scenarios.Allowed && v.expect.Code >= codeBadRequest && v.expect.Code == v.o.Response.Code
	return got == "" || behind
}

func (v *stepJudge) message() {
	got := strings.TrimSpace(ptr.Deref(v.status, metav1.Status{Message: v.o.Response.Body}).Message)
	var review authenticationv1.TokenReview
	if v.request.Reviewed() != "" && v.status == nil && json.Unmarshal([]byte(v.o.Response.Body), &review) == nil {
		got = review.Status.Error
	}
	if v.expect.Message != "" {
		v.compare("message", v.expect.Message, got)
	}
	if pattern := v.expect.MessageMatches; pattern != "" {
		want := "match for " + pattern
		if whole, err := regexp.Compile("^(?:" + pattern + ")$"); err == nil && whole.MatchString(got) {
			got = want
		}
		v.compare("message", want, got)
	}
}

// oneOf judges the alternatives: one must be seen whole, or two where the target does not show what tells them apart.
func (v *stepJudge) oneOf() {
	if v.expect.OneOf == nil {
		return
	}
	want, got := fmt.Sprintf("one of %d alternatives", len(v.expect.OneOf)), "none of them"
	for i, a := range v.expect.OneOf {
		trial := *v
		trial.judge = &judge{s: v.s, e: v.e}
		trial.expect = &scenarios.Expect{Message: a.Message, Reviews: a.Reviews, Metrics: a.Metrics}
		trial.message()
		trial.reviews()
		trial.metrics()
		v.notJudged(trial.result.NotJudged...)
		if len(trial.result.Differences) == 0 {
			got = want
			break
		}
		d := trial.result.Differences[0]
		got += fmt.Sprintf("; of number %d, %s: want %s, got %s", i+1, d.Field, d.Want, d.Got)
	}
	v.compare("oneOf", want, got)
}

// user judges the resulting user where the target shows it: in the final access review and in the audit event.
func (v *stepJudge) user() {
	want := v.expect.User
	if want == nil {
		return
	}
	sources := 0
	if v.has(scenarios.Reviews) && v.finalReviewExpected() {
		sources++
		got := "no final review"
		if d := v.final(); len(d) > 0 && d[len(d)-1].Spec.User == v.impersonated() {
			got = reviewUser(d[len(d)-1].Spec).Render()
		}
		v.compare("user in the final review", want.Render(), got)
	}
	if v.event != nil {
		sources++
		v.compare("user in the audit event", want.Render(), impersonatedUser(v.event))
	}
	if sources == 0 {
		v.notJudged("user")
	}
}

// wanted judges the resulting user where the scenario does not state it: who the headers ask for, with the groups that are
// asked for first, and the same in the final access review as in the audit event.
func (v *stepJudge) wanted() {
	if v.expect.User != nil || v.event == nil || v.event.ImpersonatedUser == nil {
		return
	}
	u := v.event.ImpersonatedUser
	got, want := scenarios.UserOf(u.Username, u.UID, u.Groups, u.Extra), v.request.Wanted()
	if d := v.final(); len(d) > 0 && d[len(d)-1].Spec.User == v.impersonated() {
		v.compare("user in the final review", got.Render(), reviewUser(d[len(d)-1].Spec).Render())
	}
	got.Groups = got.Groups[:min(len(got.Groups), len(want.Groups))]
	v.compare("user in the audit event", want.Render(), got.Render())
}

// finalReviewExpected is false where the scenario says that nobody is asked: system:masters pass before authorizers.
func (v *stepJudge) finalReviewExpected() bool {
	return v.expect.Reviews == nil || slices.ContainsFunc(v.expect.Reviews, func(r scenarios.Review) bool {
		return r.By == scenarios.ByImpersonated
	})
}

func (v *stepJudge) audit() {
	want := v.expect.Audit
	if want == nil {
		return
	}
	if v.event == nil {
		v.notJudged("audit")
		return
	}
	if want.ImpersonatedUser != nil {
		v.compare("audit.impersonatedUser", strconv.FormatBool(*want.ImpersonatedUser), strconv.FormatBool(v.event.ImpersonatedUser != nil))
	}
	if want.Constraint != nil {
		v.compare("audit.constraint", quote(*want.Constraint), quote(ConstraintOf(v.event)))
		v.compare("audit.authenticationMetadata", orElse(*want.Constraint == "", "absent", "there"), orElse(v.event.AuthenticationMetadata == nil, "absent", "there"))
	}
	if want.Decision != nil {
		v.compare("audit.decision", quote(*want.Decision), quote(v.event.Annotations[decisionAnnotation]))
	}
	v.latency()
}

// The impersonation counters of an API server; beside each is a histogram of durations.
const (
	AttemptsMetric       = "apiserver_impersonation_attempts_total"
	AuthorizationsMetric = "apiserver_impersonation_authorization_attempts_total"
)

const (
	durationCount = "_duration_seconds_count"

	attemptsField = "metrics.attempts"
	countedField  = "metrics (counted, and seen by the recorder)"
	aboutField    = "reviews (whom they are about)"
	chainField    = "reviews (at the end of the chain)"
	eventsField   = "audit (events)"
)

// metrics judges the impersonation counters, their histograms' counts, and that the times can be.
func (v *stepJudge) metrics() {
	want := v.expect.Metrics
	if want == nil {
		return
	}
	if !v.has(scenarios.Metrics) {
		v.notJudged("metrics")
		return
	}
	for _, m := range []struct {
		field, name string
		deltas      []scenarios.MetricDelta
	}{
		{attemptsField, AttemptsMetric, want.Attempts},
		{"metrics.authorizations", AuthorizationsMetric, want.Authorizations},
	} {
		wanted := scenarios.RenderDeltas(m.deltas)
		v.compare(m.field, wanted, v.increases(m.name))
		histogram := strings.TrimSuffix(m.name, "_total") + durationCount
		v.compare(m.field+" (duration histogram)", wanted, v.increases(histogram))
		v.durations(m.field, histogram)
	}
	for _, m := range v.o.Metrics {
		if kind := orElse(strings.HasSuffix(m.Name, durationCount), "histogram", "counter"); m.Type != "" {
			v.compare("metrics.type of "+m.Name, kind, m.Type)
		}
		v.compare("metrics.labels of "+m.Name, "mode, decision", strings.Join(append([]string{"mode, decision"}, m.Labels...), ", "))
	}
}

// increases are those of one metric by mode and decision.
func (v *stepJudge) increases(name string) string {
	var deltas []scenarios.MetricDelta
	for _, m := range v.o.Metrics {
		if m.Name == name {
			deltas = append(deltas, scenarios.MetricDelta{Mode: m.Mode, Decision: m.Decision, Count: m.Delta})
		}
	}
	return scenarios.RenderDeltas(deltas)
}

func quote(s string) string { return orElse(s == "", "absent", strconv.Quote(s)) }

func reviewUser(spec authorizationv1.SubjectAccessReviewSpec) scenarios.User {
	return scenarios.UserOf(spec.User, spec.UID, spec.Groups, spec.Extra)
}

// question is the access review that the request asks for, if it is one: about whom it says, or about who it is sent as.
func (v *stepJudge) question() (spec authorizationv1.SubjectAccessReviewSpec, ok bool) {
	if spec, ok = scenarios.Asked(v.o.Request.Body); !ok || v.o.Response.Code != codeCreated {
		return spec, false
	}
	if spec.User == "" && len(spec.Groups) == 0 {
		u := v.asker()
		if v.event != nil && v.event.ImpersonatedUser != nil {
			i := v.event.ImpersonatedUser
			u = scenarios.UserOf(i.Username, i.UID, i.Groups, i.Extra)
		}
		spec.User, spec.UID, spec.Groups, spec.Extra = u.Name, u.UID, u.Groups, map[string]authorizationv1.ExtraValue{}
		for key, values := range u.Extra {
			spec.Extra[key] = values
		}
	}
	return spec, true
}

// passedOn judges an access review that was asked for: the authorizers are asked exactly that at last, and the answer is what
// they decided.
func (v *stepJudge) passedOn() {
	spec, ok := v.question()
	if !ok || !v.has(scenarios.Reviews) || v.event == nil || slices.Contains(spec.Groups, user.SystemPrivilegedGroup) {
		return
	}
	says := func(spec authorizationv1.SubjectAccessReviewSpec) string {
		r := Describe(Decided{Spec: spec})
		return fmt.Sprintf("%s %s of version %q, fields %s, labels %s", reviewUser(spec).Render(), r.Verb+" "+RenderAbout(r), r.Version, r.FieldSelector, r.LabelSelector)
	}
	var told authorizationv1.SubjectAccessReview
	if len(v.decided) == 0 || json.Unmarshal([]byte(v.o.Response.Body), &told) != nil {
		v.compare("reviews (asked for)", says(spec), noReason)
		return
	}
	last := v.decided[len(v.decided)-1]
	v.compare("reviews (asked for)", says(spec), says(last.Spec))
	v.compare("status of the answer", decides(last.Decision == scenarios.Allow, last.Decision == scenarios.Deny), decides(told.Status.Allowed, told.Status.Denied))
}

func decides(allowed, denied bool) string {
	return fmt.Sprintf("allowed %t, denied %t", allowed, denied)
}
