package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/internal/seq"
)

// SentRequest is a request as it was sent to the dashboard, and its answer.
type SentRequest struct {
	// Fence is the marker of a request that was sent directly to the API server just before. Its audit event shows the
	// time of this by the API server's clock.
	Fence string `json:"fence"`
	// Correlation is the correlation ID that was sent with the request. It is empty if the trail has none.
	Correlation string `json:"correlation,omitempty"`
	// Code is the code of the answer. Problem is the reason why none came.
	Code    int    `json:"code,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// Evidence is what was seen of the requests of a file.
type Evidence struct {
	// Sent has an entry for each request of the file.
	Sent []SentRequest `json:"sent"`
	// End is the marker of the request that was sent directly to the API server after the last request.
	End    string            `json:"end"`
	Events []json.RawMessage `json:"events"`
	// SecondClusterEvents are the events of the second cluster, if there are two.
	SecondClusterEvents []json.RawMessage `json:"elsewhere,omitempty"`
	// Rows are the rows of the dashboard's own audit trail.
	Rows []TrailRow `json:"rows,omitempty"`
}

// Findings are the result of a comparison.
type Findings struct {
	Checks   int
	Failures []Failure
	// Notes count what is reported and not judged.
	Notes map[string]int
	// Unknown says why nothing can be concluded. It is empty if something can.
	Unknown string
}

// Failure is something that should have been different.
type Failure struct{ What, Want, Got string }

// fail adds a failure: what was checked, what is demanded, and what was seen.
func (f *Findings) fail(what, want, format string, args ...any) {
	f.Failures = append(f.Failures, Failure{what, want, fmt.Sprintf(format, args...)})
}

// note counts something that is reported and not judged.
func (f *Findings) note(what string, n int) {
	if f.Notes == nil {
		f.Notes = map[string]int{}
	}
	f.Notes[what] += n
}

// Judge compares what arrived with what had to arrive.
type Judge struct {
	file     *File
	evidence *Evidence
	account  string
	// groups are the groups that people must have, by the people's names.
	groups map[string][]string
	// fences are the times at which the requests sent directly to the API server arrived, by cluster. There is one
	// before each request, and one after the last.
	fences map[string][]time.Time
	// windows are the requests that arrived while each request was tried. It is nil if the audit log does not show
	// that.
	windows [][]arrival
	reviews []review
	// unknown says why nothing can be judged.
	unknown string
}

// arrival is a request that arrived at the API server.
type arrival struct {
	Attributes
	event *auditv1.Event
	user  authenticationv1.UserInfo
	// isByDashboard means that the request was made under the dashboard's own account.
	isByDashboard bool
}

// NewJudge returns a judge of evidence. account is the dashboard's account at the API server. groups are the groups
// that each person must have, by the person's name.
func NewJudge(f *File, e *Evidence, account string, groups map[string][]string) (*Judge, error) {
	if len(e.Sent) != len(f.Requests) {
		return nil, fmt.Errorf("there is evidence of %d requests, not of %d", len(e.Sent), len(f.Requests))
	}
	j := &Judge{
		file:     f,
		evidence: e,
		account:  account,
		groups:   groups,
		fences:   map[string][]time.Time{},
		windows:  make([][]arrival, len(e.Sent)),
	}
	logs := map[string][]json.RawMessage{f.firstCluster(): e.Events}
	if len(f.clusters) > 1 {
		logs[f.clusters[1]] = e.SecondClusterEvents
	}
	for _, cluster := range slices.Sorted(maps.Keys(logs)) {
		j.readLog(cluster, decodeEvents(logs[cluster]))
	}
	if j.unknown != "" {
		j.windows = nil
	}
	return j, nil
}

// readLog records what arrived at a cluster in which window, and which reviews were answered there. If the log does not
// show that, it records why nothing can be judged.
func (j *Judge) readLog(cluster string, events []*auditv1.Event) {
	fences, missing := findFences(j.evidence, events)
	if missing != "" {
		clusterText := ""
		if cluster != "" {
			clusterText = " of the cluster " + cluster
		}
		j.unknown = fmt.Sprintf(
			"the audit log%s does not show %s: it is not the log of that cluster, or its policy leaves out lists of pods",
			clusterText,
			missing,
		)
		return
	}
	j.fences[cluster] = fences
	for _, event := range events {
		at := event.RequestReceivedTimestamp.Time
		isOutside := at.Before(fences[0]) || !at.Before(fences[len(fences)-1])
		if isOutside || !j.isAbout(event) {
			continue
		}
		if r, isReview := readReview(event); isReview {
			r.attributes.Cluster = cluster
			j.reviews = append(j.reviews, r)
			continue
		}
		n := slices.IndexFunc(fences, at.Before) - 1
		a := j.newArrival(event)
		a.Cluster = cluster
		j.windows[n] = append(j.windows[n], a)
	}
}

// decodeEvents returns the last event of each request, in the order of the requests' arrival. At the stage
// RequestReceived nobody is impersonated yet.
func decodeEvents(raw []json.RawMessage) []*auditv1.Event {
	last := map[string]*auditv1.Event{}
	for _, text := range raw {
		event := &auditv1.Event{}
		isEvent := json.Unmarshal(text, event) == nil && event.AuditID != ""
		if isEvent && event.Stage != auditv1.StageRequestReceived {
			last[string(event.AuditID)] = event
		}
	}
	events := make([]*auditv1.Event, 0, len(last))
	for _, event := range last {
		events = append(events, event)
	}
	slices.SortFunc(events, func(a, b *auditv1.Event) int {
		return cmp.Or(a.RequestReceivedTimestamp.Compare(b.RequestReceivedTimestamp.Time), strings.Compare(string(a.AuditID), string(b.AuditID)))
	})
	return events
}

// findFences returns when the requests sent directly to the API server arrived. If the audit log does not show one of
// them, it returns that one's marker.
func findFences(e *Evidence, events []*auditv1.Event) (fences []time.Time, missing string) {
	markers := append(seq.Map(e.Sent, func(s SentRequest) string { return s.Fence }), e.End)
	for n, marker := range markers {
		i := slices.IndexFunc(events, func(event *auditv1.Event) bool { return strings.HasSuffix(event.RequestURI, marker) })
		if i < 0 {
			return nil, fmt.Sprintf("the request past the dashboard that was sent before request %d", n+1)
		}
		fences = append(fences, events[i].RequestReceivedTimestamp.Time)
	}
	return fences, ""
}

// isAbout reports whether a request of an event was made by the dashboard, or as one of the people.
func (j *Judge) isAbout(event *auditv1.Event) bool {
	_, isPerson := j.groups[arrivingUser(event).Username]
	return isPerson || event.User.Username == j.account
}

// arrivingUser returns the user as whom a request was made, according to its event.
func arrivingUser(event *auditv1.Event) authenticationv1.UserInfo {
	if event.ImpersonatedUser != nil {
		return *event.ImpersonatedUser
	}
	return event.User
}

// newArrival returns the request of an event.
func (j *Judge) newArrival(event *auditv1.Event) arrival {
	a := arrival{event: event, user: arrivingUser(event)}
	a.isByDashboard = a.user.Username == j.account
	a.Verb = event.Verb
	if ref := event.ObjectRef; ref != nil {
		a.APIGroup, a.Resource, a.Namespace, a.Name = ref.APIGroup, ref.Resource, ref.Namespace, ref.Name
		if ref.Subresource != "" {
			a.Resource += "/" + ref.Subresource
		}
	}
	return a
}

// code returns the code of the API server's answer.
func (a arrival) code() int {
	if a.event.ResponseStatus == nil {
		return 0
	}
	return int(a.event.ResponseStatus.Code)
}

// fits reports whether this is the request that had to arrive. At level Metadata an event does not name what is
// created.
func (a arrival) fits(want Attributes) bool {
	got := a.Attributes
	if want.Verb == "create" && got.Name == "" {
		want.Name = ""
	}
	return got == want
}

// arrivalsOf returns the requests that had to arrive for the n-th request and did, as whomever they were made.
func (j *Judge) arrivalsOf(n int) []arrival {
	if j.windows == nil {
		return nil
	}
	return seq.Filter(j.windows[n], func(a arrival) bool {
		return slices.ContainsFunc(j.file.Requests[n].Arrives, a.fits)
	})
}

// JudgeRequest demands that the dashboard answers with the code that the file names, if it names one. It also applies the
// rules about what arrived for the n-th request.
func (j *Judge) JudgeRequest(n int) *Findings {
	out, r, sent := &Findings{}, j.file.Requests[n], j.evidence.Sent[n]
	if j.unknown != "" {
		out.Unknown = j.unknown
		return out
	}
	out.Checks++
	answer := cmp.Or(sent.Problem, fmt.Sprintf("the dashboard answered %d", sent.Code))
	if r.Answered != 0 && sent.Code != r.Answered {
		out.fail(r.Name, fmt.Sprintf("the answer %d", r.Answered), "%s", answer)
	}
	for _, want := range r.Arrives {
		j.judgeWanted(out, n, want, answer)
	}
	for _, want := range r.Asks {
		j.judgeAskedAction(out, n, want)
	}
	for _, a := range j.windows[n] {
		if !slices.ContainsFunc(r.Arrives, a.fits) {
			j.judgeUnrequested(out, r, a)
		}
	}
	return out
}

// judgeWanted demands that each request that has to arrive does. One that is to be refused may stay away if an access
// review asked about it.
func (j *Judge) judgeWanted(out *Findings, n int, want Attributes, answer string) {
	r := j.file.Requests[n]
	arrivals := seq.Filter(j.windows[n], func(a arrival) bool { return a.fits(want) })
	if len(arrivals) == 0 {
		if !r.Refused {
			out.fail(r.Name, want.String()+" as "+r.As, "%s; %s", j.describeNearest(n, want), answer)
		} else if why := j.checkReview(out, r, want, j.fences[want.Cluster][n+1]); why != "" {
			out.fail(r.Name, "an access review, because what it asks about does not arrive", "%s", why)
		}
		return
	}
	for _, a := range arrivals {
		j.judgeArrival(out, r, want, a)
	}
}

// judgeAskedAction demands that an access review, as the person, asks about each action that the buttons of a page offer.
func (j *Judge) judgeAskedAction(out *Findings, n int, want Attributes) {
	r := j.file.Requests[n]
	kind, until := cmp.Or(r.Review, AccessReview), j.fences[want.Cluster][n+1]
	got, why := j.findReview(out, r.As, want, kind, until)
	if got != nil {
		why = j.checkAge(*got, until)
	}
	if why != "" {
		out.fail(r.Name, fmt.Sprintf("a review (%s) of %s by the end of it", kind, want), "%s", why)
	}
	if got != nil && why == "" {
		answer := "allowed"
		if got.isDenied {
			answer = "not allowed"
		}
		out.note("asked about, and "+answer, 1)
	}
}

// judgeArrival demands that the API server refuses what the file says is refused, and nothing else. It also applies the
// rules about the user and about the review before it.
func (j *Judge) judgeArrival(out *Findings, r Request, want Attributes, a arrival) {
	if why := j.checkUser(r, a); why != "" {
		out.fail(r.Name, want.String()+" as "+r.As, "it was made %s", why)
	}
	isRefused := a.code() == http.StatusForbidden
	switch {
	case r.Refused && !isRefused:
		out.fail(r.Name, "it is refused", "the API server answered %d", a.code())
	case !r.Refused && isRefused:
		out.fail(r.Name, "it is allowed", "the API server refused it")
	}
	if why := j.checkReview(out, r, want, a.event.RequestReceivedTimestamp.Time); why != "" {
		out.fail(r.Name, fmt.Sprintf("a review (%s) of %s before it", r.ReviewOf(want), want), "%s", why)
	}
}

// describeNearest describes what arrived instead of a request.
func (j *Judge) describeNearest(n int, want Attributes) string {
	arrivals := j.windows[n]
	candidates := seq.Filter(arrivals, func(a arrival) bool { return a.Verb == want.Verb && a.Resource == want.Resource })
	if len(candidates) == 0 {
		candidates = seq.Filter(arrivals, func(a arrival) bool { return a.Resource != "" })
	}
	if len(candidates) == 0 {
		return "nothing arrived"
	}
	return strings.Join(seq.Map(candidates, arrival.describe), ", ")
}

// describe returns what arrived and as whom, on one line.
func (a arrival) describe() string {
	if a.isByDashboard {
		return a.Attributes.String() + " as the dashboard itself"
	}
	return fmt.Sprintf("%s as %s", a.Attributes, a.user.Username)
}

// checkUser demands that a request is made as the person, with the groups that --identity gives, and in system:masters
// only if it gives that group. It returns as whom the request was made, if that is wrong.
func (j *Judge) checkUser(r Request, a arrival) string {
	switch {
	case a.isByDashboard:
		return "as the dashboard itself, " + j.account
	case a.user.Username != r.As:
		return fmt.Sprintf("as %q", a.user.Username)
	}
	for _, group := range j.groups[r.As] {
		if !slices.Contains(a.user.Groups, group) {
			return fmt.Sprintf("as %q without the group %q", a.user.Username, group)
		}
	}
	hasMasters := slices.Contains(a.user.Groups, user.SystemPrivilegedGroup)
	if hasMasters && !slices.Contains(j.groups[r.As], user.SystemPrivilegedGroup) {
		return fmt.Sprintf("as %q with the group %q", a.user.Username, user.SystemPrivilegedGroup)
	}
	return ""
}

// judgeUnrequested demands that nothing else arrives than reads as the person, discovery, and what the dashboard may do
// under its own account. It counts these.
func (j *Judge) judgeUnrequested(out *Findings, r Request, a arrival) {
	isOwn := a.isByDashboard && slices.ContainsFunc(j.file.Own, func(allowance Attributes) bool { return allowance.covers(a.Attributes) })
	isDiscovery := a.Resource == "" && !a.writesByMethod()
	isAtItsCluster := slices.ContainsFunc(slices.Concat(r.Arrives, r.Asks), func(want Attributes) bool { return want.Cluster == a.Cluster })
	isElsewhere := len(j.file.clusters) > 0 && !isAtItsCluster
	isRead := a.user.Username == r.As && !a.writes() && !isElsewhere
	switch {
	case isOwn:
		out.note("further requests as the dashboard itself", 1)
	case isDiscovery:
		out.note("further requests that discover", 1)
	case isRead:
		out.note("further reads as the person", 1)
	default:
		out.fail(r.Name, "nothing but that, reads as the person, and what own has", "%s", a.describe())
	}
}

// writesByMethod reports whether a request that is about no resource may change something. The verb of such a request
// is its method.
func (a arrival) writesByMethod() bool { return !slices.Contains([]string{"get", "head"}, a.Verb) }
