package granular

import (
	"context"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/engine/server"
)

// gate is the way to what enforces. Of the reference, it keeps what it has decided.
type gate struct {
	// proxy serves the reference. It is nil for what the API server enforces itself.
	proxy *recorder.Server
	way   *rest.Config

	mu        sync.Mutex
	decisions map[string][]enforcer.Decision // by user
}

// open starts the reference, or has the API server enforce.
func (b *Bench) open(ctx context.Context, by Enforcement) (*gate, error) {
	g := &gate{way: b.server.Anonymous(), decisions: map[string][]enforcer.Decision{}}
	switch by.Kind {
	case Reference:
		return g, g.serveReference(ctx, b, by)
	case Policies, Webhook:
		return g, b.install(ctx, by)
	}
	return g, nil
}

func (g *gate) serveReference(ctx context.Context, b *Bench, by Enforcement) error {
	e, err := enforcer.New(enforcer.Options{Backend: b.server.Admin(), Group: executors, Descriptions: by.Descriptions, Steps: by.Steps, Record: g.keep})
	if err != nil {
		return err
	}
	if g.proxy, err = server.ServeLoopback(ctx, e, nil); err != nil {
		return err
	}
	g.way = &rest.Config{Host: g.proxy.URL, TLSClientConfig: rest.TLSClientConfig{CAData: g.proxy.CA}}
	return nil
}

// Close ends the reference. What the API server enforces itself stays.
func (g *gate) Close() {
	if g.proxy != nil {
		_ = g.proxy.Close()
	}
}

// config returns the way to what enforces, for the holder of a token.
func (g *gate) config(token string) *rest.Config {
	out := rest.CopyConfig(g.way)
	out.BearerToken, out.QPS, out.WarningHandler = token, -1, rest.NoWarnings{} // of fields that no schema has
	return out
}

func (g *gate) keep(d enforcer.Decision) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.decisions[d.User] = append(g.decisions[d.User], d)
}

// take returns what was decided for a user, and forgets it.
func (g *gate) take(user string) []enforcer.Decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := g.decisions[user]
	delete(g.decisions, user)
	return out
}
