package deputy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/verdicts"
)

// These are the outcomes of an attack by which nobody got through.
const (
	asPerson          = "as the person"
	asNobody          = "as nobody"
	refusedByProxy    = "refused by the proxy"
	refusedByServer   = "refused by the API server"
	unknownByAnswers  = "not judged by their answers: nobody may read what is asked for, and what is refused is seldom kept"
	foundByTime       = "time"
	foundByURI        = "request URI"
	foundByAgent      = "user agent"
	foundByID         = "audit ID"
	noMarkerAddendum  = " (by the time: no marker arrived)"
	wantConsistentLog = "the events of the API server do not contradict themselves"
)

// attackJudge judges attacks by who arrived according to the audit log.
type attackJudge struct {
	people map[string]*Identity
	// account is the proxy's own account. On a cluster that is not ours, it is what the controls show.
	account string
	// ours means that the control plane is ours, so that it logs everything and only RBAC authorizes.
	ours bool
	// reference means that the reference agent is tried, which has to meet more demands than a proxy.
	reference bool
	// controls are the users who arrive with people's credentials and without tricks, by the people's keys. groups are
	// the groups that some person has to have.
	controls map[string]authenticationv1.UserInfo
	groups   []string
	// logged means that the audit log has shown a request so far.
	logged bool
	// events are the events of impersonated requests and of nobody's, by their audit IDs. known are the events of all
	// requests.
	events, allEvents map[string]*auditv1.Event
	// flows are the flow schemas that only answers of the API server have.
	flows map[string]bool
	// clusters are the names of two clusters behind the proxy. It is empty if there is one cluster.
	clusters []string
	// namesRefusals means that the proxy gives an audit ID to the requests that it refuses itself.
	namesRefusals bool
}

// newAttackJudge returns a judge of attacks on a program that acts for people. account is the proxy's own account, or
// "" if it is not known.
func newAttackJudge(e *attacksEvidence, table []attack, people []*Identity, account string) *attackJudge {
	j := &attackJudge{
		people: senders(people), account: account, ours: account != "", controls: map[string]authenticationv1.UserInfo{},
		events: map[string]*auditv1.Event{}, allEvents: map[string]*auditv1.Event{}, flows: map[string]bool{}, clusters: e.Clusters,
	}
	for _, p := range people {
		j.groups = append(j.groups, p.Groups...)
	}
	for n := range e.Attacks {
		j.learnFrom(&e.Attacks[n], table[n])
	}
	return j
}

// learnFrom records what the evidence of an attack shows about answers and events in general.
func (j *attackJudge) learnFrom(e *attackEvidence, a attack) {
	for _, event := range e.eventsByKey() {
		id := string(event.AuditID)
		j.allEvents[id] = event.Event
		isFirstOfNobody := event.User.Username == user.Anonymous && j.events[id] == nil
		if event.ImpersonatedUser != nil || isFirstOfNobody {
			j.events[id] = event.Event
		}
	}
	isLogged := e.isLogged()
	for _, got := range e.Answers {
		if got.Flow != "" && isLogged {
			j.flows[got.Flow] = true
		}
		isRefusalByProxy := a.Who == senderNobody && !isLogged
		if isRefusalByProxy && got.AuditID != "" {
			j.namesRefusals = true
		}
	}
}

// judgeAttacks judges every attack by who arrived. The result of an attack is added to the judgement of its kind. One
// attack about which nothing is known makes its whole kind inconclusive, and the first of these is named.
func (j *attackJudge) judgeAttacks(e *attacksEvidence, table []attack, judgementOf func(a attack) *judgement) error {
	if len(e.Attacks) != len(table) {
		return fmt.Errorf("there is evidence of %d attacks, not of %d", len(e.Attacks), len(table))
	}
	for n, a := range table {
		evidence, out := &e.Attacks[n], judgementOf(a)
		out.seconds += evidence.Ended.Sub(evidence.Began).Seconds()
		if evidence.NotTried != "" {
			out.outcomes[notTriedPrefix+evidence.NotTried]++
			continue
		}
		if err := j.judgeAttack(out, a, evidence, markerOf(e.Run, n, "")); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		if why := j.findUnlogged(evidence.Answers, evidence.isLogged()); why != "" {
			out.setInconclusive(a.Name + ": " + why)
		}
	}
	return nil
}

// reviewLimit is how many SubjectAccessReviews a proxy may ask for to answer one request.
const reviewLimit = 20

