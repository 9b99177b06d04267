// Package deputy is about tools that act for many people, such as a dashboard that impersonates each of its users. What a
// scenario can say about them is in the folder periscope; this package checks on a running API server what it cannot:
// that a pre-flight says what the request then does, that the deputy's own audit log and the API server's say the same,
// and that nobody becomes somebody else through a tunnel.
package deputy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/scenarios"
)

// Options are what to run.
type Options struct {
	// Target is the control plane to start; its gate ConstrainedImpersonation is on.
	Target server.Options
	// Impersonation are the ways in which the proxy identity may impersonate, with a control plane each.
	Impersonation []string
	// Parts are some of Parts; all that there are of the proxy or the references if empty.
	Parts []string
	// Pairs is how many questions the pre-flight is tried with; Users people send Requests each, all at once.
	Pairs, Users, Requests int
	Seed                   int64
	// Proxy, if given, is tried in place of the reference deputy and agent.
	Proxy *Proxy
	// Progress receives lines; it must be set.
	Progress func(string)
}

const constrained = "constrained"

// Impersonations are the ways in which a proxy identity can be granted impersonation.
func Impersonations() []string { return []string{"legacy", constrained} }

// maxAsked is more than a control plane on one machine answers in good time.
const maxAsked = 10000

// Parts are the parts of the suite.
func Parts() []string { return []string{"preflight", "audit-logs", "attacks", "tunnel", "revocation"} }

// Check says what is wrong with the options. Without read, as for a report, no file that they name is.
func (o Options) Check(read bool) error {
	for _, list := range []struct {
		what         string
		given, known []string
	}{{"impersonation", o.Impersonation, Impersonations()}, {"part", o.Parts, Parts()}} {
		for _, g := range list.given {
			if !slices.Contains(list.known, g) {
				return fmt.Errorf("there is no %s %q (expected one of %s)", list.what, g, strings.Join(list.known, ", "))
			}
		}
	}
	switch {
	case min(o.Pairs, o.Users, o.Requests) < 1 || max(o.Pairs, o.Users, o.Requests) > maxAsked:
		return fmt.Errorf("--pairs %d, --users %d, --requests %d: expected 1 to %d of each", o.Pairs, o.Users, o.Requests, maxAsked)
	case len(o.Parts) > 0 && len(o.parts()) == 0:
		return errors.New("the part tunnel is about the reference agent, revocation about a --proxy with --revoke-command: nothing is left to be tried")
	case o.Proxy == nil:
		return nil
	}
	return o.Proxy.check(read)
}

// Report is what came out.
type Report struct {
	APIVersion     string `json:"apiVersion"`
	Kind           string `json:"kind"`
	reports.Record `json:",inline"`

	Seed    int64  `json:"seed"`
	Version string `json:"version"`
	// Proxy is the URL of the proxy that was tried, empty if it was the references.
	Proxy   string    `json:"proxy,omitempty"`
	Started time.Time `json:"started"`
	Parts   []*Part   `json:"parts"`
	Problem string    `json:"problem,omitempty"` // why not everything was done that was asked for
}

// Part is one part of the suite with one kind of impersonation.
type Part struct {
	Name          string         `json:"name"`
	Impersonation string         `json:"impersonation"`
	Checks        int            `json:"checks"` // how many comparisons were made, in Seconds
	Seconds       float64        `json:"seconds"`
	Outcomes      map[string]int `json:"outcomes,omitempty"`
	Failed        int            `json:"failed"` // how many checks failed; the first of them are in Failures
	Failures      []string       `json:"failures,omitempty"`
	// Findings are the attacks among them. By is how many audit events were found by what.
	Findings     []Finding      `json:"findings,omitempty"`
	By           map[string]int `json:"foundBy,omitempty"`
	Pages        []Cost         `json:"pages,omitempty"`        // what the pages of a dashboard cost
	Inconclusive string         `json:"inconclusive,omitempty"` // why this part says nothing

	began, ended time.Time
	ids          map[string]bool // audit IDs that were seen
	logged       bool            // whether the log has shown something in an earlier part
}

const listedFailures = 20

func (p *Part) fail(format string, args ...any) {
	if p.Failed++; len(p.Failures) < listedFailures {
		p.Failures = append(p.Failures, fmt.Sprintf(format, args...))
	}
}

// Line says on one line what came out.
func (p *Part) Line() string { return said("line", p) }

// Failed tells whether anything did.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Parts, func(p *Part) bool { return p.Failed > 0 })
}

