package replay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Kept is what the scenarios of one setup have on a cluster: made once, and used
// again after the API server was replaced.
type Kept struct {
	// Suffix made the setup's names unique.
	Suffix string

	tokens map[string]string // by requestor alias
	paths  []string          // of the objects
}

// Object is an API object as the API server writes it.
type Object struct {
	// Path is where it was read, for example /apis/rbac.authorization.k8s.io/v1/clusterroles/a.
	Path string
	// Body is the JSON, byte for byte.
	Body []byte
}

// Keep makes everything that a scenario with a setup needs, without sending its requests.
func (r *Replayer) Keep(ctx context.Context, s *scenarios.Scenario, suffix string) (*Kept, error) {
	bound, _ := s.Bind(suffix)
	run := &run{target: r.target, admin: r.admin, bound: bound, suffix: suffix}
	if err := run.provision(ctx); err != nil {
		return nil, fmt.Errorf("making the setup %s: %w", s.Setup, err)
	}
	kept := &Kept{Suffix: suffix, tokens: run.tokens}
	own := placesOf(bound)
	kept.paths = own.paths()
	for _, o := range scenarios.RenderRBAC(bound) {
		kept.paths = append(kept.paths, o.Paths()...)
	}
	for _, m := range slices.Concat(bound.Manifests, bound.Objects) {
		path, err := r.admin.objects.path(m)
		if err != nil {
			return nil, err
		}
		kept.paths = append(kept.paths, path)
	}
	return kept, nil
}

// ReplayKept is Replay with what Keep made, also on an API server that is not the
// one it was made on: tokens and objects are the same ones.
func (r *Replayer) ReplayKept(ctx context.Context, s *scenarios.Scenario, kept *Kept) *verdicts.Evidence {
	return r.replay(ctx, s, kept.Suffix, kept, false)
}

// Send sends the only request of a scenario with what its setup has, over a connection of its own, to host, which
// may be a balancer. Nothing but the answer is looked at.
func (r *Replayer) Send(ctx context.Context, s *scenarios.Scenario, kept *Kept, host string) (o verdicts.Observation, err error) {
	bound, _ := s.Bind(kept.Suffix)
	run := &run{target: r.target, admin: r.admin, bound: bound, suffix: kept.Suffix, tokens: kept.tokens}
	request := bound.Steps[0].Request
	client, req, err := run.prepare(ctx, host, request, &o.Request)
	if err != nil {
		return o, err
	}
	req.Close = true
	o.Sent = time.Now()
	o.Response, err = RoundTrip(client, req, false)
	o.Answered = time.Now()
	return o, err
}

// Read reads the objects of a setup, as they are written by the API server that runs now.
func (r *Replayer) Read(ctx context.Context, kept *Kept) ([]Object, error) {
	var out []Object
	for _, path := range kept.paths {
		body, err := r.admin.client.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("GET %s: %w", path, err)
		}
		out = append(out, Object{Path: path, Body: body})
	}
	return out, nil
}
