// Package gate runs the API-server vectors of KEP-5681 on a kube-apiserver that has the gate ConditionalAuthorization.
// The authorizers of the API server are webhooks that answer as the vectors say. The harness sends real requests.
//
// No release of Kubernetes has the gate. The names of the gate, the plugin and the field are those of the KEP.
package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
)

// Gate is the name of the gate.
const Gate = "ConditionalAuthorization"

const plugin = "AuthorizationConditionsEnforcer"

// Options are the options of a run of vectors.
type Options struct {
	// Release and Binaries name the program. TEST_ASSET_KUBE_APISERVER takes precedence.
	Release  local.Release
	Binaries *local.Binaries
	Wire     *wire.Revision // the revision in which the webhooks speak
	Played   func()         // called after each vector
}

// Play is what was seen of all vectors that can run.
type Play struct {
	// Server is the program and its version, and Form how its configuration names the context for conditions.
	Server, Form string
	Seen         []*VectorEvidence // in the order in which they were played
}

// kind is a configuration of an API server.
type kind struct {
	gate, plugin string
	noContext    bool // the webhooks have no context for conditions
}

// Run runs vectors. Vectors about the same configuration run on one API server.
func Run(ctx context.Context, all []*vectors.Vector, o Options) (*Play, error) {
	play, byKind, length := &Play{}, map[kind][]*vectors.Vector{}, 1
	for _, v := range all {
		if m := v.APIServer; Cannot(v, o.Wire) == "" {
			k := kind{gate: m.Server.Gate, plugin: m.Server.Plugin}
			byKind[k], length = append(byKind[k], v), max(length, len(m.Chain), len(m.Compound))
		}
	}
	// The usual configuration always runs, and runs first: an API server that does not start with another one is
	// compared with it.
	for i, k := range []kind{
		{gate: "on", plugin: "on"},
		{gate: "on", plugin: "off"},
		{gate: "off", plugin: "on"},
		{gate: "off", plugin: "off"},
		{gate: "rolledBack", plugin: "on"},
	} {
		if i > 0 && byKind[k] == nil {
			continue
		}
		if err := play.playOn(ctx, k, length, byKind[k], o); err != nil {
			return nil, err
		}
	}
	return play, nil
}

// playOn runs vectors on an API server of one configuration, with chains of a length.
func (p *Play) playOn(ctx context.Context, k kind, length int, all []*vectors.Vector, o Options) (err error) {
	playing, err := startPlayer(ctx, k, length, o)
	if err != nil {
		if _, ended := errors.AsType[*local.ProcessError](err); !ended || p.Server == "" {
			return explainUnknown(ctx, err, o)
		}
		p.Seen = append(p.Seen, seq.Map(all, func(v *vectors.Vector) *VectorEvidence { return &VectorEvidence{Vector: v.ID} })...)
		return nil
	}
	defer func() { err = errors.Join(err, playing.close()) }()
	p.Server, p.Form = cmp.Or(p.Server, "kube-apiserver "+playing.Witness.GitVersion), cmp.Or(p.Form, playing.form)
	for _, v := range all {
		observation, err := playing.play(ctx, v)
		if err = errors.Join(err, playing.ClusterErr()); err != nil {
			return fmt.Errorf("%s: %w", v.ID, err)
		}
		p.Seen = append(p.Seen, &observation)
		o.Played()
	}
	return nil
}

// startPlayer starts webhooks, and an API server of a configuration that asks them. The caller has to call close.
func startPlayer(ctx context.Context, k kind, length int, o Options) (_ *player, err error) {
	p := &player{said: &webhooks{wire: o.Wire}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.audit, err = newAuditLog(); err != nil {
		return nil, err
	}
	if p.hooks, err = server.ServeLoopback(ctx, p.said.handler(), nil); err != nil {
		return nil, err
	}
	if err := p.start(ctx, k, length, o); err != nil {
		return nil, err
	}
	return p, p.register(ctx)
}

// close stops the API server, then its webhooks.
func (p *player) close() (err error) {
	if p.Server != nil {
		err = p.Stop()
	}
	if p.hooks != nil {
		err = errors.Join(err, p.hooks.Close())
	}
	return errors.Join(err, p.audit.remove())
}