// Folder is a report in a folder.
var Folder = filing.Kind{
	Name: "report of deputy", Marker: "deputy.yaml", Head: map[string]string{"seed": "", "version": "", "parts": ""},
	Files: append([]string{"evidence/*.json.gz", "evidence/*/*.json.gz"}, reports.BriefFiles...),
}

type ended struct {
	Started time.Time `json:"started"`
	Problem string    `json:"problem,omitempty"`
}

const endPiece = "end"

// partEvidence is what was seen in one part of the suite.
type partEvidence struct {
	Began      time.Time           `json:"began"`
	Ended      time.Time           `json:"ended"`
	Preflight  *preflightEvidence  `json:"preflight,omitempty"`
	Crowd      *crowdEvidence      `json:"auditLogs,omitempty"`
	Attacks    *attacksEvidence    `json:"attacks,omitempty"`
	Tunnel     *tunnelEvidence     `json:"tunnel,omitempty"`
	Revocation *revocationEvidence `json:"revocation,omitempty"` // there if there is a command for it
}

// Run runs the suite. The report has what was found until then where something broke: then the outcome is invalid.
// An error says that there is nothing to report.
func Run(ctx context.Context, o Options) (*Report, *reports.Pieces, error) {
	pieces, end := &reports.Pieces{}, &ended{Started: time.Now()}
	for i, kind := range o.kinds() {
		err := o.observe(ctx, kind, pieces)
		if i == 0 && err != nil && !slices.ContainsFunc(o.parts(), func(part string) bool { return pieces.Has(kind + "/" + part) }) {
			return nil, nil, err // nothing was seen: it may be the user's to mend
		}
		if err != nil {
			end.Problem = fmt.Sprintf("%s: %v", kind, err)
			break
		}
	}
	if _, err := reports.Keep(pieces, endPiece, end); err != nil {
		return nil, nil, err
	}
	r, err := Judge(o, pieces)
	return r, pieces, err
}

// suite is what is tried with one kind of impersonation, as options and seed have it.
type suite struct {
	kind    string
	fixture *fixture
	pairs   []pair
	// people use the deputy at once, and send so many requests each; a proxy knows no others.
	people   []*Identity
	requests int
	account  string // the proxy's own, where it is known
	// reference says that it is the reference deputy and agent that are tried, logged that a part has found its events.
	reference, logged bool
}

func (o Options) suite(kind string) *suite {
	s := &suite{kind: kind, people: users(o.Users), requests: o.Requests, account: proxyName, reference: o.Proxy == nil}
	asked := somebody()
	if o.Proxy != nil {
		s.people, asked = o.Proxy.People, o.Proxy.People
	}
	f, random := newFixture(o.Seed, asked)
	s.fixture, s.pairs = f, f.pairs(random)
	if kind == existingCluster { // where nothing may be changed, whatever the proxy makes of a request
		s.account = ""
		s.pairs = slices.DeleteFunc(s.pairs, func(q pair) bool { return q.verb != "get" && q.verb != "list" })
	}
	s.pairs = s.pairs[:min(o.Pairs, len(s.pairs))]
	return s
}

// grants are what is granted on a control plane of ours: a proxy of somebody's may impersonate everybody.
func (s *suite) grants() []scenarios.Grant {
	step, reach := 1, []*Identity(nil)
	if s.reference {
		step, reach = everyOther, slices.Concat(s.fixture.people, s.people)
	}
	return slices.Concat(s.fixture.grants, userGrants(s.people, step), proxyGrants(reach, s.kind == constrained))
}

// kinds are the ways in which the proxy identity may impersonate; on a cluster that runs they are not ours to choose.
func (o Options) kinds() []string {
	if o.Proxy != nil && o.Proxy.Kubeconfig != "" {
		return []string{existingCluster}
	}
	return o.Impersonation
}

func (o Options) parts() []string {
	return slices.DeleteFunc(Parts(), func(part string) bool {
		return len(o.Parts) > 0 && !slices.Contains(o.Parts, part) || part == "tunnel" && o.Proxy != nil || part == "revocation" && (o.Proxy == nil || o.Proxy.Revoke == "")
	})
}

