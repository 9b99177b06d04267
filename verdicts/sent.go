package verdicts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// NotSent says how the request that was recorded is not one that a requestor was to send; empty if it is.
func NotSent(r *scenarios.Request, by scenarios.Requestor, o *Observation) string {
	return (&stepJudge{request: r, requestor: by, o: o}).sent()
}

// sent holds what was sent to what the scenario states: another request would say nothing about the API server.
func (v *stepJudge) sent() (problem string) {
	got, want := v.o.Request, v.requestor
	if got.Requestor != want.Username() {
		return fmt.Sprintf("the request was sent by %q, and the scenario wants %q", got.Requestor, want.Username())
	}
	headers := v.request.WireHeaders()
	if v.client {
		// A client's other headers are its own; method and path are compared with what it must send.
		got.Headers = impersonationHeaders(got)
	} else {
		uri := v.request.URI()
		if u, err := url.Parse(uri); err == nil {
			uri = u.RequestURI()
		}
		if line := v.request.Method() + " " + uri; got.Method+" "+got.URL != line {
			return fmt.Sprintf("%s %s was sent, and the scenario wants %s", got.Method, got.URL, line)
		}
		if want := v.request.UserAgent(); got.UserAgent != want {
			return fmt.Sprintf("the user agent %.200q was sent, and the scenario wants %.200q", got.UserAgent, want)
		}
		var asked authenticationv1.TokenReview // whose token is not evidence
		_ = json.Unmarshal(got.Body, &asked)
		body, err := v.request.WithTokens(map[string]string{v.request.Reviewed(): asked.Spec.Token}).Content()
		if err != nil || !sameJSON(body, got.Body) {
			return fmt.Sprintf("the body %.200s was sent, and the scenario wants %.200s", got.Body, body)
		}
	}
	if !maps.EqualFunc(headers, got.Headers, slices.Equal) {
		return fmt.Sprintf("the headers %s were sent, and the scenario wants %s", scenarios.RenderExtra(got.Headers), scenarios.RenderExtra(headers))
	}
	if of := v.request.Reviewed(); of != "" {
		if problem := v.credential(userOf(got.Claims), v.s.Requestors[of]); problem != "" {
			return "of the token to review, " + problem
		}
	}
	return v.credential(got.Credential, want)
}

func impersonationHeaders(r SentRequest) map[string][]string {
	out := map[string][]string{}
	for name, values := range r.Headers {
		if strings.HasPrefix(textproto.CanonicalMIMEHeaderKey(name), "Impersonate-") {
			out[name] = values
		}
	}
	return out
}

// credential holds a credential that was sent to the requestor that it is to be of.
func (v *stepJudge) credential(c *scenarios.User, r scenarios.Requestor) (problem string) {
	if c == nil || r.Anonymous {
		if (c == nil) != r.Anonymous {
			return fmt.Sprintf("the request was to be sent by %q, and whose credential it carried is not what was recorded", r.Username())
		}
		return ""
	}
	want := scenarios.User{Name: r.Username(), UID: r.UID, Groups: r.Groups, Extra: maps.Clone(r.Extra)}
	maps.DeleteFunc(want.Extra, func(_ string, values []string) bool { return len(values) == 0 }) // of it nothing is sent
	if sa := r.ServiceAccount; sa != nil {
		want.UID, want.Extra = c.UID, map[string][]string{}
		maps.Copy(want.Extra, c.Extra)
		want.Groups = serviceaccount.MakeGroupNames(sa.Namespace)
		for key, name := range map[string]string{serviceaccount.PodNameKey: sa.Pod, serviceaccount.NodeNameKey: sa.Node} {
			delete(want.Extra, key)
			if name != "" {
				want.Extra[key] = []string{name}
			}
		}
	}
	if want.Render() == c.Render() {
		return ""
	}
	if v.mintedWrongly(r, c.Name) {
		v.compare("credential", want.Render(), c.Render())
		return ""
	}
	return fmt.Sprintf("the credential that was sent is of %s, and the scenario wants %s", c.Render(), want.Render())
}

// mintedWrongly says whether a credential which is not the requestor's is the API server's fault: it is a token that was asked
// for, of that account or of none that can be, and of no other requestor, whose token might have been sent in its place.
func (v *stepJudge) mintedWrongly(r scenarios.Requestor, name string) bool {
	sa := r.ServiceAccount
	if sa == nil || sa.Running || len(sa.Times) > 0 { // a kubelet asked for it, or it was signed here
		return false
	}
	for _, other := range v.s.Requestors {
		if other.ServiceAccount != sa && other.Username() == name {
			return false
		}
	}
	return name == r.Username() || strings.Contains(name+":", "::")
}