// findManyReviews demands that a proxy asks for at most 20 SubjectAccessReviews to answer one request. A proxy that asks
// about each value that a client sends makes the API server work for anybody who sends thousands.
func (j *attackJudge) findManyReviews(evidence *attackEvidence) string {
	if n := j.countReviews(evidence); n > reviewLimit {
		return fmt.Sprintf("the proxy asked for %d access reviews for one request, and may for %d", n, reviewLimit)
	}
	return ""
}

// countReviews returns how many SubjectAccessReviews the proxy itself asked for while an attack was tried.
func (j *attackJudge) countReviews(evidence *attackEvidence) (n int) {
	for _, raw := range evidence.Reviews {
		if event := decodeEvent(raw); event != nil && event.User.Username == j.account {
			n++
		}
	}
	return n
}

// arrivals is what the events of an attack show.
type arrivals struct {
	// outcome is the outcome of the attack, if nothing is wrong.
	outcome string
	// arrived has the numbers of the requests that arrived. A value is true if the request arrived as the person.
	arrived map[int]bool
	// isByTimeOnly means that an event was found only by its time.
	isByTimeOnly bool
	// wrong counts what is wrong, by its description.
	wrong map[string]int
}

// judgeAttack judges one attack by its events, its answers, and the reviews that the proxy asked for.
func (j *attackJudge) judgeAttack(out *judgement, a attack, evidence *attackEvidence, marker string) error {
	out.checks++
	events := evidence.eventsByKey()
	got, err := j.judgeArrivals(out, a, evidence, marker, events)
	if err != nil {
		return err
	}
	isRightByMarker := len(got.wrong) == 0 && !got.isByTimeOnly
	if why := j.findForeignAnswer(a, evidence.Answers, got.arrived); why != "" && isRightByMarker {
		got.wrong[why]++
	}
	if why := j.findManyReviews(evidence); why != "" {
		got.wrong[why]++
	}
	for _, why := range slices.Sorted(maps.Keys(got.wrong)) {
		if n := got.wrong[why]; n > 1 {
			why += fmt.Sprintf(", %d times", n)
		}
		out.failAttack(a, evidence, why)
		out.findings[len(out.findings)-1].isCertain = !got.isByTimeOnly
	}
	if len(got.wrong) > 0 {
		return nil
	}
	couldShareAnswer := got.outcome == asPerson && a.sharesURL()
	if couldShareAnswer && !slices.ContainsFunc(evidence.Answers, reply.revealsContent) {
		got.outcome = unknownByAnswers
	}
	if j.mustArrive(a) {
		j.judgeControl(out, a, evidence, got, events)
		return nil
	}
	out.outcomes[got.outcome]++
	return nil
}

// judgeArrivals judges each event of an attack.
func (j *attackJudge) judgeArrivals(
	out *judgement,
	a attack,
	evidence *attackEvidence,
	marker string,
	events map[string]loggedEvent,
) (*arrivals, error) {
	got := &arrivals{outcome: refusedByProxy, arrived: map[int]bool{}, wrong: map[string]int{}}
	for _, key := range slices.Sorted(maps.Keys(events)) { // so that the result is the same each time
		event := events[key]
		foundBy, request := evidence.identifyEvent(event.Event, marker)
		if foundBy == "" {
			return nil, fmt.Errorf("the event %s is not that of this request", event.AuditID)
		}
		if why := verdicts.FindContradiction(event.Event); j.ours && why != "" {
			out.fail(a.Name, wantConsistentLog, "%s", why)
		}
		out.foundBy[foundBy]++
		j.logged, got.isByTimeOnly = true, got.isByTimeOnly || foundBy == foundByTime
		i := j.requestOf(a, request, event)
		outcome, why := j.judgeArrival(a, a.Requests[i-1], event)
		if why != "" {
			if foundBy == foundByTime {
				why += noMarkerAddendum
			}
			got.wrong[why]++
		} else if got.outcome != asPerson {
			got.outcome = outcome
		}
		got.arrived[i] = got.arrived[i] || outcome == asPerson
	}
	return got, nil
}