// observe runs the parts with one kind of impersonation, on a control plane of its own or the cluster that runs.
func (o Options) observe(ctx context.Context, kind string, pieces *reports.Pieces) (err error) {
	s := o.suite(kind)
	var p *plane
	if kind != existingCluster {
		if p, err = start(ctx, o.Target, s.grants(), append(slices.Clone(s.fixture.namespaces), Namespace)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.ClusterErr(), p.Stop()) }()
		found := p.Found()
		if _, err := reports.Keep(pieces, kind+"/target", &found); err != nil {
			return err
		}
		o.Progress(fmt.Sprintf("%s: %s ready", kind, p.Witness.GitVersion))
	}
	var ep *endpoint
	if o.Proxy != nil {
		ep, err = o.Proxy.open(ctx, p)
	} else {
		ep, err = p.agent(ctx, p.url, s.people)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ep.close()) }()
	if o.Proxy != nil {
		o.Progress(fmt.Sprintf("%s: the proxy at %s answers %d people", kind, o.Proxy.URL, len(s.people)))
	}
	for _, part := range o.parts() {
		e := &partEvidence{Began: now()}
		err := o.see(ctx, part, s, p, ep, e)
		e.Ended = time.Now()
		if err == nil {
			e, err = reports.Keep(pieces, kind+"/"+part, e)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		if judged, err := s.judge(part, e, map[string]bool{}); err == nil {
			o.Progress(judged.Line())
		}
	}
	return nil
}

func (o Options) see(ctx context.Context, part string, s *suite, p *plane, ep *endpoint, e *partEvidence) (err error) {
	switch part {
	case "preflight":
		e.Preflight, err = ep.preflight(ctx, s)
	case "audit-logs":
		if s.reference {
			e.Crowd, err = p.deputies(ctx, ep, s.requests)
			break
		}
		e.Crowd = &crowdEvidence{Ways: make([]wayEvidence, 1)}
		e.Crowd.Ways[0].Attacks, err = ep.crowd(ctx, s.requests)
	case "attacks":
		e.Attacks, err = ep.attack(ctx, attacks(), 1)
	case "tunnel":
		e.Tunnel, err = p.tunnel(ctx, ep)
	case "revocation":
		e.Revocation, err = ep.revoke(ctx, o.Proxy.Revoke)
	}
	return err
}

// judge judges what was seen in a part. An error says that the evidence is not of what was to be tried.
func (s *suite) judge(part string, e *partEvidence, ids map[string]bool) (*Part, error) {
	p := &Part{Name: part, Impersonation: s.kind, Seconds: e.Ended.Sub(e.Began).Seconds(), Outcomes: map[string]int{}, By: map[string]int{}, began: e.Began, ended: e.Ended, ids: ids, logged: s.logged}
	defer func() { s.logged = s.logged || len(p.By) > 0 }()
	switch {
	case part == "preflight" && e.Preflight != nil:
		return p, e.Preflight.judge(p, s)
	case part == "audit-logs" && e.Crowd != nil:
		return p, e.Crowd.judge(p, s)
	case part == "attacks" && e.Attacks != nil:
		return p, e.Attacks.judge(p, attacks(), s.people, s.account, s.reference)
	case part == "tunnel" && e.Tunnel != nil:
		return p, e.Tunnel.judge(p)
	case part == "revocation" && e.Revocation != nil:
		return p, e.Revocation.judge(p, s.people[0], s.account != "")
	}
	return nil, errors.New("is not the evidence of this part")
}

// Judge makes the report from what was seen.
func Judge(o Options, pieces *reports.Pieces) (*Report, error) {
	end, err := reports.Take[ended](pieces, endPiece)
	if err != nil {
		return nil, err
	}
	r := &Report{APIVersion: reports.APIVersion, Kind: "DeputyReport", Seed: o.Seed, Version: o.Target.Cell.Kubernetes, Started: end.Started, Problem: end.Problem}
	if o.Proxy != nil {
		r.Proxy = o.Proxy.URL
	}
	if o.kinds()[0] == existingCluster {
		r.Version = "of the cluster"
	}
	ids := map[string]bool{}
	for _, kind := range o.kinds() {
		if end.Problem != "" && !pieces.Has(kind+"/target") && kind != existingCluster {
			break
		}
		if kind != existingCluster {
			found, err := reports.Take[reports.Found](pieces, kind+"/target")
			if err == nil {
				err = server.Hold(*found, o.Target.Wanted())
			}
			if err != nil {
				return nil, err
			}
		}
		s := o.suite(kind)
		for _, part := range o.parts() {
			name := kind + "/" + part
			if end.Problem != "" && !pieces.Has(name) {
				break
			}
			e, err := reports.Take[partEvidence](pieces, name)
			if err != nil {
				return nil, err
			}
			judged, err := s.judge(part, e, ids)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if r.Parts = append(r.Parts, judged); judged.Inconclusive != "" && r.Problem == "" {
				r.Problem = part + ": " + judged.Inconclusive
			}
		}
	}
	r.Conclude(r.Failed(), r.Problem != "")
	return r, nil
}
