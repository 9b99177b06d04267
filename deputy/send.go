package deputy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/internal/seq"
)

// attacksEvidence is what was seen of attacks, in the order of their table.
type attacksEvidence struct {
	destination `json:",inline"`
	Attacks     []attackEvidence `json:"attacks"`
}

// attackEvidence is an attack as evidence shows it, what was answered, and what arrived.
type attackEvidence struct {
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Sent    []string  `json:"sent"`
	Answers []reply   `json:"answers,omitempty"`
	// NotTried says why the attack was not tried. It is empty if it was.
	NotTried string            `json:"notTried,omitempty"`
	Events   []json.RawMessage `json:"events,omitempty"`
	// SecondClusterEvents are the events of the second cluster, if there are two.
	SecondClusterEvents []json.RawMessage `json:"elsewhere,omitempty"`
	// Reviews are the audit events of SubjectAccessReviews during the attack, if these are counted.
	Reviews []json.RawMessage `json:"reviews,omitempty"`
}

// These are the reasons why an attack is not tried, besides errNotOffered.
const (
	twoCertificates = "people with certificates have connections of their own"
	notByName       = "people are not known by a header with their name"
	oneCluster      = "there is one cluster behind the proxy"
)

// senders returns the person for each sender in an attack. Nobody has no credentials.
func senders(people []*Identity) map[string]*Identity {
	bySender := map[string]*Identity{senderMe: people[0], senderOther: people[1%len(people)], senderNobody: {}}
	for _, p := range people {
		bySender[p.Name] = p
	}
	return bySender
}

