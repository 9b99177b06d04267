package deputy

import (
	"errors"
	"fmt"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/deputy/reference"
)

const (
	wantRow    = "each row of the deputy's audit log has its event, and each event of the proxy its row"
	wantAnswer = "the answer follows from the person's grants"
	correlated = "correlated"
)

// judge judges everybody's requests by who arrived, and the reference deputy's audit log by the API server's, row by row.
func (e *auditLogsEvidence) judge(out *judgement, g *group, logged bool) error {
	ways, people := 1, g.people
	if g.reference {
		ways, people = 2, inSession(g.people)
	}
	if len(e.Ways) != ways {
		return fmt.Errorf("there is evidence of %d ways to the API server, not of %d", len(e.Ways), ways)
	}
	table := requestsOfAll(people, g.requests)
	for _, way := range e.Ways {
		if way.Attacks == nil {
			return errors.New("there is no evidence of requests")
		}
		j := g.newAttackJudge(way.Attacks, table, people, logged)
		if err := j.judgeAttacks(way.Attacks, table, func(attack) *judgement { return out }); err != nil {
			return err
		}
		if logged = j.logged; g.reference {
			way.judgeRows(out)
			way.judgeAnswers(out, g)
		}
	}
	for i := range e.Others {
		failWithoutRow(out, &e.Others[i])
	}
	return nil
}

// judgeRows compares a deputy's audit log with the API server's: each row has the event of the same request.
func (w *wayEvidence) judgeRows(out *judgement) {
	events := map[string]*auditv1.Event{}
	for i := range w.Attacks.Attacks {
		for _, event := range w.Attacks.Attacks[i].eventsByKey() {
			events[string(event.AuditID)] = event
		}
	}
	for _, row := range w.Rows {
		event := events[row.AuditID]
		delete(events, row.AuditID)
		out.checks++
		if why := compareRow(row, event); why != "" {
			out.fail(fmt.Sprintf("the row of %s, %s %s", row.Actor, row.Method, row.URI), wantRow, "%s", why)
			continue
		}
		out.outcomes[correlated]++
	}
	for _, event := range events {
		failWithoutRow(out, event)
	}
}

// compareRow returns how a row of the deputy's audit log differs from the event with its audit ID, if there is one.
func compareRow(row reference.Row, event *auditv1.Event) string {
	switch {
	case event == nil:
		return "lost: it has no event"
	case event.ImpersonatedUser == nil || event.ImpersonatedUser.Username != row.Actor:
		return fmt.Sprintf("misattributed: its event is as %+v", event.ImpersonatedUser)
	case event.RequestURI != row.URI || event.User.Username != proxyName:
		return fmt.Sprintf("its event is about %s, by %s", event.RequestURI, event.User.Username)
	}
	return ""
}

func failWithoutRow(out *judgement, event *auditv1.Event) {
	out.fail("the event "+string(event.AuditID), wantRow, "%s as %+v has no row of the deputy", event.RequestURI, event.ImpersonatedUser)
}

// judgeAnswers demands that clients are told what follows from their grants: everybody has two entries in the table.
func (w *wayEvidence) judgeAnswers(out *judgement, g *group) {
	grants := g.grants()
	list := &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: Namespace}
	for n, seen := range w.Attacks.Attacks {
		want := http.StatusForbidden
		if g.people[n/2].isGranted(grants, list) {
			want = http.StatusOK
		}
		for i, got := range seen.Answers {
			if got.Code != want {
				out.fail("request "+markerOf(w.Attacks.Run, n, i+1), wantAnswer, "code %d, want %d %s", got.Code, want, got.Problem)
			}
		}
	}
}
