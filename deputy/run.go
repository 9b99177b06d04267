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

	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
)

// Options are what to run.
type Options struct {
	// Target is the control plane to start; its gate ConstrainedImpersonation is on.
	Target target.Options
	// Impersonation are the ways in which the proxy identity may impersonate: legacy, constrained, or both, with one
	// control plane each.
	Impersonation []string
	// Parts are preflight, audit-logs and tunnel; all of them if empty.
	Parts []string
	// Pairs is how many questions the pre-flight is tried with; Users people send Requests each, all at once.
	Pairs, Users, Requests int
	Seed                   int64
	// Progress receives lines; it must be set.
	Progress func(string)
}

// Impersonations are the ways in which a proxy identity can be granted impersonation.
func Impersonations() []string { return []string{"legacy", "constrained"} }

// Parts are the parts of the suite.
func Parts() []string { return []string{"preflight", "audit-logs", "tunnel"} }

// Check says what is wrong with the options.
func (o Options) Check() error {
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
	if o.Pairs < 1 || o.Users < 1 || o.Requests < 1 {
		return errors.New("pairs, users and requests are at least 1")
	}
	return nil
}

// Report is what came out.
type Report struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Seed       int64     `json:"seed"`
	Version    string    `json:"version"`
	Started    time.Time `json:"started"`
	Parts      []*Part   `json:"parts"`
}

// Part is one part of the suite with one kind of impersonation.
type Part struct {
	Name          string `json:"name"`
	Impersonation string `json:"impersonation"`
	// Checks is how many comparisons were made, in Seconds.
	Checks   int            `json:"checks"`
	Seconds  float64        `json:"seconds"`
	Outcomes map[string]int `json:"outcomes,omitempty"`
	// Failed is how many checks failed; the first of them are in Failures.
	Failed   int      `json:"failed"`
	Failures []string `json:"failures,omitempty"`
}

// listedFailures is how many failures are told in words.
const listedFailures = 20

func (p *Part) fail(format string, args ...any) {
	if p.Failed++; len(p.Failures) < listedFailures {
		p.Failures = append(p.Failures, fmt.Sprintf(format, args...))
	}
}

// line says on one line what came out.
func (p *Part) line() string {
	text := fmt.Sprintf("%s, %s: %d checks in %.1f s (%.0f/s), %d failed", p.Name, p.Impersonation, p.Checks, p.Seconds, float64(p.Checks)/max(p.Seconds, 1e-9), p.Failed)
	var parts []string
	for name, n := range p.Outcomes {
		parts = append(parts, fmt.Sprintf("%d %s", n, name))
	}
	slices.Sort(parts)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// Lines are the report for people.
func (r *Report) Lines() (out []string) {
	for _, p := range r.Parts {
		out = append(out, p.line())
		for _, f := range p.Failures {
			out = append(out, "  failed: "+f)
		}
		if more := p.Failed - len(p.Failures); more > 0 {
			out = append(out, fmt.Sprintf("  and %d more", more))
		}
	}
	return out
}

// Failed tells whether anything did.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Parts, func(p *Part) bool { return p.Failed > 0 })
}

// Folder is a report in a folder.
var Folder = filing.Kind{Name: "report of deputy", Marker: "deputy.yaml", Head: map[string]string{"seed": "", "version": "", "parts": ""}}

// Write puts deputy.yaml into a folder.
func (r *Report) Write(dir string) error { return Folder.WriteReport(dir, r, nil) }

// Run runs the suite. An error is one of the environment, or the user's to mend; the report has what was found until
// then.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &Report{APIVersion: reports.APIVersion, Kind: "DeputyReport", Seed: o.Seed, Version: o.Target.Cell.Kubernetes, Started: time.Now()}
	for _, kind := range o.Impersonation {
		if err := r.run(ctx, o, kind); err != nil {
			return r, fmt.Errorf("%s: %w", kind, err)
		}
	}
	return r, nil
}

// run runs the parts with one kind of impersonation, on a control plane of its own.
func (r *Report) run(ctx context.Context, o Options, name string) (err error) {
	f, random := newFixture(o.Seed)
	people := users(o.Users)
	grants := slices.Concat(f.grants, userGrants(people), proxyGrants(slices.Concat(f.people, people), name == "constrained"))
	p, err := start(ctx, o.Target, grants, append(slices.Clone(f.namespaces), usersNamespace))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Err(), p.Stop()) }()
	o.Progress(fmt.Sprintf("%s: %s ready", name, p.Witness.GitVersion))
	for _, part := range Parts() {
		if len(o.Parts) > 0 && !slices.Contains(o.Parts, part) {
			continue
		}
		found := &Part{Name: part, Impersonation: name, Outcomes: map[string]int{}}
		r.Parts = append(r.Parts, found)
		begun := time.Now()
		switch part {
		case "preflight":
			check := &preflight{plane: p, fixture: f, part: found}
			err = check.run(ctx, f.pairs(random, o.Pairs))
		case "audit-logs":
			err = auditLogs(ctx, p, found, people, o.Requests)
		case "tunnel":
			err = tunnel(ctx, p, found, people)
		}
		found.Seconds = time.Since(begun).Seconds()
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		o.Progress(found.line())
	}
	return nil
}
