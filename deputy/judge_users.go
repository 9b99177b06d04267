package deputy

import (
	"errors"
	"fmt"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/deputy/dashboard"
	"github.com/authzconf/authzconf/deputy/reference"
)

const (
	wantRow    = "each row of the deputy's audit log has its event, and each event of the proxy its row"
	wantAnswer = "the answer follows from the person's grants"
	correlated = "correlated"
)

// judge judges everybody's requests by who arrived. It compares the reference deputy's audit log with the API server's,
// row by row.
func (e *auditLogsEvidence) judge(out *judgement, g *group, logged bool) error {
	routes := g.listRoutes()
	if len(e.Routes) != len(routes) {
		return fmt.Errorf("there is evidence of %d ways to the API server, not of %d", len(e.Routes), len(routes))
	}
	for n, route := range e.Routes {
		if route.Attacks == nil {
			return errors.New("there is no evidence of requests")
		}
		table := requestsOfEverybody(routes[n].people, g.requests, routes[n].twoClusters)
		j := g.newAttackJudge(route.Attacks, table, routes[n].people, logged)
		if err := j.judgeAttacks(route.Attacks, table, func(attack) *judgement { return out }); err != nil {
			return err
		}
		if logged = j.logged; routes[n].hasRows {
			route.judgeRows(out, g.cluster)
			route.judgeAnswers(out, g)
		}
	}
	for i := range e.Others {
		failWithoutRow(out, &e.Others[i])
	}
	return nil
}

// route is a way by which everybody sends requests.
type route struct {
	people []*Identity
	// hasRows means that a reference deputy is on the way, which writes an audit log.
	hasRows     bool
	twoClusters bool
}

// listRoutes returns the routes by which everybody sends requests: to two reference deputies, and to a hub or a proxy.
func (g *group) listRoutes() (routes []route) {
	if g.reference {
		deputy := route{people: withSessions(g.people), hasRows: true}
		routes = append(routes, deputy, deputy)
	}
	if !g.reference || g.hasTwoClusters() {
		routes = append(routes, route{people: g.people, twoClusters: g.hasTwoClusters()})
	}
	return routes
}

// judgeRows demands that each row of the reference deputy's audit log has the event of the same request in the API
// server's log, and each event a row.
func (r *routeEvidence) judgeRows(out *judgement, cluster string) {
	events := map[string]*auditv1.Event{}
	for i := range r.Attacks.Attacks {
		for _, event := range r.Attacks.Attacks[i].eventsByKey() {
			events[string(event.AuditID)] = event.Event
		}
	}
	for _, row := range r.Rows {
		event := events[row.AuditID]
		delete(events, row.AuditID)
		out.checks++
		if why := compareRow(row, event, cluster); why != "" {
			out.fail(fmt.Sprintf("the row of %s, %s %s", row.Actor, row.Method, row.URI), wantRow, "%s", why)
			continue
		}
		out.outcomes[correlated]++
	}
	for _, event := range events {
		failWithoutRow(out, event)
	}
}

// compareRow returns how a row of the deputy's audit log differs from the event with its audit ID, or "". The row also
// has to name the cluster of that event.
func compareRow(row reference.Row, event *auditv1.Event, cluster string) string {
	switch {
	case event == nil:
		return "lost: it has no event"
	case event.ImpersonatedUser == nil || event.ImpersonatedUser.Username != row.Actor:
		return fmt.Sprintf("misattributed: its event is as %+v", event.ImpersonatedUser)
	case event.RequestURI != row.URI || event.User.Username != proxyName:
		return fmt.Sprintf("its event is about %s, by %s", event.RequestURI, event.User.Username)
	case row.Cluster != cluster:
		return fmt.Sprintf("it is of the cluster %q, and its event of %q", row.Cluster, cluster)
	}
	if description := describeEvent(event); description != describeRow(row) {
		return fmt.Sprintf("it says %q, and its event %q", describeRow(row), description)
	}
	return ""
}

// describeRow returns what a request is about according to a row.
func describeRow(row reference.Row) string {
	return dashboard.Attributes{
		Verb:      row.Verb,
		APIGroup:  row.APIGroup,
		Resource:  row.Resource,
		Namespace: row.Namespace,
		Name:      row.Name,
	}.String()
}

// describeEvent returns what a request is about according to an event.
func describeEvent(event *auditv1.Event) string {
	row := reference.Row{Verb: event.Verb}
	if ref := event.ObjectRef; ref != nil {
		row.APIGroup, row.Resource, row.Namespace, row.Name = ref.APIGroup, ref.Resource, ref.Namespace, ref.Name
		if ref.Subresource != "" {
			row.Resource += "/" + ref.Subresource
		}
	}
	return describeRow(row)
}

// failWithoutRow adds a failure about an event that has no row in the deputy's audit log.
func failWithoutRow(out *judgement, event *auditv1.Event) {
	out.fail("the event "+string(event.AuditID), wantRow, "%s as %+v has no row of the deputy", event.RequestURI, event.ImpersonatedUser)
}

// judgeAnswers demands that the answers follow from the grants. Everybody has two entries in the table.
func (r *routeEvidence) judgeAnswers(out *judgement, g *group) {
	grants := g.grants()
	list := &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: Namespace}
	for n, evidence := range r.Attacks.Attacks {
		want := http.StatusForbidden
		if g.people[n/2].isGranted(grants, list) {
			want = http.StatusOK
		}
		for i, got := range evidence.Answers {
			if got.Code != want {
				out.fail("request "+markerOf(r.Attacks.Run, n, i+1), wantAnswer, "code %d, want %d %s", got.Code, want, got.Problem)
			}
		}
	}
}
