package deputy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports/record"
)

// partEvidence is what was seen in one part of the suite.
type partEvidence struct {
	Began      time.Time           `json:"began"`
	Ended      time.Time           `json:"ended"`
	Preflight  *preflightEvidence  `json:"preflight,omitempty"`
	AuditLogs  *auditLogsEvidence  `json:"auditLogs,omitempty"`
	Attacks    *attacksEvidence    `json:"attacks,omitempty"`
	Tunnel     *tunnelEvidence     `json:"tunnel,omitempty"`
	Revocation *revocationEvidence `json:"revocation,omitempty"`
	// OtherPreflight and OtherRevocation are what was seen at the second of two clusters.
	OtherPreflight  *preflightEvidence  `json:"otherPreflight,omitempty"`
	OtherRevocation *revocationEvidence `json:"otherRevocation,omitempty"`
}

// problemEvidence says why not everything was done that was requested.
type problemEvidence struct {
	Problem string `json:"problem"`
}

// observer observes what a plan tries.
type observer struct {
	*plan
	log    *record.Log
	events product.Observer
	sent   sentRequests
	// recorded is how many parts are recorded.
	recorded int
}

// Run implements product.Plan. It ends with the group in which something breaks.
func (p *plan) Run(ctx context.Context, log *record.Log, events product.Observer) error {
	o := &observer{plan: p, log: log, events: events, sent: sentRequests{}}
	for _, g := range p.groups {
		if len(p.partsOf(g)) == 0 {
			continue
		}
		err := o.observeGroup(ctx, g)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return err // Execute records it
		case o.recorded == 0:
			return err // nothing was seen, so the user may be able to fix it
		default:
			events.Say(fmt.Sprintf("%s: %v", g.name, err))
			return log.Append(problemKey(g.name), problemEvidence{err.Error()})
		}
	}
	return nil
}

// observeGroup runs the parts with one way of impersonation, on a control plane of its own or on the running cluster.
func (o *observer) observeGroup(ctx context.Context, g *group) (err error) {
	var planes []*plane
	if !g.isForeign() {
		planes, err = o.startPlanes(ctx, g)
		defer func() { err = errors.Join(err, stopPlanes(planes)) }()
		if err != nil {
			return err
		}
	}
	ep, err := o.openEndpoint(ctx, g, planes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ep.close()) }()
	for _, part := range o.partsOf(g) {
		if err := o.observePart(ctx, g, part, ep); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}

// startPlanes starts a control plane for each cluster. After an error it returns those that are running.
func (o *observer) startPlanes(ctx context.Context, g *group) ([]*plane, error) {
	return startPlanes(o.log, o.events, o.options.target, planeGroups(g.name, o.options.clusters), func() (*plane, error) {
		return startPlane(ctx, o.options.target, g.grants(), g.namespaces())
	})
}

// startPlanes starts control planes that are recorded under these names. After an error it returns those that are
// running.
func startPlanes(
	log *record.Log,
	events product.Observer,
	options server.Options,
	names []string,
	start func() (*plane, error),
) (planes []*plane, err error) {
	for _, name := range names {
		p, err := start()
		if err != nil {
			return planes, err
		}
		if err := recordPlane(log, events, options, name, p); err != nil {
			return planes, err
		}
		planes = append(planes, p)
	}
	return planes, nil
}

// planeGroups returns the names under which the control planes of a group are recorded. The second control plane has a
// name of its own.
func planeGroups(group string, clusters []string) []string {
	if len(clusters) < 2 {
		return []string{group}
	}
	return []string{group, group + "/" + clusters[1]}
}

// stopPlanes stops control planes, and returns what broke in them.
func stopPlanes(planes []*plane) (err error) {
	for _, p := range planes {
		err = errors.Join(err, p.ClusterErr(), p.Stop())
	}
	return err
}

// recordPlane records the control plane that was started for a group if it is the one that was requested. Otherwise it
// stops it.
func recordPlane(log *record.Log, events product.Observer, options server.Options, group string, p *plane) error {
	facts := p.FoundTarget()
	err := server.CheckTarget(facts, options.AskedTarget())
	if err == nil {
		err = log.Append(targetKey(group), facts)
	}
	if err != nil {
		return errors.Join(err, p.Stop())
	}
	events.Say(fmt.Sprintf("%s: %s ready", group, p.Witness.GitVersion))
	return nil
}

// openEndpoint returns the endpoint: the proxy, the reference agent, or the reference hub in front of two clusters.
func (o *observer) openEndpoint(ctx context.Context, g *group, planes []*plane) (*endpoint, error) {
	proxy := o.options.proxy
	switch {
	case proxy == nil && g.hasTwoClusters():
		return openFront(ctx, o.options.clusters, planes, g.people)
	case proxy == nil:
		return planes[0].agent(ctx, planes[0].url, g.people)
	}
	ep, err := proxy.open(ctx, planes)
	if err != nil {
		return nil, err
	}
	o.events.Say(fmt.Sprintf("%s: the proxy at %s answers %d people", g.name, proxy.URL, len(g.people)))
	return ep, nil
}

// observePart observes a part and records what was seen.
func (o *observer) observePart(ctx context.Context, g *group, part string, ep *endpoint) (err error) {
	e := &partEvidence{Began: truncatedNow()}
	switch part {
	case preflightPart:
		if e.Preflight, err = o.observePreflight(ctx, g, ep); err == nil && ep.other != nil {
			e.OtherPreflight, err = o.observePreflight(ctx, g, ep.secondEndpoint())
		}
	case auditLogsPart:
		if e.AuditLogs, err = observeAuditLogs(ctx, g, ep); err == nil {
			err = o.sent.checkRows(e.AuditLogs)
		}
	case attacksPart:
		e.Attacks, err = ep.sendAttacks(ctx, g.table, 1)
	case tunnelPart:
		e.Tunnel, err = ep.plane.observeTunnel(ctx, ep)
	case revocationPart:
		err = ep.observeRevocation(ctx, o.options.proxy.Revoke, e)
	}
	if err != nil {
		return err
	}
	e.Ended = time.Now()
	if err := o.log.Append(partKey(g, part), e); err != nil {
		return err
	}
	o.recorded++
	for _, id := range o.casesOf(g, part) {
		o.events.Done(id)
	}
	return nil
}

// observePreflight observes the pre-flight at one cluster, and asserts that it was sent as it had to be.
func (o *observer) observePreflight(ctx context.Context, g *group, ep *endpoint) (*preflightEvidence, error) {
	e, err := ep.observePreflight(ctx, g)
	if err != nil {
		return nil, err
	}
	return e, o.sent.checkPreflight(g, e)
}

// observeAuditLogs lets everybody send requests at once.
func observeAuditLogs(ctx context.Context, g *group, ep *endpoint) (e *auditLogsEvidence, err error) {
	e = &auditLogsEvidence{}
	if g.reference {
		if e, err = ep.plane.useReferenceDeputies(ctx, ep, g.requests); err != nil || !g.hasTwoClusters() {
			return e, err
		}
	}
	attacks, err := ep.sendForEverybody(ctx, g.requests)
	e.Routes = append(e.Routes, routeEvidence{Attacks: attacks})
	return e, err
}
