package deputy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/deputy/dashboard"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
)

// Run implements product.Plan. It ends with the group in which something breaks.
func (p *dashboardPlan) Run(ctx context.Context, log *record.Log, events product.Observer) error {
	for n, group := range p.options.ways() {
		if len(p.casesOf(group)) == 0 {
			continue
		}
		err := p.observeGroup(ctx, group, log, events)
		switch {
		case err == nil:
		case ctx.Err() != nil, n == 0:
			return err // nothing was seen, so the user may be able to fix it
		default:
			events.Say(fmt.Sprintf("%s: %v", group, err))
			return log.Append(problemKey(group), problemEvidence{err.Error()})
		}
	}
	return nil
}

// observeGroup sends all requests and records what was seen. It starts a control plane and the dashboard, or uses
// running ones.
func (p *dashboardPlan) observeGroup(ctx context.Context, group string, log *record.Log, events product.Observer) (err error) {
	trail, err := p.openTrail(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trail.close()) }()
	var planes []*plane
	if group != existingCluster {
		planes, err = p.startPlanes(ctx, group, log, events)
		defer func() { err = errors.Join(err, stopPlanes(planes)) }()
		if err != nil {
			return err
		}
	}
	ep, err := p.options.proxy.open(ctx, planes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ep.close()) }()
	events.Say(fmt.Sprintf("%s: the dashboard at %s answers", group, p.options.proxy.URL))
	e, err := p.sendRequests(ctx, ep, trail, p.account(group))
	if err != nil {
		return err
	}
	if err := log.Append(dashboardKey(group), e); err != nil {
		return err
	}
	for _, id := range p.casesOf(group) {
		events.Done(id)
	}
	return nil
}

// startPlanes starts a control plane for each cluster. After an error it returns those that are running.
func (p *dashboardPlan) startPlanes(ctx context.Context, group string, log *record.Log, events product.Observer) ([]*plane, error) {
	return startPlanes(log, events, p.options.target, planeGroups(group, p.options.clusters), func() (*plane, error) {
		return startPlaneFor(ctx, p.options.target, dashboardServiceAccount(), p.grants(group == constrained), p.objects())
	})
}

// openTrail opens the dashboard's own audit trail. If there is none, nothing is read.
func (p *dashboardPlan) openTrail(ctx context.Context) (*trailReader, error) {
	r := &trailReader{format: p.file.Trail}
	if p.options.proxy.Trail == "" {
		return r, nil
	}
	var err error
	r.log, err = openGrowing(ctx, "trail", p.options.proxy.Trail)
	return r, err
}

// trailReader reads a dashboard's own audit trail while requests are sent.
type trailReader struct {
	log    *growingLog // nil if there is none
	format *dashboard.TrailFormat
	// length is how many bytes were read, and lines how many lines that were.
	length, lines int
}

func (r *trailReader) close() error {
	if r.log == nil {
		return nil
	}
	return r.log.close()
}

// readNewRows returns the rows that were written since the last time, while a request was tried.
func (r *trailReader) readNewRows(request int) ([]dashboard.TrailRow, error) {
	if r.log == nil {
		return nil, nil
	}
	data, err := r.log.readLines()
	if err != nil {
		return nil, err
	}
	text := data[min(r.length, len(data)):]
	rows, err := r.format.ParseTrail(r.log.source, text, r.lines+1, request)
	if err != nil {
		return nil, &usage.Error{Problem: "--trail: " + err.Error()}
	}
	r.length, r.lines = len(data), r.lines+strings.Count(string(text), "\n")
	return rows, nil
}

// sendRequests sends the requests of the file one after the other. Before each of them and after the last, a request
// that is sent directly to the API server marks the place in the audit log.
func (p *dashboardPlan) sendRequests(ctx context.Context, ep *endpoint, trail *trailReader, account string) (*dashboard.Evidence, error) {
	run := newRun()
	e := &dashboard.Evidence{End: run + "-last"}
	for n, r := range p.file.Requests {
		sent := dashboard.SentRequest{Fence: markerOf(run, n, "before")}
		if p.correlationHeader() != "" {
			sent.Correlation = markerOf(run, n, "id")
		}
		if err := ep.sendMarked(ctx, sent.Fence); err != nil {
			return nil, err
		}
		sent.Code, sent.Problem = ep.sendPlain(ctx, p.personOf(r), r, p.correlationHeader(), sent.Correlation)
		if err := p.checkAnswer(n, r, sent); err != nil {
			return nil, err
		}
		if !clusters.Pause(ctx, p.file.Pause) {
			return nil, ctx.Err()
		}
		rows, err := trail.readNewRows(n)
		if err != nil {
			return nil, err
		}
		e.Sent, e.Rows = append(e.Sent, sent), append(e.Rows, rows...)
	}
	return e, p.finish(ctx, ep, trail, run, account, e)
}