// asker is the requestor as the API server has to know it by the credential that was sent.
func (v *stepJudge) asker() scenarios.User {
	c := v.o.Request.Credential
	if c == nil {
		return scenarios.User{Name: v.requestor.Username(), Groups: []string{user.AllUnauthenticated}}
	}
	u := *c
	if !slices.Contains(u.Groups, user.AllAuthenticated) {
		u.Groups = append(slices.Clone(u.Groups), user.AllAuthenticated)
	}
	return u
}

// associatedNodeKeys stands in reviews of the associated-node mode for all extra of the requestor, whose keys are its
// values: associatedNodeImpersonationRequestorUserInfo of k8s.io/apiserver/pkg/endpoints/filters/impersonation.
const associatedNodeKeys = "authentication.kubernetes.io/associated-node-keys"

// askerIn is the requestor as a review with a verb has to show it.
func (v *stepJudge) askerIn(verb string) scenarios.User {
	u := v.asker()
	if mode, ok := scenarios.ImpersonationMode(verb); ok && mode == "associated-node" {
		u.Extra = map[string][]string{associatedNodeKeys: slices.Sorted(maps.Keys(u.Extra))}
	}
	return u
}

// sameJSON says whether two texts are the same JSON; none is the same as none.
func sameJSON(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}

// client judges a run of a client: how it ended, what it printed, and each of its requests as a request step is judged.
func (j *judge) client(i int, st *scenarios.Step, o *Observation) (problem string) {
	if o.Client == nil {
		return "there is no observation of the client"
	}
	v := &stepJudge{judge: j, index: i}
	want := st.ExpectClient
	if want.ExitCode != nil {
		v.compare("exitCode", strconv.Itoa(*want.ExitCode), strconv.Itoa(o.Client.ExitCode))
	}
	v.output("stdout", want.Stdout, o.Client.Stdout)
	v.output("stderr", want.Stderr, o.Client.Stderr)
	v.compare("requests",
		lines(want.Requests, func(r scenarios.ClientRequest) string { return r.Method + " " + r.Path }),
		lines(o.Requests, func(o Observation) string { return o.Request.Method + " " + o.Request.URL }))
	for n, r := range want.Requests {
		if n >= len(o.Requests) {
			break
		}
		if problem := j.clientRequest(n, i, st.Kubectl.Step(r), &o.Requests[n]); problem != "" {
			return fmt.Sprintf("request %d of the client: %s", n, problem)
		}
	}
	return ""
}

// clientRequest judges one request of a client; the fields of its differences say which.
func (j *judge) clientRequest(n, step int, st *scenarios.Step, o *Observation) (problem string) {
	one := &judge{s: j.s, e: j.e}
	problem = one.step(step, st, o)
	j.result.Judged += one.result.Judged
	j.notJudged(one.result.NotJudged...)
	inRequest := func(d Difference) Difference {
		d.Field = ClientField(n) + d.Field
		return d
	}
	j.result.Differences = append(j.result.Differences, seq.Map(one.result.Differences, inRequest)...)
	j.met = append(j.met, seq.Map(one.met, inRequest)...)
	return problem
}

// ClientField is what the fields of differences in a client's n-th request begin with.
func ClientField(n int) string { return fmt.Sprintf("requests[%d].", n) }

// output judges what a client printed: the wanted texts are part of it, or there is none.
func (v *stepJudge) output(stream string, want []string, got string) {
	if want != nil && len(want) == 0 {
		v.compare(stream, "nothing", cmp.Or(got, "nothing"))
	}
	for n, text := range want {
		seen := text
		if !strings.Contains(got, text) {
			seen = cmp.Or(got, "nothing")
		}
		v.compare(fmt.Sprintf("%s[%d]", stream, n), text, seen)
	}
}

// Requests are the observations of single requests, those of clients included.
func Requests(steps []Observation) (all []Observation) {
	for _, o := range steps {
		if o.Client == nil {
			all = append(all, o)
			continue
		}
		for _, r := range o.Requests {
			r.Step = o.Step
			all = append(all, r)
		}
	}
	return all
}

// clientBehaviour is what a client and the API server did. What the client printed has times in it.
func clientBehaviour(o *Observation) []string {
	lines := []string{fmt.Sprintf("%s: exit code %d", o.Client.Command, o.Client.ExitCode)}
	for i := range o.Requests {
		lines = append(lines, stepBehaviour(&o.Requests[i])...)
	}
	return lines
}

// backend judges whom the aggregated API server was told of. Of impersonation it must not be told at all.
func (v *stepJudge) backend() {
	var seen []scenarios.User
	var left, sent []string
	for _, r := range v.o.Backend {
		seen = append(seen, r.User)
		sent = append(sent, r.Method+" "+r.URL)
		if len(r.Impersonation) > 0 {
			left = append(left, fmt.Sprint(r.Impersonation))
		}
	}
	v.compare("backend", RenderUsers(v.expect.Backend), RenderUsers(seen))
	if len(seen) == 1 {
		v.compare("backend (request)", v.o.Request.Method+" "+v.o.Request.URL, sent[0])
	}
	v.compare("backend (impersonation headers)", "none", scenarios.List(left))
}