// sendAttacks tries the attacks of a table, a given number at the same time, and then reads who arrived.
func (ep *endpoint) sendAttacks(ctx context.Context, table []attack, atOnce int) (*attacksEvidence, error) {
	s := requestWriter{destination: ep.newDestination(), People: senders(ep.people)}
	e := &attacksEvidence{s.destination, make([]attackEvidence, len(table))}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for n, a := range table {
		group.Go(func() error {
			evidence := &e.Attacks[n]
			evidence.Began, evidence.Sent = truncatedNow(), s.describeAttack(n, a)
			ep.sendAttack(groupCtx, s, n, a, evidence)
			evidence.Ended = time.Now()
			if err := groupCtx.Err(); err != nil {
				return err
			}
			return evidence.checkAnswers(a)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	events, err := ep.log.eventsOf(ctx, e.Run, podsIn(ep.namespace))
	if err != nil {
		return nil, err
	}
	e.assignEvents(events, func(a *attackEvidence) *[]json.RawMessage { return &a.Events })
	if ep.other != nil {
		elsewhere, err := ep.other.log.eventsOf(ctx, e.Run, podsIn(ep.namespace))
		if err != nil {
			return nil, fmt.Errorf("the cluster %s: %w", ep.other.name, err)
		}
		e.assignEvents(elsewhere, func(a *attackEvidence) *[]json.RawMessage { return &a.SecondClusterEvents })
	}
	return e, ep.countReviews(table, e)
}

// newDestination returns where a new run of requests is sent.
func (ep *endpoint) newDestination() destination {
	p := destination{Run: newRun(), Host: ep.url.Host, Prefix: strings.TrimRight(ep.url.Path, "/"), Namespace: ep.namespace}
	if ep.other != nil {
		p.Clusters, p.OtherPrefix = []string{ep.cluster, ep.other.name}, ep.other.prefix
	}
	return p
}

// countReviews adds the SubjectAccessReviews that were asked for during the attacks that count them.
func (ep *endpoint) countReviews(table []attack, e *attacksEvidence) error {
	if !slices.ContainsFunc(table, func(a attack) bool { return a.CountsReviews }) {
		return nil
	}
	events, err := ep.log.find("/subjectaccessreviews")
	if err != nil {
		return err
	}
	for _, raw := range events {
		event := decodeEvent(raw)
		if event == nil || event.Verb != "create" {
			continue
		}
		for n, a := range table {
			if a.CountsReviews && e.Attacks[n].isDuring(event) {
				e.Attacks[n].Reviews = append(e.Attacks[n].Reviews, raw)
			}
		}
	}
	return nil
}

// sendAttack sends the requests of one attack, and keeps their answers.
func (ep *endpoint) sendAttack(ctx context.Context, s requestWriter, n int, a attack, evidence *attackEvidence) {
	cert := s.People[a.Requests[0].Who].cert
	if slices.ContainsFunc(a.Requests, func(r rawRequest) bool { return s.People[r.Who].cert != cert }) {
		evidence.NotTried = twoCertificates
		return
	}
	switch {
	case a.NameSpelling != "" && !s.People[senderMe].isKnownByName(a.NameSpelling):
		evidence.NotTried = notByName
		return
	case a.needsTwoClusters() && ep.other == nil:
		evidence.NotTried = oneCluster
		return
	}
	requests := s.writeRequests(n, a)
	if a.Protocol != protocol2 {
		evidence.Answers = sendOverHTTP1(func(from net.Addr) (net.Conn, error) {
			return dial(ctx, ep.url, ep.tls, cert, "http/1.1", a.answerTimeout(), from)
		}, requests, a)
		return
	}
	conn, err := dial(ctx, ep.url, ep.tls, cert, "h2", a.answerTimeout(), nil)
	if err == nil {
		evidence.Answers, err = sendOverHTTP2(conn, ep.url.Scheme, requests, a)
		_ = conn.Close()
	}
	if errors.Is(err, errNotOffered) {
		evidence.NotTried = errNotOffered.Error()
	} else if err != nil {
		evidence.Answers = []reply{{Problem: err.Error()}}
	}
}

// checkAnswers asserts that these can be the answers to an attack: each request has one, or a reason why there is none.
// Where requests are sent without waiting for answers, there may be no answers after the first that fails.
func (e *attackEvidence) checkAnswers(a attack) error {
	if e.NotTried != "" {
		return nil
	}
	anyKnown := slices.ContainsFunc(e.Answers, reply.hasResult)
	complete := len(e.Answers) == len(a.Requests)
	switch {
	case a.Protocol == protocol2:
		complete = anyKnown
	case a.Pipelined:
		complete = complete && anyKnown
	case complete:
		for i, r := range a.Requests {
			hasAnswer := r.HangUp || e.Answers[i].hasResult()
			complete = complete && hasAnswer
		}
	}
	if !complete {
		return fmt.Errorf(
			"%s: %d answers to %d requests, or one that is neither an answer nor says why there is none",
			a.Name,
			len(e.Answers),
			len(a.Requests),
		)
	}
	return nil
}

// assignEvents gives each attack the events of a cluster that have its marker. If it was answered and no marker
// arrived, it gets the events of its time.
func (e *attacksEvidence) assignEvents(events []json.RawMessage, eventsOf func(*attackEvidence) *[]json.RawMessage) {
	var unmarked []decodedEvent // they are decoded only once, because there are thousands of up to 100 KB
	for _, raw := range events {
		n, isMarked := e.attackOf(string(raw))
		switch {
		case n >= 0:
			into := eventsOf(&e.Attacks[n])
			*into = append(*into, raw)
		case !isMarked:
			if event := decodeEvent(raw); event != nil {
				unmarked = append(unmarked, decodedEvent{event, raw})
			}
		}
	}
	for i := range e.Attacks {
		e.Attacks[i].takeEvents(unmarked, eventsOf(&e.Attacks[i]))
	}
}

type decodedEvent struct {
	event *auditv1.Event
	raw   json.RawMessage
}

// attackOf returns the number of the attack whose marker is in an event, or -1. isMarked means that the event has a
// marker at all.
func (e *attacksEvidence) attackOf(event string) (n int, isMarked bool) {
	_, rest, isMarked := strings.Cut(event, e.Run+"-")
	if !isMarked {
		return -1, false
	}
	number, err := strconv.ParseUint(rest[:min(6, len(rest))], 10, 32)
	if err != nil || int(number) >= len(e.Attacks) {
		return -1, true
	}
	return int(number), true
}

// takeEvents adds events without a marker. They are those with the audit ID of an answer or, if there are none and a
// request succeeded, those of the time of the attack.
func (e *attackEvidence) takeEvents(unmarked []decodedEvent, into *[]json.RawMessage) {
	addEvents := func(belongs func(*auditv1.Event) bool) {
		for _, unmarkedEvent := range unmarked {
			if belongs(unmarkedEvent.event) {
				*into = append(*into, unmarkedEvent.raw)
			}
		}
	}
	addEvents(func(event *auditv1.Event) bool { return e.answerOf(event) > 0 })
	if !e.isLogged() && slices.ContainsFunc(e.Answers, reply.isSuccess) {
		addEvents(e.isDuring)
	}
}

// isLogged reports whether an audit log has an event of the attack.
func (e *attackEvidence) isLogged() bool { return len(e.Events)+len(e.SecondClusterEvents) > 0 }

// answerOf returns the number of the answer with the audit ID of an event, or 0.
func (e *attackEvidence) answerOf(event *auditv1.Event) int {
	return 1 + slices.IndexFunc(e.Answers, func(r reply) bool { return r.AuditID == string(event.AuditID) })
}

// isDuring reports whether an event happened during the attack.
func (e *attackEvidence) isDuring(event *auditv1.Event) bool {
	at := event.RequestReceivedTimestamp.Time
	return !at.Before(e.Began) && !at.After(e.Ended)
}

// codes returns the codes of the answers.
func (e *attackEvidence) codes() []int {
	return seq.Map(e.Answers, func(r reply) int { return r.Code })
}
