package deputy

import (
	"fmt"
	"net/http"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// findForeignAnswer demands that no request is answered with what was meant for somebody else: with what only somebody
// with permission may read, while others of the attack arrived and its person did not, or with the answer to a request
// that was made as somebody else.
func (j *attackJudge) findForeignAnswer(a attack, answers []reply, arrivals map[int]bool) string {
	arrivedOf := map[string]bool{}
	for i := range arrivals {
		r := a.Requests[i-1]
		arrivedOf[personKey(r.Who, r.Cluster == secondClusterOnly)] = true
	}
	for i, got := range answers {
		person := a.Requests[i].Who
		didArrive := arrivedOf[personKey(person, a.Requests[i].Cluster == secondClusterOnly)]
		isAnsweredWithoutArrival := got.revealsContent() && len(arrivals) > 0 && !didArrive
		switch {
		case isAnsweredWithoutArrival && arrivedOf[personKey(person, a.Requests[i].Cluster != secondClusterOnly)]:
			return fmt.Sprintf(
				"request %d was answered with a %s, and did not arrive: it is the answer of the other cluster",
				i+1,
				got.Kind,
			)
		case isAnsweredWithoutArrival:
			return fmt.Sprintf("request %d was answered with a %s, and did not arrive: it is the answer to somebody else", i+1, got.Kind)
		}
		if name, foreign := j.isAnswerToOther(got, j.people[person].rename(a.NameSpelling), arrivals[i+1]); foreign {
			return fmt.Sprintf("request %d was answered with what %q was told", i+1, name)
		}
	}
	return ""
}

// isAnswerToOther reports whether an answer has the audit ID of a request that was made as somebody else, and returns
// that user's name. A person may be told again what that person was told before.
func (j *attackJudge) isAnswerToOther(got reply, person *Identity, hasArrived bool) (name string, foreign bool) {
	event := j.events[got.AuditID]
	if event == nil {
		return "", false
	}
	name = arrivingUser(event).Username
	if name == user.Anonymous && !hasArrived {
		return name, false
	}
	return name, name != person.Name
}

// findUnlogged demands that the log has an event of each answer which only the API server can have given, and that the
// event does not contradict the answer. Otherwise nobody knows who arrived: it returns why, and the kind of the attack is
// inconclusive.
func (j *attackJudge) findUnlogged(answers []reply, hasEvent bool) string {
	for _, got := range answers {
		event := j.allEvents[got.AuditID]
		couldBeFound := got.AuditID != "" || !hasEvent // if the attack has an event, it may be that of an answer without an ID
		isMissing := event == nil && couldBeFound
		switch {
		case isMissing && j.isAnswerOfServer(got):
			return fmt.Sprintf("the API server answered %d with the audit ID %q, and there is no event of it", got.Code, got.AuditID)
		case event != nil && contradictsEvent(got, event):
			return fmt.Sprintf(
				"the API server answered %d with the audit ID %s, and by its event %d",
				got.Code,
				got.AuditID,
				statusCode(event),
			)
		}
	}
	return ""
}

// isAnswerOfServer reports whether only the API server can have given an answer. No proxy makes up a list. On a control
// plane of ours, which logs everything, an answer with one of its flow schemas or with its audit ID is also the API
// server's.
func (j *attackJudge) isAnswerOfServer(got reply) bool {
	if got.isPodList() {
		return true
	}
	hasItsID := got.AuditID != "" && !j.namesRefusals
	hasItsMark := hasItsID || j.flows[got.Flow]
	return j.ours && hasItsMark
}

// contradictsEvent reports whether an answer is a success and its event a refusal, or the reverse.
func contradictsEvent(got reply, event *auditv1.Event) bool {
	code := statusCode(event)
	if got.isPodList() {
		return code >= http.StatusBadRequest
	}
	return got.isRefusal() && code/100 == 2
}