// finish marks the end in the audit log, waits until everything that was sent before is in the log, and reads both
// logs.
func (p *dashboardPlan) finish(ctx context.Context, ep *endpoint, trail *trailReader, run, account string, e *dashboard.Evidence) error {
	if err := ep.sendMarked(ctx, e.End); err != nil {
		return err
	}
	for _, log := range ep.logs() {
		// An event is written after its answer, so the events of the run come before that of the second request.
		for _, last := range []string{"-end", "-over"} {
			if err := log.settle(ctx, run+last); err != nil {
				return err
			}
		}
	}
	rows, err := trail.readNewRows(len(p.file.Requests) - 1)
	if err != nil {
		return err
	}
	e.Rows = append(e.Rows, rows...)
	texts := []string{run, account}
	for _, person := range ep.people {
		texts = append(texts, person.Name)
	}
	if e.Events, err = ep.log.find(texts...); err != nil || ep.other == nil {
		return err
	}
	e.SecondClusterEvents, err = ep.other.log.find(texts...)
	return err
}

func (p *dashboardPlan) personOf(r dashboard.Request) *Identity {
	for _, person := range p.options.proxy.People {
		if person.Name == r.As {
			return person
		}
	}
	return &Identity{} // nobody
}

func (p *dashboardPlan) correlationHeader() string {
	if p.file.Trail == nil {
		return ""
	}
	return p.file.Trail.Header
}

// checkAnswer returns an error if the first answer shows that this is not the dashboard, or that it does not know the
// person. The user has to fix that.
func (p *dashboardPlan) checkAnswer(n int, r dashboard.Request, sent dashboard.SentRequest) error {
	if n > 0 || r.As == dashboard.Nobody {
		return nil
	}
	isLogin := sent.Code/100 == 3 && r.Answered != sent.Code
	isUnknown := sent.Code == http.StatusUnauthorized && r.Answered != sent.Code
	switch {
	case sent.Problem != "":
		return &usage.Error{Problem: fmt.Sprintf("the dashboard does not answer %q: %s", r.Name, sent.Problem)}
	case isLogin, isUnknown:
		return &usage.Error{
			Problem: fmt.Sprintf("the dashboard does not know --identity %s: it answers %q with %d", r.As, r.Name, sent.Code),
		}
	}
	return nil
}

// sendPlain sends a request to the dashboard's own interface as a person. It returns the code of the answer, or why
// there is none.
func (ep *endpoint) sendPlain(
	ctx context.Context,
	person *Identity,
	r dashboard.Request,
	header, correlation string,
) (code int, problem string) {
	req, err := http.NewRequestWithContext(ctx, r.Method, ep.url.String()+r.Path, strings.NewReader(r.Body))
	if err != nil {
		return 0, err.Error()
	}
	for name, value := range r.Headers {
		req.Header.Set(name, value)
	}
	if header != "" {
		req.Header.Set(header, correlation)
	}
	person.addTo(req.Header)
	resp, err := ep.client(person).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, largestBatch)); err != nil {
		return resp.StatusCode, "the answer broke off: " + err.Error()
	}
	return resp.StatusCode, ""
}

// objects returns the objects that are created before the first request on a control plane of ours.
func (p *dashboardPlan) objects() []map[string]any {
	return slices.Concat(namespaceObjects(p.namespaces()), p.file.Objects)
}

// namespaces returns the namespaces that the file is about and does not create itself.
func (p *dashboardPlan) namespaces() []string {
	var names []string
	for _, r := range p.file.Requests {
		for _, a := range r.Arrives {
			names = append(names, a.Namespace)
		}
	}
	for _, object := range p.file.Objects {
		metadata, _ := object["metadata"].(map[string]any)
		namespace, _ := metadata["namespace"].(string)
		names = append(names, namespace)
	}
	for _, g := range p.file.Grants {
		names = append(names, g.Namespace)
	}
	existing := []string{"", "default", "kube-system", "kube-public", "kube-node-lease"}
	for _, object := range p.file.Objects {
		if object["kind"] == "Namespace" {
			metadata, _ := object["metadata"].(map[string]any)
			name, _ := metadata["name"].(string)
			existing = append(existing, name)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return slices.Contains(existing, name) })
}

// grants returns the grants on a control plane of ours: those that the file gives to people, those for what the
// dashboard does under its own account, and those by which it may impersonate everybody.
func (p *dashboardPlan) grants(isConstrained bool) []scenarios.Grant {
	dashboardSubject := scenarios.Subject{User: dashboardAccount}
	grants := slices.Clone(p.file.Grants)
	for _, g := range proxyGrants(nil, isConstrained) {
		g.Subject = dashboardSubject
		grants = append(grants, g)
	}
	for _, allowance := range p.file.Own {
		grants = append(grants, grantOf(dashboardSubject, allowance.Verb, allowance))
	}
	if isConstrained {
		for _, r := range p.file.Requests {
			for _, a := range r.Arrives {
				grants = append(grants, grantOf(dashboardSubject, "impersonate-on:user-info:"+a.Verb, a))
			}
		}
	}
	return grants
}

// grantOf returns a grant of a verb for the object of some attributes.
func grantOf(who scenarios.Subject, verb string, a dashboard.Attributes) scenarios.Grant {
	g := scenarios.Grant{
		Subject:   who,
		Verbs:     []string{verb},
		APIGroups: []string{a.APIGroup},
		Resources: []string{a.Resource},
		Namespace: a.Namespace,
	}
	isOfName := a.Name != "" && a.Verb != "create"
	if isOfName {
		g.Names = []string{a.Name}
	}
	return g
}