// RenderUsers lists users on one line.
func RenderUsers(users []scenarios.User) string {
	return lines(users, scenarios.User.Render)
}

func lines[T any](list []T, line func(T) string) string {
	return scenarios.List(seq.Map(list, line))
}

// backendBehaviour is what reached the aggregated API server.
func backendBehaviour(o *Observation) []string {
	return seq.Map(o.Backend, func(r BackendRequest) string {
		return strings.TrimSpace("backend: " + r.Method + " " + r.URL + " by " + r.User.Render() + " " + scenarios.RenderExtra(r.Impersonation))
	})
}

// around judges what was seen beside the authorization: by admission, by priority and fairness, by an operator.
func (v *stepJudge) around() {
	want, got := v.expect, v.o
	for _, part := range []struct {
		field       string
		asked, seen bool
		judge       func()
	}{
		{"backend", want.Backend != nil, v.has(scenarios.Aggregation), v.backend},
		{"admission", want.Admission != nil, v.has(scenarios.Aggregation), func() {
			v.compare("admission", RenderUsers(want.Admission), RenderUsers(got.Admission))
		}},
		{"flow", want.Flow != nil, got.Response.Flow != nil, func() {
			v.compare("flow", fmt.Sprintf("%+v", *want.Flow), fmt.Sprintf("%+v", *got.Response.Flow))
		}},
		{"counters", want.Counters != nil, got.Counters != nil, v.counters},
		{"log", want.Log != nil, got.Log != nil, v.logged},
	} {
		switch {
		case part.asked && part.seen:
			part.judge()
		case part.asked && v.e.Cell.Provider == "local" && v.has(scenarios.Metrics): // which shows all of it
			v.compare(part.field, "something to be judged", "nothing")
		case part.asked:
			v.notJudged(part.field)
		}
	}
}

func (v *stepJudge) logged() {
	for _, pattern := range v.expect.Log {
		line, err := regexp.Compile(pattern)
		seen := scenarios.List(v.o.Log)
		if err == nil && slices.ContainsFunc(v.o.Log, line.MatchString) {
			seen = pattern
		}
		v.compare("log", pattern, seen)
	}
}

// counters judges the authorization metrics: of those that are named no other series moves, and times that can be.
func (v *stepJudge) counters() {
	want, got, named := maps.Clone(v.expect.Counters), map[string]int{}, map[string]bool{}
	for series := range want {
		name, _, _ := strings.Cut(series, "{")
		named[name] = true
	}
	maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 })
	for _, m := range v.o.Counters {
		if !named[m.Name] {
			continue
		}
		got[m.Series()] = m.Delta
		if m.Seconds != nil {
			took := spent(time.Duration(*m.Seconds*float64(time.Second)), v.o.Answered.Sub(v.o.Sent))
			v.compare("counters (time)", someTime, took)
		}
	}
	v.compare("counters", fmt.Sprint(want), fmt.Sprint(got))
}

// together judges requests that were sent at the same time. The answer and the audit event of each are its own; access
// reviews and counters are those of all. Which of several that ask the same found the answer remembered is open.
func (j *judge) together(first int, group []scenarios.Step, seen []Observation) (problem string) {
	all := j.request(first, &group[0], &seen[0])
	decided := all.folded(seen[0].Reviews)
	var wanted, got []string
	var attempts []scenarios.MetricDelta
	for i := range group {
		v := j.request(first+i, &group[i], &seen[i])
		if problem := cmp.Or(v.sent(), v.noEvent()); problem != "" {
			return problem
		}
		v.decided = slices.DeleteFunc(slices.Clone(decided), func(d Decided) bool { return d.Spec.User != v.impersonated() })
		v.outcome()
		v.told()
		v.user()
		v.audit()
		for _, r := range v.expect.Reviews {
			who := v.userOf(r.By)
			r.By = ""
			wanted = append(wanted, fmt.Sprintf("%s %+v", who, r))
		}
		if m := v.expect.Metrics; m != nil {
			attempts = append(attempts, m.Attempts...)
		}
	}
	for _, d := range decided {
		r := Describe(d)
		r.Extra = nil
		got = append(got, fmt.Sprintf("%s %+v", d.Spec.User, r))
	}
	if j.has(scenarios.Reviews) {
		all.compare("reviews (at most)", strconv.Itoa(len(wanted)), strconv.Itoa(max(len(wanted), len(got))))
		all.compare("reviews (in any order)", scenarios.List(sets.List(sets.New(wanted...))), scenarios.List(sets.List(sets.New(got...))))
	} else {
		j.notJudged("reviews")
	}
	if !j.has(scenarios.Metrics) {
		j.notJudged("metrics")
		return ""
	}
	all.compare(attemptsField, scenarios.RenderDeltas(attempts), all.increases(AttemptsMetric))
	all.compare(countedField, checks(decided, ""), all.increases(AuthorizationsMetric))
	return ""
}
