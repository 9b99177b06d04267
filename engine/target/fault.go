package target

import (
	"context"
	"encoding/json"
	"errors"
)

// faulty is a cluster whose parts can be broken on purpose.
type faulty interface {
	KillAPIServer() error
	RestartEtcd(ctx context.Context) error
}

// KillAPIServer kills the API server (SIGKILL). Restart brings one up again.
func (t *Target) KillAPIServer() error {
	c, ok := t.cluster.(faulty)
	if !ok {
		return errors.New("the API server of this cluster cannot be killed")
	}
	return c.KillAPIServer()
}

// RestartEtcd kills etcd, starts it again on its data, and returns when the API server is ready again.
func (t *Target) RestartEtcd(ctx context.Context) error {
	c, ok := t.cluster.(faulty)
	if !ok {
		return errors.New("etcd of this cluster cannot be restarted")
	}
	return c.RestartEtcd(ctx)
}

// SetWebhookDown lets the scripted webhook authorizer answer 503 to everything, or no longer.
func (t *Target) SetWebhookDown(down bool) { t.policy.down.Store(down) }

// TakeEvent returns the audit event of an answered request if this API server wrote it, and forgets it.
func (t *Target) TakeEvent(auditID string) (json.RawMessage, bool) { return t.events.take(auditID) }
