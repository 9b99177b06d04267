package deputy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/reports/filing"
)

// Options are what to run.
type Options struct {
	// Plane is the control plane to start; its gate ConstrainedImpersonation is on.
	Plane local.Options
	// Bridges are the ways in which the bridge is granted impersonation: legacy,
	// constrained, or both, one control plane each.
	Bridges []string
	// Parts are preflight, trails and tunnel; all of them if empty.
	Parts []string
	// Pairs is how many questions the pre-flight is tried with, Users how many people
	// send Requests each at once.
	Pairs, Users, Requests int
	Seed                   uint64
	// Progress receives lines; it must be set.
	Progress func(string)
}

// Bridges are the ways in which a bridge can be granted impersonation.
func Bridges() []string { return []string{"legacy", "constrained"} }

// Parts are the parts of the suite.
func Parts() []string { return []string{"preflight", "trails", "tunnel"} }

// Check says what is wrong with the options.
func (o Options) Check() error {
	for _, list := range []struct {
		what         string
		given, known []string
	}{{"bridge", o.Bridges, Bridges()}, {"part", o.Parts, Parts()}} {
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
	Seed    uint64    `json:"seed"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Parts   []*Part   `json:"parts"`
}

// Part is one part on one bridge.
type Part struct {
	Name   string `json:"name"`
	Bridge string `json:"bridge"`
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
	text := fmt.Sprintf("%s, %s: %d checks in %.1f s (%.0f/s), %d failed", p.Name, p.Bridge, p.Checks, p.Seconds, float64(p.Checks)/max(p.Seconds, 1e-9), p.Failed)
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

// Run runs the suite. An error is one of the environment, or the user's to mend;
// what was found until then is reported with it.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &Report{Seed: o.Seed, Version: o.Plane.Release.Version, Started: time.Now()}
	for _, bridge := range o.Bridges {
		if err := r.bridge(ctx, o, bridge); err != nil {
			return r, fmt.Errorf("%s: %w", bridge, err)
		}
	}
	return r, nil
}

// bridge runs the parts on a control plane of their own.
func (r *Report) bridge(ctx context.Context, o Options, name string) (err error) {
	w, random := newWorld(o.Seed)
	crowd := crowd(o.Users)
	grants := slices.Concat(w.grants, crowdGrants(crowd), bridge(slices.Concat(w.people, crowd), name == "constrained"))
	p, err := start(ctx, o.Plane, grants, append(slices.Clone(w.namespaces), crowdSpace))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Err(), p.Stop()) }()
	o.Progress(fmt.Sprintf("%s: %s ready in %.1f s", name, p.Options().Release.Version, p.ReadyIn().Seconds()))
	for _, part := range Parts() {
		if len(o.Parts) > 0 && !slices.Contains(o.Parts, part) {
			continue
		}
		found := &Part{Name: part, Bridge: name, Outcomes: map[string]int{}}
		r.Parts = append(r.Parts, found)
		begun := time.Now()
		switch part {
		case "preflight":
			f := &preflight{plane: p, world: w, rules: map[string]*rules{}, part: found}
			err = f.run(ctx, w.pairs(random, o.Pairs))
		case "trails":
			err = trails(ctx, p, found, crowd, o.Requests)
		case "tunnel":
			err = tunnel(ctx, p, found, crowd)
		}
		found.Seconds = time.Since(begun).Seconds()
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		o.Progress(found.line())
	}
	return nil
}