// requestOf returns the number of the request that an event belongs to. For a request within another, or one of several
// that look alike, that is the request of the person who arrived.
func (j *attackJudge) requestOf(a attack, number string, event loggedEvent) int {
	i, err := strconv.Atoi(number)
	isNumber := err == nil && i >= 1
	if isNumber && i <= len(a.Requests) {
		return i
	}
	name := arrivingUser(event.Event).Username
	isOfPerson := func(r rawRequest) bool { return j.people[r.Who].Name == name }
	exactly := slices.IndexFunc(a.Requests, func(r rawRequest) bool {
		return isOfPerson(r) && (r.Cluster == secondClusterOnly) == event.isOfSecondCluster
	})
	if exactly >= 0 {
		return 1 + exactly
	}
	return 1 + max(0, slices.IndexFunc(a.Requests, isOfPerson))
}

// mustArrive reports whether it is a failure if nobody arrives.
func (j *attackJudge) mustArrive(a attack) bool {
	isForReference := j.reference && a.Arrives == arrivesReference
	return isForReference || a.isControl()
}

// judgeControl demands that requests without tricks arrive as the person, all of them, and that none is answered with
// success without having arrived, because that would be the answer to another request. If the audit log has not shown
// any request yet, it may be the wrong log: such an answer then makes the kind inconclusive.
func (j *attackJudge) judgeControl(out *judgement, a attack, evidence *attackEvidence, got *arrivals, events map[string]loggedEvent) {
	code := evidence.Answers[0].Code
	isAnsweredWithoutArrival := len(events) == 0 && code/100 == 2
	switch {
	case isAnsweredWithoutArrival && j.logged:
		out.failAttack(
			a,
			evidence,
			fmt.Sprintf("it was answered %d, and the API server was not asked: it is the answer to another request", code),
		)
	case isAnsweredWithoutArrival:
		out.setInconclusive(
			fmt.Sprintf(
				"%s: it was answered %d, and the audit log has no event of it: it is not the log of the API server behind this proxy, or its policy leaves out lists of pods",
				a.Name,
				code,
			),
		)
	case got.outcome == asPerson && len(got.arrived) < len(a.Requests):
		out.failAttack(a, evidence, fmt.Sprintf("only %d of %d requests arrived", len(got.arrived), len(a.Requests)))
	case got.outcome != asPerson:
		out.failAttack(
			a,
			evidence,
			fmt.Sprintf(
				"it should have arrived as %s and did not: %s (code %d)%s",
				j.people[a.Requests[0].Who].Name,
				got.outcome,
				code,
				firstRefusal(events),
			),
		)
	default:
		out.outcomes[got.outcome]++
	}
}

// firstRefusal returns a colon and the API server's answer to the first request that it refused, or "" if it refused
// none.
func firstRefusal(events map[string]loggedEvent) string {
	for _, key := range slices.Sorted(maps.Keys(events)) {
		if status := events[key].ResponseStatus; status != nil && status.Message != "" {
			return ": " + status.Message
		}
	}
	return ""
}

// loggedEvent is an event in the audit log of one of two clusters.
type loggedEvent struct {
	*auditv1.Event
	// isOfSecondCluster means that it is an event of the second cluster.
	isOfSecondCluster bool
}

// eventsByKey returns one event for each request of an attack, and leaves out those of other stages.
func (e *attackEvidence) eventsByKey() map[string]loggedEvent {
	events := map[string]loggedEvent{}
	for n, log := range [][]json.RawMessage{e.Events, e.SecondClusterEvents} {
		for _, raw := range log {
			if event := decodeEvent(raw); event != nil {
				events[strconv.Itoa(n)+string(event.AuditID)+event.RequestURI+event.User.Username] = loggedEvent{event, n > 0}
			}
		}
	}
	return events
}

var digits = regexp.MustCompile(`^[0-9]+`)

// identifyEvent returns how an event is known to belong to an attack, or "" if it does not belong to it, and the number
// of the request in the event's marker.
func (e *attackEvidence) identifyEvent(event *auditv1.Event, marker string) (by, request string) {
	for _, in := range []struct{ by, text string }{{foundByURI, event.RequestURI}, {foundByAgent, event.UserAgent}, {foundByID, string(event.AuditID)}} {
		_, rest, found := strings.Cut(in.text, marker)
		if !found {
			continue
		}
		by = cmp.Or(by, in.by)
		if request = digits.FindString(rest); request != "" {
			return in.by, request
		}
	}
	if by != "" {
		return by, ""
	}
	if i := e.answerOf(event); i > 0 {
		return foundByID, strconv.Itoa(i)
	}
	if e.isDuring(event) {
		return foundByTime, "1"
	}
	return "", ""
}
