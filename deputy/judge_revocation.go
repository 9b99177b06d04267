package deputy

import (
	"net/http"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

const wantRefusal = "the person is refused, and arrives as nobody else"

// judge demands that the person is refused, and that nobody else arrives. A watch that stays open is reported and is
// not wrong, because an API server does not end those of a token that it no longer accepts either.
func (e *revocationEvidence) judge(out *judgement, person *Identity, isOurs bool) {
	out.checks += 2
	if e.Last.Refused {
		out.outcomes["refused "+e.since(e.Last.At)]++
	} else {
		request := "list"
		if e.Last.Watch {
			request = "watch"
		}
		out.fail(
			person.Name,
			wantRefusal,
			"is let in %s the credentials were revoked, by a %s (code %d, --timeout)",
			e.since(e.Last.At),
			request,
			e.Last.Code,
		)
	}
	switch {
	case e.WatchCode != http.StatusOK:
		out.fail("the watch", "it is answered 200", "it was answered %d", e.WatchCode)
	case e.WatchEnded == nil:
		out.outcomes["watch still open "+e.since(e.Ended)]++
	default:
		out.outcomes["watch ended "+e.since(*e.WatchEnded)]++
	}
	if !e.judgeEvents(out, person, isOurs) {
		out.setInconclusive("the audit log has no event of the watch, by the request URI")
	}
}

// since returns how long after the revocation something happened.
func (e *revocationEvidence) since(at time.Time) string {
	return at.Sub(e.Revoked).Round(time.Second).String() + " after"
}

// judgeEvents judges who arrived, and reports whether the person was seen at all.
func (e *revocationEvidence) judgeEvents(out *judgement, person *Identity, isOurs bool) (isSeen bool) {
	for _, raw := range e.Events {
		event := decodeEvent(raw)
		if event == nil || !strings.Contains(event.RequestURI, markerOf(e.Run, 0, 1)) {
			continue
		}
		name := arrivingUser(event).Username
		isPerson := name == person.Name
		isSeen = isSeen || isPerson
		isLetInLater := isPerson && e.isAllowedAfterRefusal(event)
		if isOurs && isLetInLater {
			out.fail(person.Name, wantRefusal, "was refused, and the API server allowed what came then")
		}
		isSomebody := name != "" && name != user.Anonymous
		if isSomebody && !isPerson {
			out.fail(person.Name, wantRefusal, "a request was made as %q", name)
		}
	}
	return isSeen
}

// isAllowedAfterRefusal reports whether the API server allowed the request that the person was refused, or a later one.
// Both times are of the same clock.
func (e *revocationEvidence) isAllowedAfterRefusal(event *auditv1.Event) bool {
	isLater := !event.RequestReceivedTimestamp.Time.Before(e.Last.At)
	return e.Last.Refused && isLater && decisionOf(event) == "allow"
}
