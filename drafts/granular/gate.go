package granular

import (
	"context"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/engine/server"
)

// gate is how actors reach the API server so that granular verbs are enforced. It keeps the decisions of the reference.
type gate struct {
	// proxy serves the reference. It is nil if the API server itself enforces.
	proxy *recorder.Server
	way   *rest.Config

	mu        sync.Mutex
	decisions map[string][]enforcer.Decision // by user
}

// open starts the reference, or has the API server enforce.
func (b *Bench) open(ctx context.Context, enforcement Enforcement) (*gate, error) {
	g := &gate{way: b.server.Anonymous(), decisions: map[string][]enforcer.Decision{}}
	switch enforcement.Kind {
	case Reference:
		return g, g.serveReference(ctx, b, enforcement)
	case Policies, Webhook:
		return g, b.install(ctx, enforcement)
	}
	return g, nil
}

func (g *gate) serveReference(ctx context.Context, b *Bench, enforcement Enforcement) error {
	e, err := enforcer.New(
		enforcer.Options{
			Backend:      b.server.Admin(),
			Group:        executors,
			Descriptions: enforcement.Descriptions,
			Steps:        enforcement.Steps,
			Record:       g.keep,
		},
	)
	if err != nil {
		return err
	}
	if g.proxy, err = server.ServeLoopback(ctx, e, nil); err != nil {
		return err
	}
	g.way = &rest.Config{Host: g.proxy.URL, TLSClientConfig: rest.TLSClientConfig{CAData: g.proxy.CA}}
	return nil
}

// Close stops the reference. Policies and webhooks stay in the API server.
func (g *gate) Close() {
	if g.proxy != nil {
		_ = g.proxy.Close()
	}
}

// config returns the client configuration of the gate for the holder of a token.
func (g *gate) config(token string) *rest.Config {
	out := rest.CopyConfig(g.way)
	out.BearerToken, out.QPS, out.WarningHandler = token, -1, rest.NoWarnings{} // nobody reads the warnings about unknown fields
	return out
}

func (g *gate) keep(d enforcer.Decision) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.decisions[d.User] = append(g.decisions[d.User], d)
}

// take returns the decisions about a user, and removes them.
func (g *gate) take(user string) []enforcer.Decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := g.decisions[user]
	delete(g.decisions, user)
	return out
}
